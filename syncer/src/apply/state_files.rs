//! The names that runs use in `.volferry/`, and how its folders are emptied.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};

use super::staging_names::{beside, name_noted, parent_noted};
use crate::root::{Root, each_name, open_child};

pub(super) const STAGING: &[u8] = b"staging";
pub(super) const JOURNAL: &[u8] = b"journal";
pub(super) const SHARDS: &[u8] = b"shards";
pub(super) const LOCK: &[u8] = b"lock";

/// The prefix of the names of directories in staging that are being removed.
const LEAVING: &str = "leaving-";

/// Returns whether runs make files of this name in `.volferry/` itself.
pub(super) fn is_made_by_runs(name: &str) -> bool {
    name.starts_with("dirty-") || ["lock", "volume", "volume.new", "epoch"].contains(&name)
}

/// Removes the files and directories whose names `goes` accepts.
pub(super) fn empty(staging: impl AsFd + Copy, mut goes: impl FnMut(&str) -> bool) -> io::Result<()> {
    each_name(staging, |name| {
        if !goes(&name.to_string_lossy()) {
            return Ok(());
        }
        match rustix::fs::unlinkat(staging, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => remove_dir(staging, name.to_bytes()),
            // It was a directory that had been moved here from another one, and was removed with that.
            Err(Errno::NOENT) => Ok(()),
            result => Ok(result?),
        }
    })
}

/// Removes a directory that was made beside its place, with all its content: directories in it are emptied as those in
/// staging are.
pub(super) fn remove_beside(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    let dir = open_child(parent, name, OFlags::RDONLY)?;
    empty(&dir, |_| true)?;
    Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

/// Removes the directory that the note of this name in staging is on, if it is empty. Its name has random bytes of a
/// run, so it cannot be a user's. Does nothing if there is no such note.
pub(super) fn remove_noted(root: &Root, staging: BorrowedFd<'_>, note: &str) {
    let Some(name) = name_noted(note) else { return };
    let Ok(target) = rustix::fs::readlinkat(staging, note, Vec::new()) else { return };
    if let Some(parent) = parent_noted(target.to_bytes()).and_then(|parent| root.dir(&parent).ok()) {
        let _ = rustix::fs::unlinkat(parent, beside(name), AtFlags::REMOVEDIR);
    }
}

/// Removes a directory of staging with all its content. Directories below it are moved to staging first, so that only
/// one is held open, however deep they are.
pub(super) fn remove_dir(staging: impl AsFd + Copy, name: &[u8]) -> io::Result<()> {
    let mut left = vec![name.to_vec()];
    let mut moved = 0u64;
    while let Some(name) = left.pop() {
        let dir = open_child(staging, &name, OFlags::RDONLY)?;
        each_name(&dir, |below| {
            match rustix::fs::unlinkat(&dir, below, AtFlags::empty()) {
                Err(Errno::ISDIR) => left.push(move_up(&dir, below, staging, &mut moved)?),
                result => result?,
            }
            Ok(())
        })?;
        rustix::fs::unlinkat(staging, &*name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
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
