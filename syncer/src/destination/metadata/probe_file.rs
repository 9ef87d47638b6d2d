//! The file on which a run finds out what the destination's file system keeps.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};

/// A new file that is gone with this value.
#[derive(Debug)]
pub(crate) struct ProbeFile<'a> {
    file: OwnedFd,
    /// Its folder and name, where the file system knows no files without names.
    name: Option<(BorrowedFd<'a>, &'a str)>,
}

impl<'a> ProbeFile<'a> {
    /// Makes a file in `dir` that has no name, or `name` if there is one and it needs one; `None` if that cannot be
    /// made. Each new inode takes a file system up to half a millisecond, so one file serves all probes of a run.
    pub(crate) fn make(dir: BorrowedFd<'a>, name: Option<&'a str>) -> Option<Self> {
        let (flags, mode) = (OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
        if let Ok(file) = rustix::fs::openat(dir, c".", flags | OFlags::TMPFILE, mode) {
            return Some(Self { file, name: None });
        }
        let file = rustix::fs::openat(dir, name?, flags | OFlags::CREATE | OFlags::EXCL, mode).ok()?;
        Some(Self { file, name: name.map(|name| (dir, name)) })
    }
}

impl AsFd for ProbeFile<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for ProbeFile<'_> {
    fn drop(&mut self) {
        if let Some((dir, name)) = self.name {
            let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
        }
    }
}
