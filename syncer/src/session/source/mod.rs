//! The end that answers: serves the listings of its tree, reads and sends files.

pub(crate) mod chunked_file;
pub(crate) mod feed;
pub(crate) mod frames;
pub(crate) mod large_file;
pub(crate) mod release;
pub(crate) mod serve;
pub(crate) mod serve_snapshot;
pub(crate) mod small_files;
pub(crate) mod source_lock;
pub(crate) mod tree_head;
