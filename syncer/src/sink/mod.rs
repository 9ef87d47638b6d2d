//! The sink of a run: opens the destination, plans, and carries the plan out.

pub(crate) mod await_shards;
pub(crate) mod backup_place;
pub(crate) mod compare_run;
pub(crate) mod copied_history;
pub(crate) mod deal_to_shards;
pub(crate) mod dry_run;
pub(crate) mod entries_to_release;
pub(crate) mod executor;
pub(crate) mod folder_owner_change;
pub(crate) mod open_destination;
pub(crate) mod report_actions;
pub(crate) mod settle_motion;
pub(crate) mod source_end;
pub(crate) mod tree_changes;
pub(crate) mod tree_sink;
pub(crate) mod verify_copy;
pub(crate) mod writing;
