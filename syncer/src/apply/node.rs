//! Entries that are neither regular files nor directories.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
};

use rustix::{
    fs::{FileType, Mode},
    io::Errno,
};

use super::{meta::hold, own::OwnDir, remove, staged::link_held};
use crate::entry::{Entry, Kind, Owner};

/// Makes `entry` in staging, has `set_meta` give it its metadata, and renames it into place.
pub(super) fn make(
    own: &OwnDir,
    dir: BorrowedFd<'_>,
    entry: &Entry<'_>,
    set_meta: impl FnOnce(&Entry<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let name = own.fresh_name();
    let staging = own.staging();
    create(staging, name.as_bytes(), &entry.kind)?;
    let staged = Entry { name: name.as_bytes(), ..*entry };
    let published =
        set_meta(&staged).and_then(|()| Ok(rustix::fs::renameat(staging, &name, dir, entry.name)?));
    if published.is_err() {
        let _ = remove::file(staging, name.as_bytes());
    }
    published
}

/// Makes `name` in `dir` one more name of `target` in `target_dir`, in place of what is there.
pub(super) fn link(
    own: &OwnDir,
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
    let staged = own.fresh_name();
    link_held(held.as_fd(), own.staging(), staged.as_bytes())?;
    let renamed = rustix::fs::renameat(own.staging(), &staged, dir, name);
    // A rename of one name of a file to another one of the same file does nothing, and says that it went well.
    let _ = remove::file(own.staging(), staged.as_bytes());
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
