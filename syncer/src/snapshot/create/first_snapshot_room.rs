//! The room that the first snapshot of a volume takes where files cannot be cloned.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
    path::Path,
};

use contract::SnapshotEngine;

use super::{
    choose_engine::choose_engine,
    create::excluding,
    roots::Engine,
    snapshot_error::{SnapshotError, io_error},
    store::Store,
};
use crate::{
    monitor::Monitor,
    report::Failures,
    root::{Root, TreeLocation},
    scan::{ScanOptions, scan},
};

/// What the first snapshot copies, and the room for it.
#[derive(Debug, Clone, Copy)]
pub struct FirstCopy {
    /// Bytes of all files, without their holes. Equal files are stored once, so it may be less.
    pub bytes: u64,
    /// Free bytes that this user may take.
    pub free: u64,
}

/// Returns the free bytes of a file system that this user may take.
///
/// # Errors
/// If the system refuses.
pub(super) fn free_bytes(dir: BorrowedFd<'_>) -> io::Result<u64> {
    let stat = rustix::fs::fstatvfs(dir)?;
    let blocks = if rustix::process::geteuid().is_root() { stat.f_bfree } else { stat.f_bavail };
    Ok(blocks.saturating_mul(stat.f_frsize))
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
///
/// # Errors
/// If the store cannot be read.
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
    (engine, exclude): (SnapshotEngine, &[String]),
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
    match bytes > free && engine != SnapshotEngine::Copy {
        true => Err(SnapshotError::NoRoomForFirst { path, bytes, free }),
        false => Ok(Some(FirstCopy { bytes, free })),
    }
}
