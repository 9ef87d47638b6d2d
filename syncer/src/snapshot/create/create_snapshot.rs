//! Takes a snapshot of a mounted volume.

use std::{os::fd::AsFd as _, time::SystemTime};

use contract::{Preserve, SnapshotEngine, chain};
use rustix::fs::{Stat, Timespec, Timestamps, UTIME_OMIT};

use super::{
    moved_meanwhile::MAX_LOOKS, publish::publish, store_contents::ScannedTree, written_by_run::KnownFromRun,
};
use crate::{
    destination::{Candidate, Destination, Settings, visible_attrs},
    entry::{FullMeta, Time},
    failures::Failures,
    filter::Filter,
    kept_xattrs::Classes,
    monitor::Monitor,
    root::{Root, RootError, TreeLocation},
    scan::{KnownTree, ScanOptions, WrittenEntries, scan_changes, scan_root},
    snapshot::{
        store::{Labels, Snapshot, SnapshotError, Writer, io_error},
        typed_time::time_of,
    },
    tree::Tree,
};

/// Two times of one file system that differ by at most this many nanoseconds may be of the same tick of its clock.
const TICK_NANOS: u32 = 100_000_000;

/// Opens and locks the volume at `place` for changes of its snapshots.
///
/// # Errors
/// If it does not exist, or another run holds it.
pub fn lock_volume(place: &TreeLocation) -> Result<Destination, SnapshotError> {
    lock(Candidate::find(place)?.ok_or_else(|| RootError::Missing(place.path()))?, place)
}

/// Opens and locks the volume at `place` as [`lock_volume`] does, and makes the last name of its path if it is missing.
///
/// # Errors
/// If it cannot be made, or another run holds it.
pub fn lock_or_make_volume(place: &TreeLocation) -> Result<Destination, SnapshotError> {
    lock(Candidate::open(place)?, place)
}

fn lock(candidate: Candidate, place: &TreeLocation) -> Result<Destination, SnapshotError> {
    let is_first = !candidate.has_state();
    let before = rustix::fs::fstat(candidate.root().as_fd());
    // The tree is not written to, so the attributes that can be set there need no probing.
    let preserve = Preserve { xattrs: false, acls: false, ..Preserve::default() };
    let destination = candidate.take(Settings::resolve(&preserve)?, None, None)?;
    if let (true, Ok(before)) = (is_first, before) {
        let reset = reset_mtime(destination.root(), &before);
        reset.map_err(|error| io_error("set the time of", place.path())(error.into()))?;
    }
    Ok(destination)
}

/// Restores the modification time that a volume's root had before `.volferry` was made in it.
fn reset_mtime(root: &Root, before: &Stat) -> rustix::io::Result<()> {
    let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let last_modification = Timespec { tv_sec: before.st_mtime, tv_nsec: before.st_mtime_nsec as _ };
    rustix::fs::futimens(root.as_fd(), &Timestamps { last_access, last_modification })
}

/// A snapshot that is to be taken.
pub(crate) struct WantedSnapshot {
    pub labels: Labels,
    pub engine: SnapshotEngine,
    /// What is left out.
    pub filter: Filter,
}

/// Takes a snapshot of the volume at `place`, without the entries that match the patterns of `exclude`. Unreadable ones
/// go to `failures`.
///
/// # Errors
/// If the volume cannot be scanned or written to; its snapshots are then unchanged.
pub fn create_snapshot(
    place: &TreeLocation,
    labels: Labels,
    engine: SnapshotEngine,
    exclude: &[String],
    failures: &Failures,
) -> Result<Snapshot, SnapshotError> {
    let wanted = WantedSnapshot { labels, engine, filter: excluding(exclude)? };
    let destination = lock_volume(place)?;
    let path = place.path();
    let mut writer = Writer::open(destination.state(), destination.root(), &path, &Monitor::default())?;
    let (root, monitor) = (destination.root(), Monitor::default());
    let snapshot = create_in(&mut writer, root, wanted, failures, KnownFromRun::default(), &monitor)?;
    drop(writer);
    destination.close();
    Ok(snapshot)
}

/// Takes a snapshot of the tree at `root`, which is on the volume of `writer`. Scans only the entries that may differ
/// from `known`. Unreadable entries go to `failures`.
///
/// # Errors
/// If the tree cannot be scanned, or the volume cannot be written to; its snapshots are then unchanged.
pub(crate) fn create_in(
    writer: &mut Writer<'_>,
    root: &Root,
    WantedSnapshot { labels, engine, filter }: WantedSnapshot,
    failures: &Failures,
    known: KnownFromRun<'_>,
    monitor: &Monitor,
) -> Result<Snapshot, SnapshotError> {
    let began = time_of(SystemTime::now());
    let before = before_tick(writer.now()?);
    let options = ScanOptions { filter, marks_excluded: true, ..options_of(before) };
    let scanning = || io_error("scan", writer.store.path());
    let scanned;
    let (tree, root_meta) = match known.scan.filter(|scan| scan.changed.is_empty()) {
        Some(scan) => (scan.tree, scan_root(root, &options).map_err(scanning())?),
        None => {
            let written = known.written.map(|written| written as &dyn WrittenEntries);
            let known = KnownTree { scan: known.scan, written };
            let (before, gone) = (failures.so_far(), failures.gone_dirs());
            let scan = || scan_changes(root, &options, known, failures, monitor).map_err(scanning());
            let mut tree = scan()?;
            // A folder that was moved meanwhile may be in neither place.
            for _ in 1..MAX_LOOKS {
                if failures.gone_dirs() == gone {
                    break;
                }
                failures.go_back_to(&before);
                tree = scan()?;
            }
            scanned = tree;
            (&scanned, FullMeta { meta: scanned.root_meta, attrs: scanned.root_attrs.clone() })
        }
    };
    let source = ScannedTree { tree, options: &options, root, root_meta, began, written: known.written };
    publish(writer, &source, labels, engine, failures, monitor)
}

/// Returns the filter that leaves out what matches these patterns.
pub(crate) fn excluding(patterns: &[String]) -> Result<Filter, SnapshotError> {
    Filter::new(&[], patterns).map_err(|error| SnapshotError::Invalid(chain(&error)))
}

/// Returns the options of a scan of all that a snapshot has. Files that were changed since `before` get no stamp.
pub(crate) fn options_of(before: Time) -> ScanOptions {
    ScanOptions {
        hard_links: true,
        attrs: Classes::ALL.and(visible_attrs()),
        stamps: Some(before),
        ..ScanOptions::default()
    }
}

/// Returns whether the scan of a run's destination has listed the same entries as the scan of [`create_in`] would.
pub(crate) fn is_like_own_scan(tree: &Tree) -> bool {
    !tree.has_unstorable && tree.dirs.iter().all(|dir| dir.listing.is_complete())
}

/// Returns a moment before `now` by more than a tick of the clock.
pub(crate) fn before_tick(now: Time) -> Time {
    match now.nanos.checked_sub(TICK_NANOS) {
        Some(nanos) => Time { nanos, ..now },
        None => Time { seconds: now.seconds - 1, nanos: now.nanos + 1_000_000_000 - TICK_NANOS },
    }
}
