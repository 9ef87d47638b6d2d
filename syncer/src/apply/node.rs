//! Entries that are neither regular files nor directories.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
};

use rustix::{
    fs::{FileType, Mode},
    io::Errno,
};

use super::{Destination, meta::hold, remove, staged::link_held};
use crate::entry::{Entry, Kind, Owner};

/// Makes `entry` in staging, gives it its metadata and renames it into place.
pub(super) fn make(to: &Destination, dir: BorrowedFd<'_>, entry: &Entry<'_>) -> io::Result<()> {
    let name = to.own.fresh_name();
    let staging = to.own.staging();
    create(staging, name.as_bytes(), &entry.kind)?;
    let staged = Entry { name: name.as_bytes(), ..*entry };
    let published = to
        .set_meta(staging, &staged, None)
        .and_then(|()| Ok(rustix::fs::renameat(staging, &name, dir, entry.name)?));
    if published.is_err() {
        let _ = remove::file(staging, name.as_bytes());
    }
    published
}

/// Makes `name` in `dir` one more name of `target` in `target_dir`, in place of what is there.
pub(super) fn link(
    to: &Destination,
    target_dir: BorrowedFd<'_>,
    target: &[u8],
    owner: Option<Owner>,
    dir: BorrowedFd<'_>,
    name: &[u8],
) -> io::Result<()> {
    let held = hold(target_dir, target)?;
    let there = rustix::fs::fstat(&held)?;
    if owner.is_some_and(|owner| owner.uid != there.st_uid) {
        return Err(io::Error::other("the file that it is a name of was replaced by another user's"));
    }
    match link_held(held.as_fd(), dir, name) {
        Err(Errno::EXIST) => {}
        result => return Ok(result?),
    }
    let staged = to.own.fresh_name();
    link_held(held.as_fd(), to.own.staging(), staged.as_bytes())?;
    let renamed = rustix::fs::renameat(to.own.staging(), &staged, dir, name);
    // A rename of one name of a file to another one of the same file does nothing, and says that it went well.
    let _ = remove::file(to.own.staging(), staged.as_bytes());
    Ok(renamed?)
}

fn create(dir: BorrowedFd<'_>, name: &[u8], kind: &Kind<'_>) -> io::Result<()> {
    let private = Mode::RUSR | Mode::WUSR;
    let node = |file_type, rdev| rustix::fs::mknodat(dir, name, file_type, private, rdev);
    match *kind {
        Kind::Symlink { target } => rustix::fs::symlinkat(target, dir, name)?,
        Kind::Fifo => node(FileType::Fifo, 0)?,
        Kind::CharDevice { rdev } => node(FileType::CharacterDevice, rdev)?,
        Kind::BlockDevice { rdev } => node(FileType::BlockDevice, rdev)?,
        Kind::File { .. } | Kind::Dir | Kind::Socket | Kind::HardLink { .. } => {
            return Err(Errno::INVAL.into());
        }
    }
    Ok(())
}
