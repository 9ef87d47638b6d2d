//! Chooses the engine of a store, and which contents it packs.

use std::os::fd::BorrowedFd;

use contract::SnapshotEngine;
use rustix::fs::{Mode, OFlags};

use super::snapshot_list::Engine;
use crate::destination::never_clones;

/// Contents up to this length in bytes are packed if files are cloned: a clone takes an inode, which is about as large.
const PACKED_BESIDE_CLONES: u64 = 1 << 10;

/// Contents up to this length in bytes are packed if files are copied.
const PACKED_BESIDE_COPIES: u64 = 64 << 10;

impl Engine {
    /// Returns whether content of `len` bytes goes into a pack. Empty content goes nowhere.
    pub(crate) fn packs(self, len: u64) -> bool {
        let most = match self {
            Engine::Clone => PACKED_BESIDE_CLONES,
            Engine::Copy => PACKED_BESIDE_COPIES,
        };
        (1..=most).contains(&len)
    }
}

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
