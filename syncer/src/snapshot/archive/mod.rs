//! Tar archives: a snapshot as one, and one as a snapshot.

pub(crate) mod acl_text;
pub(crate) mod export_tar;
pub(crate) mod import_tar;
pub(crate) mod imported_tree;
pub(crate) mod tar_header;
pub(crate) mod tar_holes;
pub(crate) mod tar_numbers;
pub(crate) mod tar_records;
pub(crate) mod walk_tar;

pub use export_tar::export_tar;
pub use import_tar::import_tar;
pub use walk_tar::walk_tar;
