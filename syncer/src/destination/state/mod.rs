//! What runs keep in `.volferry/` on a destination: the lock, the id, marks, notes and shards.

pub(super) mod adopted;
pub(super) mod dirty_mark;
pub(super) mod leftovers;
pub(super) mod lock_still_held;
pub(super) mod made_beside;
pub(super) mod made_mark;
pub(super) mod motion_notes;
pub(super) mod own_file;
pub(super) mod private_dir;
pub(super) mod shard_board;
pub(super) mod staging_names;
pub(super) mod state_dir;
pub(super) mod state_names;
pub(super) mod unsettled;
pub(super) mod volume_id;
