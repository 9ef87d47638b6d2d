//! Content that is being written and is not visible yet.

pub(super) mod arrival_log;
pub(super) mod byte_ranges;
pub(super) mod device_part;
pub(super) mod overlay;
pub(super) mod reflink;
pub(super) mod staged_dir;
pub(super) mod staged_file;
pub(super) mod when_in_place;
