//! The ends of a run: how both are opened, and how the pipeline sees local, remote and stored sources.

pub(crate) mod damaged_content;
pub(crate) mod end_kinds;
pub(crate) mod local_source;
pub(crate) mod local_tree;
pub(crate) mod opening;
pub(crate) mod overlap;
pub(crate) mod remote_snapshot;
pub(crate) mod remote_source;
pub(crate) mod remote_tree;
pub(crate) mod source_lock;
pub(crate) mod stored_source;
pub(crate) mod stored_tree;
pub(crate) mod tree_head;
pub(crate) mod trust_in_store;
