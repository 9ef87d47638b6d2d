//! Reads a live file again while it changes, so that what is kept of it is of one moment where that can be.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags, Stat},
    io::Errno,
};

use crate::{
    attrs::AttrsBuf,
    entry::Time,
    kept_xattrs::Classes,
    scan::stamp_of_stat,
    sys::{
        in_motion::is_in_motion,
        read_xattrs::of_open,
        stat::{changed, modified, regular},
    },
    tree::stamps::IN_MOTION,
};

/// Attempts to read a file before what was read last is kept although the file keeps changing.
const MAX_ATTEMPTS: u32 = 4;

/// The terms of a scan: what its stamps mean, and which attributes it lists.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanTerms {
    /// Files that changed at this time or later get no stamp.
    pub before: Time,
    /// The file system of the tree's root.
    pub device: u64,
    /// The kinds of attributes that are listed.
    pub attrs: Classes,
}

/// A live file that is open for reading.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    pub file: OwnedFd,
    /// Its status when it was opened.
    pub stat: Stat,
}

impl OpenedFile {
    /// Opens the file `name` in `dir`.
    ///
    /// # Errors
    /// If it cannot be opened, or is not a regular file.
    pub(crate) fn open(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        let stat = regular(&file)?;
        Ok(Self { file, stat })
    }
}

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
    /// Its attributes; `None` if they are those that the scan has listed.
    pub attrs: Option<AttrsBuf>,
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

/// Reads an open file, which the scan has listed with the stamp `listed`, or which has taken the place of such a file.
pub(crate) fn read_until_quiet<R: ReadLive>(
    reader: &mut R,
    OpenedFile { file, stat: mut opened }: OpenedFile,
    listed: u64,
    terms: ScanTerms,
) -> Result<KeptRead<R::Content>, R::Error> {
    let ScanTerms { before, device, .. } = terms;
    let mut last: Option<KeptRead<R::Content>> = None;
    for attempt in 0..MAX_ATTEMPTS {
        if attempt > 0 {
            opened = regular(&file)?;
        }
        let mut stat = opened;
        let in_motion = is_in_motion(&file, &stat);
        if in_motion && !reader.clones(&stat) {
            // Once dirty pages are on the disk, the next store to a mapping gives the file another time.
            let _ = rustix::fs::fdatasync(&file);
            stat = regular(&file)?;
        }
        let is_as_listed = listed != 0 && stamp_of_stat(&stat, before, device) == listed;
        // An equal change time proves that the attributes are those of the listing, which costs no call.
        let attrs = if is_as_listed { None } else { Some(of_open(file.as_fd(), terms.attrs)?) };
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
        let is_kept = is_quiet || is_clone && has_same_rights(&file, &stat, &after, attrs.as_ref(), terms)?;
        let kept = KeptRead { content, stat, attrs, stamp, kept_changing: !is_kept };
        if is_kept {
            return Ok(kept);
        }
        last = Some(kept);
    }
    last.ok_or_else(|| io::Error::other("the file kept changing while it was read").into())
}

/// Returns whether a file that was cloned after the status `before` had the same rights before and after that: its
/// content may be of another user's making where they differ.
fn has_same_rights(
    file: &OwnedFd,
    before: &Stat,
    after: &Stat,
    attrs: Option<&AttrsBuf>,
    terms: ScanTerms,
) -> io::Result<bool> {
    let rights = |stat: &Stat| (stat.st_mode, stat.st_uid, stat.st_gid);
    Ok(rights(before) == rights(after) && attrs == Some(&of_open(file.as_fd(), terms.attrs)?))
}

/// Returns whether a file was not written to between two of its statuses.
pub(crate) fn is_unwritten(before: &Stat, after: &Stat) -> bool {
    let key = |stat: &Stat| (stat.st_size, modified(stat), changed(stat));
    key(before) == key(after)
}
