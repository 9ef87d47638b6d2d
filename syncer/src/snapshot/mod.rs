//! Snapshots of a volume, in `.volferry/snapshots/` on the volume itself.
//!
//! - A [`Snapshot`] is a record in the list [`Roots`]; its directories ([`folder`]) and small contents lie in packs,
//!   larger contents in files of their own.
//! - [`publish`](publish::publish) makes one from a scanned tree: [`plan_folders`] finds what is unchanged,
//!   [`take_files`] reads the rest, [`write_folders`] writes the directories. [`create`](create::create) scans a
//!   mounted volume for it.
//! - [`after_run::take`] takes one at the end of a run, and drops what the job's rules do not keep.
//! - [`Store`] reads, [`Writer`](store_writer::Writer) changes; one rename publishes each change.
//!
//! `syncer/doc/snapshots.md` has the format, and the reasons.

pub mod after_run;
pub mod audit;
pub mod before;
pub mod browse;
mod choose_engine;
pub mod collect;
pub mod content;
pub mod create;
pub mod folder;
mod folder_builder;
pub mod folder_changes;
#[cfg(test)]
mod golden;
mod id;
mod keep;
pub mod known_damage;
pub mod labels;
pub mod moment;
mod pack;
mod plan_folders;
mod publish;
pub mod retain;
mod retention;
pub mod roots;
pub mod scrub;
pub mod select;
mod snapshot_error;
pub mod store;
mod store_files;
pub mod store_writer;
mod take_files;
mod text;
mod trash;
pub mod turn;
pub mod verify;
mod verify_after_run;
mod walk;
mod write_folders;
mod written;

pub use id::{NotAnId, SnapshotId};
pub use roots::{Engine, Roots, Snapshot};
pub use snapshot_error::SnapshotError;
pub use store::Store;
pub(crate) use written::{KnownFromRun, WrittenFiles};

pub use crate::tree::stamps::Stamps;
