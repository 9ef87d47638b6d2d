//! The ends of a run, as its pipeline sees them: local, remote and stored sources, and devices.

pub(crate) mod device_sink;
pub(crate) mod local_source;
pub(crate) mod local_tree;
pub(crate) mod match_kinds;
pub(crate) mod remote_snapshot;
pub(crate) mod remote_source;
pub(crate) mod remote_tree;
pub(crate) mod source_lock;
pub(crate) mod stored_source;
pub(crate) mod stored_tree;
pub(crate) mod tree_head;
