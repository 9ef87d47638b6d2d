//! The lock of a run on a source that is the destination of another job, so that no run copies a tree that is half
//! written.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{FlockOperation, Mode, OFlags},
    io::Errno,
};

use crate::{
    destination::{doubt_in, is_half_written},
    measure::report::NOTES,
    path::OWN_DIR,
    session_error::SessionError,
    sys::{
        files_in_doubt::Doubt,
        root::{Root, TreeLocation, each_name},
    },
};

const FILE_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// A source that no run can begin to write to.
#[derive(Debug)]
pub(crate) struct SourceLock {
    /// The kernel releases the lock when it is closed.
    lock: Option<OwnedFd>,
    /// A note for the report, if the lock could not be taken.
    pub note: Option<String>,
}

impl SourceLock {
    /// Takes the lock on the source at `place`, if it is the destination of a job. Makes and writes nothing, so it also
    /// works on a volume that is mounted read-only.
    ///
    /// # Errors
    /// [`SessionError::SourceBusy`] when a run writes to the source; [`SessionError::SourceHalfWritten`] when one was
    /// cut off in the middle of a file.
    pub(crate) fn hold(root: &Root, place: &TreeLocation) -> Result<Self, SessionError> {
        match lock(root) {
            Ok(None) => Ok(Self { lock: None, note: None }),
            Ok(Some(found)) if found.is_half_written => {
                Err(SessionError::SourceHalfWritten { path: place.path() })
            }
            Ok(Some(SharedLock { lock, doubt, .. })) => {
                let is_cut_off = doubt.as_ref().is_some_and(|doubt| doubt.since.is_some());
                doubt.into_iter().for_each(|doubt| root.set_doubt(doubt));
                Ok(Self { lock: Some(lock), note: is_cut_off.then(|| CUT_OFF.into()) })
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(SessionError::SourceBusy { path: place.path() })
            }
            Err(error) => {
                let note = format!(
                    "whether another run writes to the source {} cannot be found out, as its .volferry/lock cannot be locked: {error}",
                    place.path().display()
                );
                tracing::warn!(target: NOTES, "{note}");
                Ok(Self { lock: None, note: Some(note) })
            }
        }
    }

    /// Returns whether other runs read the folder at this moment, so that none may write to it. Keeps readers out as
    /// long as the lock lives.
    pub(crate) fn is_shared(&self) -> bool {
        let alone = |lock| rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive);
        self.lock.as_ref().map(alone) == Some(Err(Errno::WOULDBLOCK))
    }
}

/// A source's lock, shared with other readers, and what a run that was cut off has left there.
struct SharedLock {
    lock: OwnedFd,
    is_half_written: bool,
    doubt: Option<Doubt>,
}

/// What the report says of a source that a run was cut off from.
const CUT_OFF: &str = "a run into the source was cut off, and files that it wrote may lack some of their content: they \
                       are compared again until another run into it has completed them";

/// Takes the source's lock; `None` if the source is not a destination.
fn lock(root: &Root) -> io::Result<Option<SharedLock>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let own = match rustix::fs::openat(root, OWN_DIR, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        opened => opened?,
    };
    let lock = match share(&own, b"lock") {
        Err(Errno::NOENT) => return Ok(None),
        lock => lock?,
    };
    // The shards of a run share the lock of the destination, and each also holds one of its own.
    match rustix::fs::openat(&own, "shards", flags, Mode::empty()) {
        Err(Errno::NOENT) => {}
        shards => check_seats(&shards?)?,
    }
    let (is_half_written, doubt) = (is_half_written(own.as_fd())?, doubt_in(own.as_fd())?);
    Ok(Some(SharedLock { lock, is_half_written, doubt }))
}

fn check_seats(shards: &OwnedFd) -> io::Result<()> {
    each_name(shards, |name| {
        if name.to_bytes().starts_with(b"seat-") {
            share(shards, name.to_bytes())?;
        }
        Ok(())
    })
}

fn share(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let file = rustix::fs::openat(dir, name, FILE_FLAGS, Mode::empty())?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared)?;
    Ok(file)
}
