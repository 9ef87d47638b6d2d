//! The machine below the engine: files, devices, attributes and cores, as Linux has them.

pub(crate) mod bandwidth_limit;
pub(crate) mod block_device;
pub(crate) mod cores;
pub(crate) mod file_part;
pub(crate) mod files_in_doubt;
pub(crate) mod find_holes;
pub(crate) mod in_motion;
pub(crate) mod joined_ranges;
pub(crate) mod listed_name;
pub mod locate;
pub mod mounts;
pub(crate) mod page_cache;
pub(crate) mod process_capabilities;
pub(crate) mod random;
pub(crate) mod read_xattrs;
pub mod root;
pub mod source_id;
pub(crate) mod spill_to_file;
pub(crate) mod stat;
