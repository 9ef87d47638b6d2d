//! Entries that are neither regular files nor directories.

use std::{io, os::fd::BorrowedFd};

use rustix::{
    fs::{FileType, Mode},
    io::Errno,
};

use super::{Destination, remove};
use crate::entry::{Entry, Kind};

/// Makes `entry` in staging, gives it its metadata and renames it into place.
pub(super) fn make(to: &Destination, dir: BorrowedFd<'_>, entry: &Entry<'_>) -> io::Result<()> {
    let name = to.own.fresh_name();
    let staging = to.own.staging();
    create(staging, name.as_bytes(), &entry.kind)?;
    let staged = Entry { name: name.as_bytes(), ..*entry };
    let published = to
        .set_meta(staging, &staged)
        .and_then(|()| Ok(rustix::fs::renameat(staging, &name, dir, entry.name)?));
    if published.is_err() {
        let _ = remove::file(staging, name.as_bytes());
    }
    published
}

fn create(dir: BorrowedFd<'_>, name: &[u8], kind: &Kind<'_>) -> io::Result<()> {
    let private = Mode::RUSR | Mode::WUSR;
    let node = |file_type, rdev| rustix::fs::mknodat(dir, name, file_type, private, rdev);
    match *kind {
        Kind::Symlink { target } => rustix::fs::symlinkat(target, dir, name)?,
        Kind::Fifo => node(FileType::Fifo, 0)?,
        Kind::CharDevice { rdev } => node(FileType::CharacterDevice, rdev)?,
        Kind::BlockDevice { rdev } => node(FileType::BlockDevice, rdev)?,
        Kind::File { .. } | Kind::Dir | Kind::Socket => return Err(Errno::INVAL.into()),
    }
    Ok(())
}
