//! The room that the first snapshot of a volume takes where files cannot be cloned.

use std::{os::fd::AsFd as _, path::Path};

use contract::SnapshotEngine;

use super::create_snapshot::excluding;
use crate::{
    failures::Failures,
    monitor::Monitor,
    root::{Root, TreeLocation},
    scan::{ScanOptions, scan},
    snapshot::store::{Engine, SnapshotError, Store, choose_engine, free_bytes, io_error},
};

/// What the first snapshot copies, and the room for it.
#[derive(Debug, Clone, Copy)]
pub struct FirstCopy {
    /// Bytes of all files, without their holes. Equal files are stored once, so it may be less.
    pub bytes: u64,
    /// Free bytes that this user may take.
    pub free: u64,
}

/// Returns whether the volume at `path` has no snapshots, and its first one would copy its files.
fn copies(root: &Root, path: &Path, engine: SnapshotEngine) -> Result<bool, SnapshotError> {
    let has_any = match Store::open(root, path)? {
        Some(store) => store.roots()?.last().is_some(),
        None => false,
    };
    Ok(!has_any && choose_engine(engine, root.as_fd()) == Some(Engine::Copy))
}

/// Returns the room for the first snapshot of the volume at `path`, which has about `bytes`; `None` if it has snapshots
/// already, or files are cloned.
pub(crate) fn copy_of(
    root: &Root,
    path: &Path,
    engine: SnapshotEngine,
    bytes: u64,
) -> Result<Option<FirstCopy>, SnapshotError> {
    if !copies(root, path, engine)? {
        return Ok(None);
    }
    let free = free_bytes(root.as_fd()).map_err(io_error("look at", path))?;
    Ok(Some(FirstCopy { bytes, free }))
}

/// Looks at the volume at `place` and returns what its first snapshot would copy; `None` if it has snapshots already,
/// or files are cloned. Scans the whole tree.
///
/// # Errors
/// If the volume cannot be read; if the copy does not fit, unless `engine` asks for copies.
pub fn first_copy(
    place: &TreeLocation,
    engine: SnapshotEngine,
    exclude: &[String],
) -> Result<Option<FirstCopy>, SnapshotError> {
    let (root, path) = (Root::enter(place)?, place.path());
    if !copies(&root, &path, engine)? {
        return Ok(None);
    }
    let options = ScanOptions { hard_links: true, filter: excluding(exclude)?, ..ScanOptions::default() };
    let totals = scan(&root, &options, &Failures::default(), &Monitor::default())
        .map_err(io_error("scan", &path))?
        .totals;
    let free = free_bytes(root.as_fd()).map_err(io_error("look at", &path))?;
    let bytes = totals.bytes.saturating_sub(totals.sparse);
    if bytes > free && engine != SnapshotEngine::Copy {
        Err(SnapshotError::NoRoomForFirst { path, bytes, free })
    } else {
        Ok(Some(FirstCopy { bytes, free }))
    }
}
