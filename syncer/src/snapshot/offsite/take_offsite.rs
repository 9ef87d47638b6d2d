//! Takes a snapshot of a scanned tree into a store elsewhere.
//!
//! 1. [`plan_offsite`] compares the tree with the last snapshot of the job there.
//! 2. [`OffsiteReader`] reads all that may differ into the store.
//! 3. New directories follow, from the leaves to the root.
//! 4. The store makes the snapshot visible.

use std::{io, os::fd::AsFd as _};

use contract::{Phase, Reason, Work};

use super::{
    compare_with_base::plan_offsite,
    offsite_store::{ChangeRoots, OffsiteStore},
    read_for_offsite::{NotRead, OffsiteReader},
};
use crate::{
    entry::Kind,
    listing::EntryIndex,
    monitor::Monitor,
    report::Failures,
    snapshot::{
        create::{
            LiveFile, MadeSnapshot, Making, PlannedFolders, ScannedTree, Slot, WantedFile, assemble,
            digest_of, path_of, record, seen_of,
        },
        store::{
            ContentRef, Engine, FolderRef, Labels, ObjectRef, Purpose, Snapshot, SnapshotError, SnapshotId,
            io_error,
        },
    },
    tree::{dir::ROOT, stamps::IN_MOTION},
};

/// A snapshot begins again after so many prunes by others that removed what it needs.
const MAX_BEGINNINGS: usize = 8;

/// In place of the stamp of a file that was quiet when it was read. A stamp itself means nothing to another volume.
const QUIET: u64 = 1;

/// The place of a directory that is found by its id.
const NO_PLACE: ObjectRef = ObjectRef { pack: 0, offset: 0, len: 0 };

/// What is asked for.
pub(crate) struct OffsiteWork<'a> {
    pub source: &'a ScannedTree<'a>,
    pub labels: Labels,
    /// Whether all files are read, whatever the last snapshot says of them.
    pub reads_all: bool,
    pub failures: &'a Failures,
    pub monitor: &'a Monitor,
}

/// Takes a snapshot. Counts what was read in `work`, and tells each phase that begins. Unreadable files go to the
/// failures, and their directories are marked incomplete.
///
/// # Errors
/// If the store cannot be read or written to, or the run is told to stop.
pub(crate) fn take_offsite(
    of: &OffsiteWork<'_>,
    store: &mut dyn OffsiteStore,
    change: &mut ChangeRoots<'_>,
    enter: &mut dyn FnMut(Phase),
    work: &mut Work,
) -> Result<Snapshot, SnapshotError> {
    of.labels.check()?;
    let id = SnapshotId::random().map_err(io_error("make an id for", "the snapshot"))?;
    let (before, nothing, failures) = (store.written(), *work, of.failures.so_far());
    for _ in 0..MAX_BEGINNINGS {
        *work = nothing;
        of.failures.go_back_to(&failures);
        enter(Phase::Plan);
        let base = base_of(store, &of.labels.job).cloned();
        let mut planned = plan_offsite(of.source.tree, base.as_ref(), of.reads_all, store)?;
        enter(Phase::Transfer);
        read_contents(of, &mut planned, store, work)?;
        let bytes = of.source.tree.totals.bytes.saturating_add_signed(planned.grown);
        let tree = add_folders(of.source, planned, store)?;
        store.finish()?;
        enter(Phase::Commit);
        let made = MadeSnapshot { tree, bytes, added_bytes: store.written() - before, is_new: true };
        let snapshot = record(id, of.source, of.labels.clone(), Engine::Copy, &made, of.failures);
        if store.publish(&snapshot, change)? {
            return Ok(snapshot);
        }
    }
    let message =
        "others keep removing snapshots there, so that this one cannot be finished: run again".into();
    let reason = Reason::ObjectStoreLost;
    Err(SnapshotError::Offsite { exit: reason.exit(), reason, message })
}

/// Returns the newest snapshot that runs of this job took: files are compared with it.
fn base_of<'s>(store: &'s dyn OffsiteStore, job: &str) -> Option<&'s Snapshot> {
    let is_own = |it: &&Snapshot| it.job == job && it.purpose == Purpose::AfterRun;
    store.roots().snapshots.iter().filter(is_own).max_by_key(|it| it.taken)
}

