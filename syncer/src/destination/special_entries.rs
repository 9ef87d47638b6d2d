//! Entries that are neither regular files nor directories.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
};

use rustix::{
    fs::{FileType, Mode},
    io::Errno,
};

use crate::{
    destination::{
        metadata::set_metadata::hold,
        remove_old_versions::{EntryAt, Retire},
        staging::staged_file::link_held,
        state::state_dir::StateDir,
    },
    entry::{Entry, Kind, Owner},
};

/// Makes `entry` under another name, calls `set_meta` for its metadata, and renames it to its `place`, so that it is
/// never visible without its metadata.
pub(super) fn make(
    state: &StateDir,
    retire: &Retire,
    place: EntryAt<'_>,
    entry: &Entry<'_>,
    set_meta: impl Fn(BorrowedFd<'_>, &Entry<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let make = |at: BorrowedFd<'_>, first: &str| {
        create(at, first.as_bytes(), &entry.kind)?;
        let staged = Entry { name: first.as_bytes(), ..*entry };
        let made = EntryAt::staged(at, first.as_bytes());
        let published = set_meta(at, &staged).and_then(|()| retire.rename_over(made, place, false));
        published.inspect_err(|_| drop(made.unlink()))
    };
    state.beside_or_in_staging(place.dir, make)
}

/// Makes the entry one more name of `target` in `target_dir`, replacing the entry that has its name.
pub(super) fn link(
    state: &StateDir,
    retire: &Retire,
    target_dir: BorrowedFd<'_>,
    target: &[u8],
    owner: Option<Owner>,
    link: EntryAt<'_>,
) -> io::Result<()> {
    let held = hold(target_dir, target)?;
    let there = rustix::fs::fstat(&held)?;
    if owner.is_some_and(|owner| owner.uid != there.st_uid) {
        return Err(io::Error::other("the file that it is a name of was replaced by another user's"));
    }
    {
        let _turn = retire.turn(link)?;
        match link_held(held.as_fd(), link.dir, link.name) {
            Err(Errno::EXIST) => {}
            result => return Ok(result?),
        }
    }
    state.beside_or_in_staging(link.dir, |at, first| {
        let made = EntryAt::staged(at, first.as_bytes());
        link_held(held.as_fd(), made.dir, made.name)?;
        let renamed = retire.rename_over(made, link, false);
        // Renaming one name of a file to another name of the same file does nothing and reports success.
        let _ = made.unlink();
        renamed
    })
}

pub(super) fn create(dir: BorrowedFd<'_>, name: &[u8], kind: &Kind<'_>) -> io::Result<()> {
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
