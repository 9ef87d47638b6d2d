//! A source in the same process: a tree, or a snapshot.

pub(crate) mod copy;
pub(crate) mod differences;
pub(crate) mod local_source;
pub(crate) mod local_tree;
pub(crate) mod stored_source;
pub(crate) mod stored_tree;
