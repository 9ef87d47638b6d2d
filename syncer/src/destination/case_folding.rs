//! Refuses names that a file system that folds case takes for those of other entries.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::{Mutex, MutexGuard};
use rustix::{fs::AtFlags, io::Errno};

use crate::sys::listed_name::{Holder, holder};

/// What is known of names that differ only in case.
#[derive(Debug, Default)]
pub(crate) struct CaseFolding {
    pub(super) folds: AtomicBool,
    /// Held while an entry gets its name, so that no other gets it in between.
    turn: Mutex<()>,
}

impl CaseFolding {
    /// Checks, before an entry that was planned as a new one gets its name, that it would not replace one whose name
    /// differs in case. Where case is folded, the caller holds what is returned until the entry has its name.
    ///
    /// # Errors
    /// That it would; or that the folder cannot be listed.
    pub(super) fn turn(&self, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<MutexGuard<'_, ()>>> {
        if !self.folds() {
            return Ok(None);
        }
        let turn = self.turn.lock();
        match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(Some(turn)),
            Ok(_) if holder(dir, name)? == Holder::Other => Err(has_other_case()),
            // Somebody made it since the plan was made, or the kernel's cache is older than a delete.
            Ok(_) => Ok(Some(turn)),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks, where case is folded, that a folder that was planned as a new one is not another one whose name differs
    /// in case: the `parent` has to list it by exactly this name.
    pub(super) fn check_new(&self, parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        if holder(parent, name)? == Holder::Itself { Ok(()) } else { Err(has_other_case()) }
    }

    /// Returns whether case is folded.
    pub(super) fn folds(&self) -> bool {
        self.folds.load(Relaxed)
    }

    /// Says why a new entry could not be made, where the reason is that another has its name in another case.
    pub(super) fn explain(&self, error: io::Error) -> io::Error {
        let is_taken = error.kind() == io::ErrorKind::AlreadyExists && self.folds();
        if is_taken { has_other_case() } else { error }
    }
}

fn has_other_case() -> io::Error {
    io::Error::other(
        "the destination has an entry whose name differs only in case, which is the same name there: rename one of the \
         two; or remove the one at the destination, as a run with --delete=before does if the source has only this one",
    )
}
