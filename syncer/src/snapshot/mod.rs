//! Snapshots of a volume, in `.volferry/snapshots/` on the volume itself.
//!
//! - A [`Snapshot`] is a record in the list [`Roots`]; its directories ([`folder`]) and small contents lie in packs,
//!   larger contents in files of their own.
//! - [`publish`](publish::publish) makes one from a scanned tree: [`plan_folders`] finds what is unchanged,
//!   [`take_files`] reads the rest, [`write_folders`] writes the directories. [`create`](create::create) scans a
//!   mounted volume for it.
//! - [`after_run::take`] takes one at the end of a run, and drops what the job's rules do not keep.
//! - [`copy_history`] copies snapshots from another store, a [`HistorySource`](history_source::HistorySource).
//! - [`Store`] reads, [`Writer`](store_writer::Writer) changes; one rename publishes each change.
//!
//! `syncer/doc/snapshots.md` has the format, and the reasons.

mod acl_text;
pub mod after_run;
mod arriving_content;
pub mod audit;
pub mod before;
mod bring_tree;
pub mod browse;
mod choose_engine;
pub mod collect;
pub mod content;
pub mod content_basis;
pub mod copy_history;
pub mod create;
pub mod damage;
pub mod export_tar;
pub mod find_paths;
pub mod first_copy;
pub mod folder;
mod folder_builder;
pub mod folder_changes;
#[cfg(test)]
mod golden;
pub mod heal;
mod history_frames;
pub mod history_source;
pub mod history_stream;
#[cfg(test)]
mod hostile_history;
mod id;
pub mod import_tar;
mod imported_tree;
mod keep;
pub(crate) mod kept_history;
pub mod known_damage;
pub mod labels;
pub mod live_status;
pub mod moment;
mod name_damage;
pub mod open_history;
mod pack;
mod plan_folders;
mod publish;
mod purpose;
mod record;
pub mod repair;
mod repoint;
mod reserve;
pub mod retain;
mod retention;
pub mod roots;
mod roots_file;
pub mod scrub;
pub mod select;
pub mod serve_history;
mod snapshot_error;
pub mod store;
mod store_files;
pub mod store_stats;
pub mod store_writer;
mod take_files;
mod tar_header;
mod tar_holes;
mod tar_records;
mod tar_text;
pub mod tar_walk;
mod text;
mod trash;
mod tree_counts;
pub mod turn;
pub mod verify;
mod verify_after_run;
mod walk;
mod write_folders;
mod written;

pub use id::{NotAnId, SnapshotId};
pub use purpose::Purpose;
pub use roots::{Engine, ListState, Roots, Snapshot};
pub use snapshot_error::SnapshotError;
pub use store::Store;
pub(crate) use written::{KnownFromRun, WrittenFiles};

pub use crate::tree::stamps::Stamps;
