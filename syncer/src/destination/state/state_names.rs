//! The names that runs use in `.volferry/`, and how its folders are emptied.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, StatxFlags},
    io::Errno,
};

use crate::{
    destination::state::motion_notes::MOTION,
    sys::root::{each_name, open_child},
};

pub(crate) const STAGING: &[u8] = b"staging";
pub(crate) const JOURNAL: &[u8] = b"journal";
pub(crate) const SHARDS: &[u8] = b"shards";
pub(crate) const LOCK: &[u8] = b"lock";
/// The mark that runs made the folder, and the name under which it is written.
pub(crate) const MARK: &[u8] = b"made";
pub(crate) const NEW_MARK: &[u8] = b"made.new";

/// The folders in `.volferry/` that runs make.
pub(crate) const FOLDERS: [&[u8]; 3] = [STAGING, JOURNAL, SHARDS];

/// The prefix of the names of directories in staging that are being removed.
const LEAVING: &str = "leaving-";

/// Returns whether runs make files of this name in `.volferry/` itself.
pub(crate) fn is_made_by_runs(name: &str) -> bool {
    name.starts_with("dirty-")
        || name.starts_with(MOTION)
        || ["lock", "volume", "volume.new", "source", "epoch", "made", "made.new"].contains(&name)
}

/// Opens a folder to read its names, but none where something is mounted: nothing is cleaned up across a mount.
///
/// # Errors
/// `XDEV` if it is a mount.
pub(crate) fn open_inside(dir: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    let folder = open_child(&dir, name, OFlags::RDONLY)?;
    if is_one_mount(dir.as_fd(), folder.as_fd())? { Ok(folder) } else { Err(Errno::XDEV.into()) }
}

/// Returns whether two folders are seen through one mount, or before Linux 5.8, whether they are on one file system.
pub(crate) fn is_one_mount(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<bool> {
    let place = |dir: BorrowedFd<'_>| {
        let found = rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
        Ok::<_, Errno>((found.stx_dev_major, found.stx_dev_minor, found.stx_mnt_id))
    };
    Ok(place(one)? == place(other)?)
}

/// Removes the folder that is open as `held`, and has this `name` in `parent`, with all its content. Crosses no mount.
///
/// # Errors
/// If another folder has the name, if the folder or one in it is a mount, and the errors of the system.
pub fn remove_folder(parent: impl AsFd, name: &[u8], held: impl AsFd + Copy) -> io::Result<()> {
    let (there, own) =
        (rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?, rustix::fs::fstat(held)?);
    if (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino) {
        return Err(io::Error::other("another folder is in its place"));
    }
    if !is_one_mount(parent.as_fd(), held.as_fd())? {
        return Err(Errno::XDEV.into());
    }
    empty(held, |_| true)?;
    Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

/// Removes the files and directories whose names `goes` accepts. Returns the number of entries, with those below.
pub(crate) fn empty(staging: impl AsFd + Copy, mut goes: impl FnMut(&str) -> bool) -> io::Result<u64> {
    let mut removed = 0;
    each_name(staging, |name| {
        if !goes(&name.to_string_lossy()) {
            return Ok(());
        }
        removed += match rustix::fs::unlinkat(staging, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => 1 + remove_dir(staging, name.to_bytes())?,
            // It was a directory that had been moved here from another one, and was removed with that.
            Err(Errno::NOENT) => 0,
            result => result.map(|()| 1)?,
        };
        Ok(())
    })?;
    Ok(removed)
}

/// Removes a directory of staging with all its content, and returns the number of entries that it had. Directories
/// below it are moved to staging first, so that only one is held open, however deep they are.
pub(crate) fn remove_dir(staging: impl AsFd + Copy, name: &[u8]) -> io::Result<u64> {
    let mut left = vec![name.to_vec()];
    let (mut moved, mut removed) = (0u64, 0);
    while let Some(name) = left.pop() {
        let dir = open_inside(staging, &name)?;
        each_name(&dir, |below| {
            match rustix::fs::unlinkat(&dir, below, AtFlags::empty()) {
                Err(Errno::ISDIR) => left.push(move_up(&dir, below, staging, &mut moved)?),
                result => result?,
            }
            removed += 1;
            Ok(())
        })?;
        rustix::fs::unlinkat(staging, &*name, AtFlags::REMOVEDIR)?;
    }
    Ok(removed)
}

/// Moves a directory to staging, under a new name, and returns the name.
fn move_up(dir: &OwnedFd, name: &CStr, staging: impl AsFd, moved: &mut u64) -> io::Result<Vec<u8>> {
    loop {
        *moved += 1;
        let aside = format!("{LEAVING}{moved}");
        match rustix::fs::mkdirat(&staging, &aside, Mode::RWXU) {
            Err(Errno::EXIST) => continue,
            result => result?,
        }
        rustix::fs::renameat(dir, name, &staging, &aside)?;
        return Ok(aside.into_bytes());
    }
}
