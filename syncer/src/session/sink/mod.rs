//! The sink of a run: opens the destination, plans, and carries the plan out.

pub(crate) mod context;
pub(crate) mod copied_history;
pub(crate) mod dry_run;
pub(crate) mod executor;
pub(crate) mod open;
pub(crate) mod owner_change;
pub(crate) mod read_back;
pub(crate) mod receive;
pub(crate) mod remote_snapshot;
pub(crate) mod remote_source;
pub(crate) mod remote_tree;
pub(crate) mod settle_motion;
pub(crate) mod shards;
pub(crate) mod tell;
pub(crate) mod traits;
pub(crate) mod tree_sink;
pub(crate) mod writing;
