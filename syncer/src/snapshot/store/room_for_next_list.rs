//! Holds room back for the next list of snapshots, so that they can be forgotten and collected on a full file system.
//!
//! The list is then written into this file, which has an inode and blocks, and the two change their names. So the next
//! list has room, too. The log gets a part of the room.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FallocateFlags, Mode, OFlags, RenameFlags},
    io::Errno,
};

use crate::destination::write_all;

const RESERVE: &str = "reserve";

/// The reserve has room for a list of twice the length, in steps of this many bytes, and as much for the log.
const STEP_BYTES: u64 = 64 << 10;

/// Returns whether an error says that the file system or the user's quota is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

/// Holds back room for changes of a list of `len` bytes in the store in `dir`, if there is any and the file system can.
pub(crate) fn renew(dir: BorrowedFd<'_>, len: u64) {
    let wanted = len.saturating_mul(2).next_multiple_of(STEP_BYTES) + STEP_BYTES;
    let there = rustix::fs::statat(dir, RESERVE, AtFlags::SYMLINK_NOFOLLOW).map(|stat| stat.st_size as u64);
    if there.is_ok_and(|there| there >= wanted) {
        return;
    }
    let held = open(dir, OFlags::CREATE)
        .and_then(|file| Ok(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, wanted)?));
    if let Err(error) = held {
        tracing::debug!(%error, "no room is held back for forgetting snapshots");
    }
}

/// Gives a part of the room back. Returns whether it was held back.
pub(crate) fn release(dir: BorrowedFd<'_>) -> bool {
    let Ok(file) = open(dir, OFlags::empty()) else { return false };
    let len = rustix::fs::fstat(&file).map_or(0, |stat| stat.st_size as u64);
    len > STEP_BYTES && rustix::fs::ftruncate(&file, len - STEP_BYTES).is_ok()
}

/// Replaces the file `name` by one with these bytes, durably, in the room that was held back for it.
///
/// # Errors
/// If there is none, or the file system cannot exchange the names of files.
pub(crate) fn replace(dir: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let file = open(dir, OFlags::empty())?;
    write_all(file.as_fd(), bytes, 0)?;
    rustix::fs::ftruncate(&file, bytes.len() as u64)?;
    rustix::fs::fsync(&file)?;
    rustix::fs::renameat_with(dir, RESERVE, dir, name, RenameFlags::EXCHANGE)?;
    Ok(rustix::fs::fsync(dir)?)
}

fn open(dir: BorrowedFd<'_>, more: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
    Ok(rustix::fs::openat(dir, RESERVE, flags, Mode::RUSR | Mode::WUSR)?)
}
