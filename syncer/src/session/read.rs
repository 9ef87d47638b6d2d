//! Files of the source, opened so that a change during the read is noticed.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{FileType, Mode, OFlags, Stat},
    io::Errno,
};

use crate::{
    entry::{Meta, Owner, Time},
    path::RelPath,
    root::Root,
    scan::DirId,
};

/// How often a file is read before it is given up as changing all the time.
pub(super) const MAX_ATTEMPTS: u32 = 4;

/// What is said of a file that changes all the time.
pub(super) const CHANGED: &str =
    "the file kept changing while it was read; the destination keeps the version it has";

/// The directory that a worker used last; files come in the order of directories, so it is mostly the right one.
#[derive(Debug, Default)]
pub(super) struct LastDir(Option<(DirId, OwnedFd)>);

impl LastDir {
    /// The directory at `path`, opened if it is not the last one.
    pub(super) fn open(&mut self, root: &Root, id: DirId, path: &RelPath) -> io::Result<BorrowedFd<'_>> {
        let kept = self.0.take().filter(|(last, _)| *last == id);
        let entry = match kept {
            Some(entry) => entry,
            None => (id, root.dir(path)?),
        };
        Ok(self.0.insert(entry).1.as_fd())
    }
}

/// An open regular file of the source, with what it was when it was looked at last.
#[derive(Debug)]
pub(super) struct SourceFile {
    fd: OwnedFd,
    stat: Stat,
}

impl AsFd for SourceFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl SourceFile {
    /// Opens `name` in `dir`, never through a link.
    ///
    /// # Errors
    /// Also when it is not a regular file any more.
    pub(super) fn open(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Self> {
        let fd = open_nonblocking(dir, name)?;
        let stat = regular(&fd)?;
        Ok(Self { fd, stat })
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.stat.st_size as u64
    }

    /// Whether it may have holes.
    pub(super) fn has_holes(&self) -> bool {
        has_holes(&self.stat)
    }

    /// Its metadata; the mode is left out where the listing leaves it out.
    pub(super) fn meta(&self, listed: &Meta) -> Meta {
        meta_of(&self.stat, listed)
    }

    /// Its modification time.
    pub(super) fn mtime(&self) -> Time {
        Time { seconds: self.stat.st_mtime, nanos: self.stat.st_mtime_nsec as u32 }
    }

    /// Looks again: whether the file is what it was. A change of content always moves the change time.
    pub(super) fn is_unchanged(&self) -> io::Result<bool> {
        let key = |s: &Stat| (s.st_size, s.st_mtime, s.st_mtime_nsec, s.st_ctime, s.st_ctime_nsec);
        Ok(key(&regular(&self.fd)?) == key(&self.stat))
    }
}

/// Opens a file for reading.
pub(super) fn open_nonblocking(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    // Without NONBLOCK, a pipe that took the file's place would hold the worker for ever.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?)
}

/// Looks at an open file that has to be a regular one.
pub(super) fn regular(fd: impl AsFd) -> io::Result<Stat> {
    let stat = rustix::fs::fstat(fd)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(stat),
        _ => Err(io::Error::other("it is no longer a regular file")),
    }
}

/// Whether so little is allocated for a file that it may have holes.
pub(super) fn has_holes(stat: &Stat) -> bool {
    const PAGE: u64 = 4096;
    stat.st_size as u64 > PAGE && stat.st_blocks as u64 * 512 + PAGE <= stat.st_size as u64
}

/// The metadata of an open file; the mode is left out where the listing leaves it out.
pub(super) fn meta_of(stat: &Stat, listed: &Meta) -> Meta {
    let mtime = Time { seconds: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 };
    let mode = if listed.mode == 0 { 0 } else { (stat.st_mode & 0o7777) as u16 };
    Meta { mode, mtime, owner: Owner { uid: stat.st_uid, gid: stat.st_gid } }
}

/// Reads from the start of the file until `buffer` is full or the file ends.
pub(super) fn read_from_start(fd: &OwnedFd, mut buffer: &mut [u8]) -> io::Result<()> {
    let mut offset = 0;
    while !buffer.is_empty() {
        match rustix::io::pread(fd, &mut *buffer, offset) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                buffer = &mut buffer[read..];
                offset += read as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
