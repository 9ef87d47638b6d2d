//! Makes a snapshot of a tree.

pub(crate) mod create_snapshot;
pub(crate) mod find_listed_file;
pub(crate) mod find_unchanged;
pub(crate) mod first_copy_room;
pub(crate) mod left_out_files;
mod moved_meanwhile;
pub(crate) mod publish;
pub(crate) mod read_until_quiet;
mod small_changes;
pub(crate) mod store_contents;
pub(crate) mod store_live_file;
pub(crate) mod write_folders;
pub(crate) mod written_by_run;

pub(crate) use create_snapshot::{WantedSnapshot, before_tick, create_in, is_like_own_scan, options_of};
pub use create_snapshot::{create_snapshot, lock_or_make_volume, lock_volume};
pub(crate) use find_listed_file::{EarlierReads, ListedFiles, LocatedFile};
pub(crate) use find_unchanged::{
    ComparedDir, Making, PlannedFolders, Slot, WantedFile, plan_all_below, slots_of, subdirectories,
};
pub(crate) use first_copy_room::copy_of;
pub use first_copy_room::{FirstCopy, first_copy};
pub(crate) use moved_meanwhile::{SettledTree, read_until_settled};
pub(crate) use publish::{MadeSnapshot, record};
pub(crate) use read_until_quiet::{Attempt, KeptRead, OpenedFile, ReadLive, ScanTerms, read_until_quiet};
pub(crate) use store_contents::{ScannedTree, path_of, store_contents};
pub(crate) use store_live_file::{FileStorer, LiveFile};
pub(crate) use write_folders::{assemble, digest_of, seen_of, write_folder, write_planned};
pub(crate) use written_by_run::{KnownFromRun, WrittenFiles};
