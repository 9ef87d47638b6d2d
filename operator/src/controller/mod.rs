//! The controller of SyncJobs.
//!
//! [`reconcile`] takes one step with a SyncJob: [`dereference`] reads, [`model::validate`](crate::model::validate)
//! turns the spec into a `ValidatedSyncJob`, [`stages::plan`](crate::stages::plan) decides, [`build`] determines the
//! objects that the decision requires, [`apply`] and [`launch`] create them and [`cleanup`] deletes objects,
//! [`bookkeeping`] keeps the SyncRuns, and [`next_status`] and [`announce`] make and write the status. Validating,
//! planning, building and the next status are pure. SyncEndpoints have a reconciliation of their own ([`endpoints`]).

mod abroad;
pub mod accounts;
mod announce;
pub mod apply;
mod bookkeeping;
pub mod build;
mod captured;
mod capturing;
pub mod cleanup;
mod consent;
mod context;
pub mod dereference;
mod endpoint_watches;
mod endpoints;
mod ends;
mod error;
pub mod exec;
mod grants;
mod heard;
pub mod hook_tasks;
pub mod hooks;
mod images;
mod launch;
mod namespaces;
mod neighbours;
mod next_status;
pub mod read;
pub mod recent;
mod reconcile;
pub mod record;
pub mod serve;
mod sets;
mod sources;
mod strays;
mod view;
pub mod volumes;
pub(crate) mod warnings;
pub mod watched;
mod watches;
