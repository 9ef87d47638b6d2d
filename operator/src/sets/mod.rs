//! SyncJobSets: which SyncJobs they make from which template, and how they stand.

pub(crate) mod make_group;
pub mod members;
pub(crate) mod reconcile_set;
pub mod set_standing;
pub mod template;
