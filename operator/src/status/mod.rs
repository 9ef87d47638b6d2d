//! The status of a SyncJob: what a step changes in it, its conditions, and how it is written and announced.

pub(crate) mod announce;
mod history_limits;
pub mod merge_patch;
pub(crate) mod next_status;
pub mod printer_columns;
pub mod readiness;
pub mod run_status;
pub mod synced;
mod text_bounds;
