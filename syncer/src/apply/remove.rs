use std::{io, os::fd::BorrowedFd};

use rustix::{fs::AtFlags, io::Errno};

/// Removes an entry that is not a directory; one that is gone already is as good.
pub(super) fn file(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    gone_is_fine(rustix::fs::unlinkat(dir, name, AtFlags::empty()))
}

/// Removes an empty directory; one that is gone already is as good.
pub(super) fn dir(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    gone_is_fine(rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR))
}

fn gone_is_fine(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        result => Ok(result?),
    }
}
