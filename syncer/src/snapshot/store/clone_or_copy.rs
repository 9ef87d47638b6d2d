//! Chooses the engine of a store: whether files get into it by clones or by copies.

use std::os::fd::BorrowedFd;

use contract::SnapshotEngine;
use rustix::fs::{Mode, OFlags};

use super::snapshot_list::Engine;
use crate::destination::never_clones;

/// Chooses an engine that the file system of `dir` supports. Returns `None` if cloning is required and not supported.
pub(crate) fn choose_engine(wanted: SnapshotEngine, dir: BorrowedFd<'_>) -> Option<Engine> {
    match wanted {
        SnapshotEngine::Copy => Some(Engine::Copy),
        SnapshotEngine::Auto | SnapshotEngine::Clone if can_clone(dir) => Some(Engine::Clone),
        SnapshotEngine::Auto => Some(Engine::Copy),
        SnapshotEngine::Clone => None,
    }
}

/// Tries to clone an empty file, except on file systems that never clone.
fn can_clone(dir: BorrowedFd<'_>) -> bool {
    if never_clones(dir) {
        return false;
    }
    let temporary = || {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::openat(dir, c".", flags, Mode::RUSR | Mode::WUSR)
    };
    match (temporary(), temporary()) {
        (Ok(from), Ok(to)) => rustix::fs::ioctl_ficlone(&to, &from).is_ok(),
        _ => false,
    }
}
