//! The spec of a SyncJob, checked and converted to what a run needs.

pub mod fields;
pub mod inner_folder;
pub mod spec_hash;
pub mod validate;
