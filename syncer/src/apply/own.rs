//! `.volferry/` on the destination: the lock and the staging folder. `syncer/doc/format.md` describes it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use rustix::{
    fs::{AtFlags, Dir, FlockOperation, Mode, OFlags},
    io::Errno,
};

use super::{ApplyError, attrs, remove};
use crate::{
    path::OWN_DIR,
    root::{Root, open_child},
};

const STAGING: &[u8] = b"staging";
const LOCK: &[u8] = b"lock";

/// The open `.volferry/` of a destination, locked for this run.
#[derive(Debug)]
pub struct OwnDir {
    dir: OwnedFd,
    staging: OwnedFd,
    /// Held for its lock, which the kernel gives back when the process ends, however it ends.
    _lock: OwnedFd,
    next: AtomicU64,
}

impl OwnDir {
    /// Makes what is missing, takes the lock, and empties staging of what a run that was cut off left there.
    pub fn open(root: &Root, path: &Path) -> Result<Self, ApplyError> {
        let failed = |source: io::Error| match Errno::from_io_error(&source) {
            Some(Errno::WOULDBLOCK) => ApplyError::Busy { path: path.into() },
            _ => ApplyError::Own { path: path.into(), source },
        };
        Self::prepare(root).map_err(failed)
    }

    fn prepare(root: &Root) -> io::Result<Self> {
        let dir = make_and_open(root.as_fd(), OWN_DIR)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&dir, LOCK, flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let staging = make_and_open(dir.as_fd(), STAGING)?;
        empty(&staging)?;
        // What is staged shall not inherit an access control list that the root's other files get.
        attrs::drop_default_acl(staging.as_fd());
        Ok(Self { dir, staging, _lock: lock, next: AtomicU64::new(0) })
    }

    /// The folder for files that are not visible yet.
    pub fn staging(&self) -> BorrowedFd<'_> {
        self.staging.as_fd()
    }

    /// A name in staging that nobody else uses: under the lock all names are this run's.
    pub fn fresh_name(&self) -> String {
        self.next.fetch_add(1, Relaxed).to_string()
    }
}

/// Removes staging, however the run ends: a run that failed or was told to stop leaves nothing, only a killed process does.
impl Drop for OwnDir {
    fn drop(&mut self) {
        if let Err(error) = empty(&self.staging).and_then(|()| remove::dir(self.dir.as_fd(), STAGING)) {
            tracing::warn!(%error, "could not remove the staging folder");
        }
    }
}

fn make_and_open(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
        Err(error) if error != Errno::EXIST => return Err(error.into()),
        _ => {}
    }
    open_child(dir, name, OFlags::RDONLY)
}

fn empty(staging: &OwnedFd) -> io::Result<()> {
    for entry in Dir::read_from(staging)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            rustix::fs::unlinkat(staging, name, AtFlags::empty())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::staged::Staged;

    #[test]
    fn staging_goes_with_the_run_and_the_lock_stays() {
        let dir = tempfile::tempdir().unwrap();
        let own = OwnDir::open(&Root::open(dir.path()).unwrap(), dir.path()).unwrap();
        Staged::named(&own).unwrap();
        assert_eq!(std::fs::read_dir(dir.path().join(".volferry/staging")).unwrap().count(), 1);
        drop(own);
        assert!(!dir.path().join(".volferry/staging").exists());
        assert!(dir.path().join(".volferry/lock").exists());
    }
}
