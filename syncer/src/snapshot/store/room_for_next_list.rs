//! Holds room back for the next list of snapshots and the next lines of the log, so that snapshots can be forgotten and
//! collected on a full file system.
//!
//! The list is then written into the file `reserve`, which has an inode and blocks, and the two change their names. So
//! the next list has room, too. The log has blocks of its own beyond its end. All of that is beyond the ends of files,
//! which a write fills without giving any of it back.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FallocateFlags, OFlags, RenameFlags, Stat},
    io::Errno,
};

use super::store_files::AUDIT;
use crate::destination::{open_own, open_own_with_stat, write_all};

const RESERVE: &str = "reserve";

/// Room is held back in steps of this many bytes.
const STEP_BYTES: u64 = 64 << 10;

/// The share of a list's length that is held back for the log. Half of that, of which each change sees to it that it is
/// there, has room for a line that names all snapshots.
const LIST_PER_LOG: u64 = 3;

/// Returns whether an error says that the file system or the user's quota is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

/// Holds back room for changes of a list of `len` bytes in the store in `dir`, if there is any and the file system can.
pub(crate) fn renew(dir: BorrowedFd<'_>, len: u64) {
    let list = len.saturating_mul(2).next_multiple_of(STEP_BYTES);
    let log = (len / LIST_PER_LOG).next_multiple_of(STEP_BYTES).max(STEP_BYTES);
    let hold = || -> io::Result<()> {
        let reserve = rustix::fs::statat(dir, RESERVE, AtFlags::SYMLINK_NOFOLLOW);
        if !reserve.is_ok_and(|stat| allocated(&stat) >= list) {
            hold_until(dir, RESERVE, list)?;
        }
        let audit = rustix::fs::statat(dir, AUDIT, AtFlags::SYMLINK_NOFOLLOW)?;
        let end = audit.st_size as u64;
        if allocated(&audit) < end + log / 2 { hold_until(dir, AUDIT, end + log) } else { Ok(()) }
    };
    if let Err(error) = hold() {
        tracing::debug!(%error, "no room is held back for forgetting snapshots");
    }
}

/// Allocates a file up to this many bytes. Its length stays.
fn hold_until(dir: BorrowedFd<'_>, name: &str, bytes: u64) -> io::Result<()> {
    let file = open_own(dir, name, OFlags::WRONLY | OFlags::CREATE)?;
    Ok(rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes)?)
}

fn allocated(stat: &Stat) -> u64 {
    stat.st_blocks as u64 * 512
}

/// Gives back a part of a reserve that an older program made, as that program did for the log. `list` is the list's
/// length in bytes. Returns whether there was anything to give.
pub(crate) fn release(dir: BorrowedFd<'_>, list: u64) -> bool {
    let Ok((file, stat)) = open_own_with_stat(dir, RESERVE, OFlags::WRONLY) else { return false };
    let left = (stat.st_size as u64).saturating_sub(STEP_BYTES);
    left > list && rustix::fs::ftruncate(&file, left).is_ok()
}

/// Writes a list into the room that was held back for it, and returns the file.
///
/// # Errors
/// If there is none, or too little.
pub(crate) fn fill(dir: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<OwnedFd> {
    let (file, stat) = open_own_with_stat(dir, RESERVE, OFlags::WRONLY)?;
    write_all(file.as_fd(), bytes, 0)?;
    if stat.st_size as u64 > bytes.len() as u64 {
        rustix::fs::ftruncate(&file, bytes.len() as u64)?;
        // Cutting it off freed its room, which is taken back before others take it.
        let _ = rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, allocated(&stat));
    }
    Ok(file)
}

/// Has the file with the list that was written and the file `name` change their names, durably.
///
/// # Errors
/// If the file system cannot do that.
pub(crate) fn exchange(dir: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    rustix::fs::renameat_with(dir, RESERVE, dir, name, RenameFlags::EXCHANGE)?;
    Ok(rustix::fs::fsync(dir)?)
}
