//! What the kernel's answers say of files: kinds, times, devices and states.

use std::{io, os::fd::AsFd};

use rustix::fs::{FileType, Stat, Statx};

use crate::entry::{Meta, Owner, Time};

/// Reads the state of an open file, which has to be a regular one: a device may have no end.
pub(crate) fn regular(fd: impl AsFd) -> io::Result<Stat> {
    let stat = rustix::fs::fstat(fd)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(stat),
        _ => Err(io::Error::other("it is not a regular file")),
    }
}

/// Returns when the content of an open file was last modified, or was set to be.
pub(crate) fn modified(stat: &Stat) -> Time {
    Time::of_file(stat.st_mtime, stat.st_mtime_nsec as u32)
}

/// Returns when the file or its metadata last changed; no user can set this time.
pub(crate) fn changed(stat: &Stat) -> Time {
    Time { seconds: stat.st_ctime, nanos: stat.st_ctime_nsec as u32 }
}

/// Returns the metadata in a `stat`.
pub(crate) fn meta_of(stat: &Stat) -> Meta {
    Meta {
        mode: (stat.st_mode & 0o7777) as u16,
        mtime: modified(stat),
        owner: Owner { uid: stat.st_uid, gid: stat.st_gid },
    }
}

/// Returns the number of the file system that an entry is on.
pub(crate) fn device_of(stat: &Statx) -> u64 {
    u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor)
}

/// Returns the number of the file system that an open file is on.
pub(crate) fn device_of_stat(stat: &Stat) -> u64 {
    u64::from(rustix::fs::major(stat.st_dev)) << 32 | u64::from(rustix::fs::minor(stat.st_dev))
}

/// The device and number of an inode, which identify it among all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Returns the identity of the inode that `stat` describes.
    pub(crate) fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// The state of an entry: another one shows that it was changed, or that another took its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileState {
    inode: Identity,
    /// When it last changed.
    pub changed: Time,
}

impl FileState {
    /// Returns the state that `stat` describes.
    pub(crate) fn of(stat: &Stat) -> Self {
        Self { inode: Identity::of(stat), changed: changed(stat) }
    }
}
