//! Snapshots in object storage: a second site of a volume's history, encrypted by a key that never goes there.
//!
//! - [`BucketStore`] is a store: its list, whose changes are its only commit points, and its indexes.
//! - `send_history` copies snapshots into it, in packs.
//! - [`OffsiteBucket`] is it as the store of a run that takes a snapshot straight into it.
//! - [`BucketHistory`] is it as the source of a copy to a volume.
//! - `prune_store` removes what no snapshot needs, and `verify_store` names what is damaged.
//!
//! Everything that is read is authenticated by the key, and no length is believed. `syncer/doc/snapshots.md` has the
//! format and the reasons.

mod blob;
mod bucket_error;
mod bucket_history;
mod bucket_store;
mod client_from_environment;
mod conditional_writes;
mod content_sender;
mod failure_hints;
pub mod internals;
mod kept_lists;
mod known_packs;
mod leftover_objects;
mod object_names;
mod object_requests;
mod offsite_bucket;
mod pack_ends;
mod pack_index;
mod pack_writer;
mod prune_store;
mod read_blobs;
mod read_list;
mod repair_store;
mod seal;
mod send_history;
mod store_list;
mod tree_walk;
mod trusted_authorities;
mod verify_store;
mod verify_turn;

pub use bucket_error::BucketError;
pub use bucket_history::BucketHistory;
pub use bucket_store::BucketStore;
pub use offsite_bucket::{OffsiteBucket, offsite};
pub use prune_store::{PrunedStore, change_list, prune_store};
pub use read_list::ReadRoots;
pub use repair_store::{StoreRepairStep, repair_store};
pub use send_history::{SentHistory, send_history};
pub use verify_store::{VerifiedStore, verify_store};
pub use verify_turn::{CheckedTurn, verify_in_turn};