/// Reads the files that may differ.
fn read_contents(
    of: &OffsiteWork<'_>,
    planned: &mut PlannedFolders,
    store: &mut dyn OffsiteStore,
    work: &mut Work,
) -> Result<(), SnapshotError> {
    expect(of, planned);
    let device = of.source.root.device().map_err(io_error("look at", "the source"))?;
    let mut reader = OffsiteReader::new(of.source.before, device, of.monitor);
    for making in &mut planned.making {
        let mut index = EntryIndex::of(&of.source.tree.dirs[making.dir as usize].listing);
        let mut opened = None;
        for at in 0..making.slots.len() {
            let Slot::Wanted(WantedFile { index: nth, old, .. }) = making.slots[at] else { continue };
            let Some(entry) = index.from(nth).next() else { continue };
            let dir = opened.get_or_insert_with(|| of.source.root.dir(&making.path));
            let read = match dir {
                Ok(dir) => reader.read(store, dir.as_fd(), entry.name),
                Err(error) => Err(NotRead::File(error.kind().into())),
            };
            making.slots[at] = match read {
                Ok(live) => {
                    if let Kind::File { size } = entry.kind {
                        planned.grown += live.len as i64 - size as i64;
                    }
                    if live.kept_changing {
                        of.failures.add_in_motion(&path_of(making, &entry));
                    }
                    count(of.monitor, work, &live, old);
                    Slot::Read(Box::new(live))
                }
                Err(NotRead::File(error)) if error.kind() == io::ErrorKind::NotFound => Slot::Gone,
                Err(NotRead::File(error)) => {
                    of.failures.add(&path_of(making, &entry), "read", &error);
                    Slot::Failed
                }
                Err(NotRead::Store(error)) => return Err(error),
            };
        }
    }
    Ok(())
}

/// Tells the monitor how much there is to read.
fn expect(of: &OffsiteWork<'_>, planned: &PlannedFolders) {
    let (mut files, mut bytes) = (0, 0);
    for making in &planned.making {
        let listed = &of.source.tree.dirs[making.dir as usize].listing;
        let entries = listed.iter().filter(|entry| entry.kind.has_content());
        for (entry, _) in entries.zip(&making.slots).filter(|(_, slot)| matches!(slot, Slot::Wanted(_))) {
            if let Kind::File { size } = entry.kind {
                (files, bytes) = (files + 1, bytes + size);
            }
        }
    }
    // What an attempt before has read counts as well.
    let done = of.monitor.snapshot();
    of.monitor.set_totals(done.files + files, done.bytes + bytes);
}

/// Counts a file that was read.
fn count(monitor: &Monitor, work: &mut Work, live: &LiveFile, old: Option<ContentRef>) {
    monitor.add_files(1);
    monitor.add_bytes(live.len);
    match old {
        Some(old) if live.content.is_some_and(|content| content.id == old.id) => return,
        Some(_) => work.files_updated += 1,
        None => work.files_created += 1,
    }
    work.bytes_changed += live.len;
}

/// Passes on the new directories, the deepest ones first, and returns the root.
fn add_folders(
    source: &ScannedTree<'_>,
    planned: PlannedFolders,
    store: &mut dyn OffsiteStore,
) -> Result<FolderRef, SnapshotError> {
    let PlannedFolders { making, mut there, .. } = planned;
    for Making { dir, slots, .. } in making.iter().rev() {
        let scanned = &source.tree.dirs[*dir as usize];
        let first = scanned.first_child as usize;
        let below = there.get(first..first + scanned.listing.dirs() as usize).unwrap_or_default();
        let children = below.iter().flatten().map(|child| FolderRef { place: NO_PLACE, ..*child }).collect();
        let mut folder = assemble(&scanned.listing, children, slots);
        for stamp in folder.stamps.iter_mut().filter(|stamp| ![0, IN_MOTION].contains(*stamp)) {
            *stamp = QUIET;
        }
        let id = store.add_folder(&folder)?;
        there[*dir as usize] =
            Some(FolderRef { id, place: NO_PLACE, digest: digest_of(&folder), seen: seen_of(&folder) });
    }
    there[ROOT as usize].ok_or_else(|| SnapshotError::Elsewhere("the tree has no root".into()))
}
