//! Clones: files that share their blocks with others until one of the two is written to.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::OFlags;

use super::{file_io, staging_names::OWNERS, state_dir::StateDir};
use crate::{entry::Time, stat::changed};

/// A clone of another file, which nobody else has and which is gone when it is closed. `None` where the file system
/// does not clone.
pub(super) fn private_clone(state: &StateDir, from: BorrowedFd<'_>) -> Option<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let clone = rustix::fs::openat(state.staging(), c".", flags, OWNERS).ok()?;
    rustix::fs::ioctl_ficlone(&clone, from).is_ok().then_some(clone)
}

/// When a file was cloned, by the clock of its file system; nothing where that does not tell who writes to the file
/// after that.
///
/// A write after the cloning has a time that is not before the clone's own last change, which the cloning was. The same
/// goes for what is mapped into memory: cloning writes all of that to the disk first, and then the next write to a page
/// is told to the file system. Only a file system of this machine's own gives every write the time when it was made.
#[derive(Debug, Clone, Copy)]
pub struct ClonedAt(Option<Time>);

impl ClonedAt {
    /// When this clone was made: it was not written to since.
    pub fn of(clone: BorrowedFd<'_>) -> Self {
        Self(change_time(clone).filter(|_| file_io::is_local_and_clones(clone)))
    }

    /// Whether the file that was cloned is still the same; false where that cannot be told.
    pub fn is_still(self, file: BorrowedFd<'_>) -> bool {
        self.0.zip(change_time(file)).is_some_and(|(cloned, changed)| changed < cloned)
    }
}

fn change_time(file: BorrowedFd<'_>) -> Option<Time> {
    rustix::fs::fstat(file).ok().map(|stat| changed(&stat))
}
