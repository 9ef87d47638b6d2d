//! Clones: files that share their blocks with another file until one of the two is written to.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::OFlags;

use crate::{
    destination::{
        copy_bytes,
        state::{staging_names::OWNERS, state_dir::StateDir},
    },
    entry::Time,
    sys::stat::changed,
};

/// Makes an unnamed clone of another file, which only this process can reach and which is gone when it is closed.
/// `None` where the file system does not clone.
pub(crate) fn private_clone(state: &StateDir, from: BorrowedFd<'_>) -> Option<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let clone = rustix::fs::openat(state.staging(), c".", flags, OWNERS).ok()?;
    rustix::fs::ioctl_ficlone(&clone, from).is_ok().then_some(clone)
}

/// The time when a file was cloned, by the clock of its file system. `None` where later writes to the file cannot be
/// recognised by their times.
///
/// A write after the cloning never has an earlier time than the clone's last change, which is the cloning itself. This
/// also holds for files mapped into memory: cloning first writes dirty pages to the disk, so the next write to a page
/// is reported to the file system. Only file systems of this machine give every write the time when it was made.
#[derive(Debug, Clone, Copy)]
pub struct ClonedAt(Option<Time>);

impl ClonedAt {
    /// Returns the time when this clone was made; the clone must not have been written to since.
    pub fn of(clone: BorrowedFd<'_>) -> Self {
        Self(change_time(clone).filter(|_| copy_bytes::is_local_and_clones(clone)))
    }

    /// Returns whether the original file is unchanged since it was cloned; false where that is unknown.
    pub fn is_still(self, file: BorrowedFd<'_>) -> bool {
        self.0.zip(change_time(file)).is_some_and(|(cloned, changed)| changed < cloned)
    }
}

fn change_time(file: BorrowedFd<'_>) -> Option<Time> {
    rustix::fs::fstat(file).ok().map(|stat| changed(&stat))
}
