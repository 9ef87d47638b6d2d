//! The controller of SyncJobs.
//!
//! Each reconciliation goes through the same steps, each in a module of its own: *dereference* reads,
//! *validate* turns the spec into a [`ValidatedSyncJob`], *plan* decides, *build* says what objects
//! that takes, *apply* makes them, and *status* says how it stands. Only dereference, apply and cleanup talk
//! to the API server.

pub mod accounts;
mod announce;
pub mod apply;
mod bookkeeping;
pub mod build;
pub mod cleanup;
mod consent;
mod context;
pub mod dereference;
mod error;
pub mod exec;
pub mod hook_tasks;
pub mod hooks;
mod launch;
mod next_status;
pub mod read;
pub mod recent;
mod reconcile;
pub mod record;
pub mod serve;
mod strays;
mod view;
pub mod volumes;
mod warnings;
pub mod watched;
mod watches;
