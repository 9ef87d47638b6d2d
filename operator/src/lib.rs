//! The operator: see `operator/doc/design.md`.

pub mod agent;
pub mod controller;
pub mod endpoints;
pub mod ends;
pub mod engine;
pub mod fault;
pub mod grants;
pub mod hooks;
pub mod human;
pub mod leases;
pub mod local_run;
pub mod names;
pub mod plugin;
pub mod pods;
pub mod populate;
pub mod queue;
pub mod run;
pub mod runbook;
pub mod sets;
pub mod signals;
pub mod snapshots;
pub mod spec;
pub mod status;
pub mod telemetry;
pub mod user_pods;
pub mod volumes;

// The kinds of the API, under the same path as the rooms.
pub use api;
