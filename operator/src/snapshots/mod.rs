//! Snapshots: those that the engine keeps on a destination, and those that the storage takes of a source or a
//! destination.

pub mod capture_demand;
pub mod destination_image;
pub mod engine_snapshots;
pub(crate) mod find_changes;
pub(crate) mod group_progress;
pub mod group_snapshot;
pub mod keep_base_snapshot;
pub(crate) mod make_capture;
pub(crate) mod make_image;
pub mod source_capture;
pub(crate) mod storage_progress;
