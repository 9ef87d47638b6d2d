//! The end that answers: serves the listings of its tree, reads and sends files.

pub(crate) mod file_version;
pub(crate) mod find_destination;
pub(crate) mod hash_files;
pub(crate) mod pack_small_files;
pub(crate) mod paths_by_number;
pub(crate) mod read_again;
pub(crate) mod remove_source_files;
pub(crate) mod sample_files;
pub(crate) mod send_chunked_file;
pub(crate) mod send_frames;
pub(crate) mod send_large_file;
pub(crate) mod send_workers;
pub(crate) mod settled_times;
pub(crate) mod slow_link;
pub(crate) mod source_file;
