//! Files of either end: opened and read, hashed, sampled.

pub(crate) mod data_map;
pub(crate) mod hash_files;
pub(crate) mod sample;
pub(crate) mod source_file;
pub(crate) mod tree_paths;
