//! The lock by which commands that read objects keep collections from removing them.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{FlockOperation, OFlags},
    io::Errno,
};

use super::{
    read_store::Store,
    snapshot_error::{SnapshotError, io_error},
};
use crate::destination::open_own;

/// The file that restores hold a shared lock on while they read, so that a collection removes nothing meanwhile.
pub(crate) const READERS: &str = "readers";

/// Keeps collections from removing objects as long as the returned descriptor is open.
///
/// # Errors
/// If the system refuses.
pub fn hold_for_reading(store: &Store) -> Result<OwnedFd, SnapshotError> {
    let hold = || -> io::Result<OwnedFd> {
        let file = readers(store.dir())?;
        rustix::fs::flock(&file, FlockOperation::LockShared)?;
        Ok(file)
    };
    hold().map_err(io_error("lock", store.path().join(READERS)))
}

/// Locks readers out as long as the returned descriptor is open; `None` if there are any.
pub(crate) fn lock_out_readers(dir: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let file = readers(dir)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens the file that readers of the store lock, and creates it if it is missing. On a read-only volume it exists
/// already, because writers create it.
pub(crate) fn readers(dir: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    open_own(dir, READERS, OFlags::RDWR | OFlags::CREATE).or_else(|error| {
        match Errno::from_io_error(&error) {
            Some(Errno::ROFS | Errno::ACCESS) => open_own(dir, READERS, OFlags::RDONLY),
            _ => Err(error),
        }
    })
}
