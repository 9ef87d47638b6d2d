//! The changes to a file that is written in place, laid over its old content.

use std::{
    io,
    ops::Range,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::Stat;

use crate::{
    destination::{
        copy_bytes,
        staging::{
            byte_ranges::{RangeChange, Ranges},
            when_in_place::has_one_name,
        },
    },
    path::RelPath,
    sys::root::Root,
};

/// A file of the destination and the ranges of it that change.
#[derive(Debug)]
pub(crate) struct Overlay {
    pub(crate) path: RelPath,
    target: OwnedFd,
    pub(crate) was: Stat,
    ranges: Mutex<Ranges>,
}

impl Overlay {
    /// Opens the file at `path`. `None` where it cannot be written in place: it is not a regular file, has other names,
    /// which would change with it, or may not be written to.
    pub(crate) fn new(root: &Root, path: &RelPath) -> io::Result<Option<Self>> {
        let target = match root.file_to_write(path) {
            Err(error) if refuses_writing(&error) => return Ok(None),
            result => result?,
        };
        let was = rustix::fs::fstat(&target)?;
        Ok(has_one_name(&was).then(|| Self { path: path.clone(), target, was, ranges: Mutex::default() }))
    }

    /// Returns the ranges that were written so far.
    pub(crate) fn ranges(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock()
    }

    /// Returns the file with its old content.
    pub(crate) fn basis(&self) -> BorrowedFd<'_> {
        self.target.as_fd()
    }

    /// Records the change of a range.
    pub(crate) fn wrote(&self, range: Range<u64>, change: RangeChange) {
        self.ranges().set(range, change);
    }

    /// Reads the new content of the file: the ranges written to `staged` so far, and the old content elsewhere.
    pub(crate) fn read(&self, staged: BorrowedFd<'_>, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let pieces = self.ranges().within(offset..offset + bytes.len() as u64);
        for (range, change) in pieces {
            let part = &mut bytes[(range.start - offset) as usize..(range.end - offset) as usize];
            match change {
                Some(RangeChange::Data) => copy_bytes::read_exact_at(staged, part, range.start)?,
                Some(RangeChange::Hole) => part.fill(0),
                None => copy_bytes::read_exact_at(self.basis(), part, range.start)?,
            }
        }
        Ok(())
    }
}

fn refuses_writing(error: &io::Error) -> bool {
    use io::ErrorKind::{ExecutableFileBusy, PermissionDenied};
    matches!(error.kind(), ExecutableFileBusy | PermissionDenied)
}
