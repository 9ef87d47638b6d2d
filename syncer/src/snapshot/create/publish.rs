//! Turns a scanned tree into a snapshot in the store.
//!
//! 1. [`plan`] finds what is unchanged since the last snapshot: whole directories by their digests, files by their
//!    stamps.
//! 2. [`store_contents`] takes the content of all other files into the store.
//! 3. [`read_until_settled`] does both again if files were moved meanwhile.
//! 4. [`write_folders`] writes new directories, from the leaves to the root.
//! 5. The [`Writer`] makes everything durable, and then the snapshot visible.

use std::{sync::OnceLock, time::SystemTime};

use super::{
    find_unchanged::{PlannedSums, plan},
    moved_meanwhile::{SettledTree, read_until_settled},
    store_contents::{ScannedTree, store_contents},
    store_live_file::FileStorer,
    write_folders::write_folders,
    written_by_run::WrittenFiles,
};
use crate::{
    entry::FullMeta,
    failures::Failures,
    monitor::Monitor,
    snapshot::{
        store::{
            AuditLine, Engine, FolderRef, KnownDamage, Labels, Packing, Snapshot, SnapshotError, SnapshotId,
            Writer, choose_engine, io_error,
        },
        typed_time::time_of,
    },
};
use contract::SnapshotEngine;

/// Publishes a snapshot of a tree. Unreadable files go to `failures`, are counted, and are left out; their directories
/// are marked incomplete, so that a restore deletes nothing in them.
///
/// # Errors
/// If the store cannot be written to, or the run is told to stop; it is then unchanged.
pub(crate) fn publish(
    writer: &mut Writer<'_>,
    source: &ScannedTree<'_>,
    labels: Labels,
    engine: SnapshotEngine,
    failures: &Failures,
    monitor: &Monitor,
) -> Result<Snapshot, SnapshotError> {
    let engine = choose_engine(engine, writer.store.dir())
        .ok_or_else(|| SnapshotError::CannotClone(writer.store.path().into()))?;
    let id = SnapshotId::random().map_err(io_error("make an id for", writer.store.path()))?;
    let written = source.written;
    let packing = Packing::new(writer, id, written.and_then(WrittenFiles::take_pack));
    let terms = source.terms().map_err(io_error("look at", writer.store.path()))?;
    let mut storer =
        FileStorer { packing: &packing, engine, terms, written, monitor, broken: OnceLock::new() };
    let made = make(writer, source, &mut storer, failures).inspect_err(|_| writer.drop_new(id))?;
    let snapshot = record(id, source, labels, engine, &made, failures);
    let closed = packing.close(&snapshot.record());
    drop(packing);
    closed.map_err(|error| {
        writer.drop_new(id);
        io_error("write to", writer.store.path())(error)
    })?;
    let mut roots = writer.roots.clone();
    roots.snapshots.push(snapshot.clone());
    let by =
        [&snapshot.run, &snapshot.user].into_iter().find(|by| !by.is_empty()).cloned().unwrap_or_default();
    if made.is_new {
        writer.publish_new(roots, AuditLine { action: "create", by: &by, note: "" }, id)?;
    } else {
        writer.commit_by(roots, "create", &by, &[id])?;
    }
    Ok(snapshot)
}

/// The result of a publication before it is visible.
pub(crate) struct MadeSnapshot {
    pub tree: FolderRef,
    /// The root directory's own metadata and attributes.
    pub root_meta: FullMeta,
    pub sums: PlannedSums,
    pub added_bytes: u64,
    pub is_new: bool,
}

fn make(
    writer: &Writer<'_>,
    source: &ScannedTree<'_>,
    storer: &mut FileStorer<'_>,
    failures: &Failures,
) -> Result<MadeSnapshot, SnapshotError> {
    let store = &writer.store;
    let damage = KnownDamage::read(store)?;
    let mut added = 0;
    let SettledTree { again, planned } =
        read_until_settled(source, failures, storer.monitor, &mut |source, earlier| {
            let last = writer.last().map(|last| &last.tree);
            let mut planned = plan(source.tree, store, last, &damage, &earlier.written_anew);
            added += store_contents(&mut planned, source, earlier, storer, failures);
            match storer.broken.take() {
                Some(error) => Err(io_error("write to", store.path())(error)),
                None => Ok(planned),
            }
        })?;
    let source = source.seen_again(again.as_ref());
    let sums = planned.sums(&source.tree.totals);
    let writing = || io_error("write to", store.path());
    let tree = write_folders(planned, source.tree, store, storer.packing).map_err(writing())?;
    let packed = storer.packing.finish().map_err(writing())?;
    let is_new = storer.packing.is_used();
    Ok(MadeSnapshot { tree, root_meta: source.root_meta, sums, added_bytes: added + packed, is_new })
}

/// Returns the record of a snapshot that was made.
pub(crate) fn record(
    id: SnapshotId,
    source: &ScannedTree<'_>,
    labels: Labels,
    engine: Engine,
    made: &MadeSnapshot,
    failures: &Failures,
) -> Snapshot {
    let Labels { tags, note, purpose, run, job, user, pinned } = labels;
    Snapshot {
        id,
        tree: made.tree,
        root_meta: made.root_meta.meta,
        root_attrs: made.root_meta.attrs.clone(),
        began: source.began,
        taken: time_of(SystemTime::now()),
        entries: made.sums.entries,
        bytes: made.sums.bytes,
        added_bytes: made.added_bytes,
        failed: failures.count(),
        engine,
        purpose,
        run,
        job,
        user,
        note,
        tags,
        pinned,
        forgotten: None,
        is_exposed: false,
        origin: None,
    }
}
