//! Snapshots of a volume, in `.volferry/snapshots/` on the volume itself.
//!
//! - [`store`]: what is on the volume. The list ([`Roots`]) has a record of each [`Snapshot`]; directories
//!   ([`Folder`](store::Folder)) and small contents lie in packs, larger contents in files of their own. [`Store`]
//!   reads, [`Writer`](store::Writer) changes; one rename publishes each change.
//! - [`create`]: how a scanned tree becomes a snapshot: what is unchanged, what is read, which directories are written.
//! - [`around_runs`]: what a run does with snapshots, before it, with it and after it.
//! - [`retention`]: which snapshots are kept, and what is removed with the others.
//! - [`check`]: finds damage, names what needs it, heals it, and repairs a lost list.
//! - [`browse`]: finds and compares snapshots and paths in them.
//! - [`copy`]: history that travels to another store, here or at the other end of a stream.
//! - [`offsite`]: a snapshot that is taken straight into a store elsewhere.
//! - [`archive`]: tar archives.
//!
//! `syncer/doc/snapshots.md` has the format, and the reasons.

pub mod archive;
pub mod around_runs;
pub mod browse;
pub mod check;
pub mod copy;
pub mod create;
#[cfg(test)]
mod golden_bytes;
pub mod offsite;
pub mod retention;
pub mod store;
pub mod typed_time;

pub use store::{Engine, ListState, NotAnId, Purpose, Roots, Snapshot, SnapshotError, SnapshotId, Store};

pub use crate::tree::stamps::Stamps;
