//! A mounted volume → a snapshot of it.

use std::{os::fd::AsFd as _, time::SystemTime};

use contract::Preserve;
use rustix::fs::{Stat, Timespec, Timestamps, UTIME_OMIT};

use super::{
    error::{SnapshotError, io_error},
    keep::EngineChoice,
    publish::{Labels, Source, publish, time_of},
    roots::Snapshot,
    store::Writer,
};
use crate::{
    apply::{Candidate, Destination, Settings, visible_attrs},
    attrs::Classes,
    entry::Time,
    monitor::Monitor,
    report::Failures,
    root::{Place, Root, RootError},
    scan::{ScanOptions, scan},
};

/// Times of one file system that are this close may be the same tick of its clock.
const TICK_NANOS: u32 = 100_000_000;

/// Takes the volume at `place` for changes to its snapshots.
///
/// # Errors
/// When it is not there, or another run holds it.
pub fn take(place: &Place) -> Result<Destination, SnapshotError> {
    let candidate = Candidate::look(place)?.ok_or_else(|| RootError::Missing(place.path()))?;
    let is_first = candidate.volume()?.is_none();
    let before = rustix::fs::fstat(candidate.root().as_fd());
    let destination = candidate.take(Settings::resolve(&Preserve::default())?, None)?;
    if let (true, Ok(before)) = (is_first, before) {
        let reset = reset_mtime(destination.root(), &before);
        reset.map_err(|error| io_error("set the time of", place.path())(error.into()))?;
    }
    Ok(destination)
}

/// Gives the root of a volume the time back that it had before `.volferry` was made in it.
fn reset_mtime(root: &Root, before: &Stat) -> rustix::io::Result<()> {
    let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let last_modification = Timespec { tv_sec: before.st_mtime, tv_nsec: before.st_mtime_nsec as _ };
    rustix::fs::futimens(root.as_fd(), &Timestamps { last_access, last_modification })
}

/// Takes a snapshot of the volume at `place`. Entries that cannot be read go to `failures`.
///
/// # Errors
/// When the volume cannot be scanned or written to; its snapshots are then as they were.
pub fn create(
    place: &Place,
    labels: Labels,
    engine: EngineChoice,
    failures: &Failures,
) -> Result<Snapshot, SnapshotError> {
    let destination = take(place)?;
    let path = place.path();
    let mut writer = Writer::open(destination.own(), destination.root(), &path)?;
    let began = time_of(SystemTime::now());
    let before = tick_before(writer.now()?);
    let options = ScanOptions {
        hard_links: true,
        attrs: Classes::ALL.and(visible_attrs()),
        stamps: Some(before),
        ..ScanOptions::default()
    };
    let tree =
        scan(destination.root(), &options, failures, &Monitor::default()).map_err(io_error("scan", &path))?;
    let source = Source { tree: &tree, root: destination.root(), before, began };
    let snapshot = publish(&mut writer, &source, labels, engine, failures)?;
    drop(writer);
    destination.close();
    Ok(snapshot)
}

/// A moment so long before `now` that a file changed then has another time than one changed now.
fn tick_before(now: Time) -> Time {
    match now.nanos.checked_sub(TICK_NANOS) {
        Some(nanos) => Time { nanos, ..now },
        None => Time { seconds: now.seconds - 1, nanos: now.nanos + 1_000_000_000 - TICK_NANOS },
    }
}
