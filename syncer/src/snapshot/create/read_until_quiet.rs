//! Reads a live file again while it changes, so that what is kept of it is of one moment where that can be.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags, Stat},
    io::Errno,
};

use crate::{
    entry::Time,
    scan::stamp_of_stat,
    snapshot::store::regular,
    sys::{
        in_motion::is_in_motion,
        stat::{changed, modified},
    },
    tree::stamps::IN_MOTION,
};

/// Attempts to read a file before what was read last is kept although the file keeps changing.
const MAX_ATTEMPTS: u32 = 4;

/// What one attempt has read of a file.
pub(crate) struct Attempt<T> {
    pub content: T,
    /// The status of the file when it was cloned, or when all of it was read.
    pub after: Stat,
    /// Whether it is a clone, which has the content of one moment.
    pub is_clone: bool,
}

/// What is kept of a file.
pub(crate) struct KeptRead<T> {
    pub content: T,
    /// The status of the file before it was read.
    pub stat: Stat,
    /// Its stamp, 0, or [`IN_MOTION`].
    pub stamp: u64,
    /// Whether it changed in each attempt to read it.
    pub kept_changing: bool,
}

/// Reads the content of live files into a store.
pub(crate) trait ReadLive {
    /// What it has read of a file.
    type Content;
    /// Why it has not.
    type Error: From<io::Error> + From<Errno>;

    /// Returns whether a file with this status is cloned, if the file system can.
    fn clones(&self, _: &Stat) -> bool {
        false
    }

    /// Reads as much of a file as its status says.
    fn read(&mut self, file: &OwnedFd, stat: &Stat) -> Result<Attempt<Self::Content>, Self::Error>;

    /// Removes what was read and is not kept.
    fn discard(&self, _: &Self::Content) {}

    /// Returns whether an error is of the store, so that no other attempt is made.
    fn is_of_store(&self, error: &Self::Error) -> bool;
}

/// Reads the file `name` in `dir`. Files that changed at the time `before` or later, or are on another file system than
/// `device`, get no stamp.
pub(crate) fn read_until_quiet<R: ReadLive>(
    reader: &mut R,
    dir: BorrowedFd<'_>,
    name: &[u8],
    before: Time,
    device: u64,
) -> Result<KeptRead<R::Content>, R::Error> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let mut last: Option<KeptRead<R::Content>> = None;
    for _ in 0..MAX_ATTEMPTS {
        let mut stat = regular(&file)?;
        let in_motion = is_in_motion(&file, &stat);
        if in_motion && !reader.clones(&stat) {
            // Once dirty pages are on the disk, the next store to a mapping gives the file another time.
            let _ = rustix::fs::fdatasync(&file);
            stat = regular(&file)?;
        }
        let read = reader.read(&file, &stat);
        if let Err(error) = &read
            && !reader.is_of_store(error)
            && !is_unwritten(&stat, &regular(&file)?)
        {
            // It became shorter while it was read.
            continue;
        }
        last.take().iter().for_each(|last| reader.discard(&last.content));
        let Attempt { content, after, is_clone } = read?;
        let is_quiet = is_unwritten(&stat, &after);
        let stamp = match (is_quiet, is_clone) {
            (true, true) => stamp_of_stat(&stat, before, device),
            (true, false) if !in_motion => stamp_of_stat(&stat, before, device),
            (false, true) => 0,
            (_, false) => IN_MOTION,
        };
        let kept_changing = !is_quiet && !is_clone;
        let kept = KeptRead { content, stat, stamp, kept_changing };
        if !kept_changing {
            return Ok(kept);
        }
        last = Some(kept);
    }
    last.ok_or_else(|| io::Error::other("the file kept changing while it was read").into())
}

/// Returns whether a file was not written to between two of its statuses.
pub(crate) fn is_unwritten(before: &Stat, after: &Stat) -> bool {
    let key = |stat: &Stat| (stat.st_size, modified(stat), changed(stat));
    key(before) == key(after)
}
