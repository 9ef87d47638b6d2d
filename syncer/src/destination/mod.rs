//! Makes every change of a destination: staging, metadata, links, deletes, durability. No other module changes one.
//!
//! All changes are made by descriptors beneath the [root](crate::sys::root::Root); a peer can only name one entry of
//! one directory. A file's content becomes visible in one link or rename, after it was checked.

mod backup_dir;
mod candidate;
mod case_folding;
mod copy_bytes;
mod destination_error;
mod device;
mod first_error;
mod folders;
mod in_place;
mod make_durable;
mod metadata;
mod publish_files;
mod refuse_own_names;
mod remove_old_versions;
mod special_entries;
mod staging;
mod state;
mod writable_tree;

pub(crate) use backup_dir::BackupDir;
pub(crate) use candidate::Candidate;
pub(crate) use copy_bytes::{SMALL_BYTES, never_clones, read_exact_at, write_all};
pub(crate) use destination_error::ApplyError;
pub(crate) use device::device_hash::DeviceHash;
pub(crate) use device::device_writer::Device;
pub use in_place::journal_entry::JournalEntry;
pub(crate) use metadata::set_xattrs::{is_too_large, visible_attrs};
pub(crate) use metadata::settings::Settings;
pub(crate) use remove_old_versions::EntryAt;
pub(crate) use remove_old_versions::let_go;
pub(crate) use staging::arrival_log::{ArrivalLog, Arrived, ArrivedBlocks};
pub use staging::reflink::ClonedAt;
pub(crate) use staging::staged_dir::StagedDir;
pub(crate) use staging::staged_file::{Staged, link_held};
pub(crate) use staging::when_in_place::is_long_enough;
pub(crate) use state::adopted::is_adopted;
pub(crate) use state::dirty_mark::{Scope, settles_doubt};
pub(crate) use state::leftovers::Leftover;
pub(crate) use state::lock_still_held::{Stamp, stamp_in};
pub(crate) use state::own_file::{create_own, open_own, open_own_with_stat};
pub(crate) use state::shard_board::{OtherShards, ShardBoard, ShardState, Stage};
pub use state::state_dir::VolumeLock;
pub(crate) use state::state_dir::{RunShard, StateDir};
pub use state::state_names::remove_folder;
pub(crate) use state::unsettled::{doubt_in, is_half_written};

pub(crate) use metadata::set_metadata::KEPT;
pub(crate) use state::volume_id::of as volume_of;

pub(crate) use writable_tree::Destination;
pub(crate) use writable_tree::open_dir_in;
