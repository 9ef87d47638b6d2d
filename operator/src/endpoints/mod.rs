//! SyncEndpoints: their reconciliation, the objects made for them, and the process in their pods.

pub mod address;
pub mod endpoint_objects;
pub mod endpoint_standing;
pub(crate) mod endpoint_watches;
pub mod process;
pub(crate) mod reconcile_endpoint;
pub mod serve_config;
