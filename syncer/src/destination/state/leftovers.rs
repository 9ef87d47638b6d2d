//! The files that earlier runs left in staging: which of them a run continues with, and how the others are removed.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::{fs::AtFlags, io::Errno};

use crate::{
    destination::state::{
        made_beside::{name_noted, remove_noted},
        private_dir::Private,
        staging_names::{blocks_name, key_of, part_of_blocks},
        state_names::empty,
    },
    sys::root::Root,
};

/// A partial file that a run that was cut off left.
#[derive(Debug)]
pub struct Leftover<T> {
    /// The file, or its name.
    pub part: T,
    /// Whether an earlier run has taken it already and left nothing better.
    pub was_tried: bool,
}

/// Removes all files except one partial file for each key, the one with the most content, and the directories that a
/// crash has left beside their places in the tree at `root`. Returns the names of the partial files by their keys.
pub(crate) fn sweep(root: &OwnedFd, staging: &Private) -> io::Result<HashMap<String, String>> {
    let mut parts: HashMap<String, String> = HashMap::new();
    let mut noted = Vec::new();
    empty(staging, |name| {
        if let Some(part) = part_of_blocks(name) {
            noted.push(part.to_owned());
            return false;
        }
        if name_noted(name).is_some()
            && let Ok(root) = root.try_clone()
        {
            remove_noted(&Root::of_dir(root), staging.as_fd(), name);
        }
        let Some(key) = key_of(name) else { return true };
        let Some(other) = parts.get(key) else {
            parts.insert(key.to_owned(), name.to_owned());
            return false;
        };
        // The other one is removed by its own name, and this one stays.
        if blocks(staging, name) < blocks(staging, other) || unlink(staging, other).is_err() {
            return true;
        }
        parts.insert(key.to_owned(), name.to_owned());
        false
    })?;
    let is_left = |part: &String| key_of(part).and_then(|key| parts.get(key)) == Some(part);
    noted.iter().filter(|part| !is_left(part)).try_for_each(|part| unlink(staging, &blocks_name(part)))?;
    Ok(parts)
}

/// Returns the number of 512-byte blocks allocated for a file; 0 if it cannot be read.
pub(crate) fn blocks(staging: &Private, name: &str) -> u64 {
    rustix::fs::statat(staging, name, AtFlags::SYMLINK_NOFOLLOW).map_or(0, |stat| stat.st_blocks as u64)
}

/// Returns the names of the partial files that earlier runs left, by their keys. Other processes of the run of this
/// `word` may work in `staging` meanwhile.
pub(crate) fn parts_before(staging: &Private, word: &str) -> io::Result<HashMap<String, String>> {
    let mut parts = HashMap::new();
    empty(staging, |name| {
        if let Some(key) = key_of(name).filter(|_| !name.contains(word)) {
            parts.insert(key.to_owned(), name.to_owned());
        }
        false
    })?;
    Ok(parts)
}

/// Removes a file, and the record of its blocks if it is a partial file.
pub(crate) fn drop_file(staging: &Private, name: &str) -> io::Result<()> {
    if key_of(name).is_some() {
        unlink(staging, &blocks_name(name))?;
    }
    unlink(staging, name)
}

pub(crate) fn unlink(staging: &Private, name: &str) -> io::Result<()> {
    match rustix::fs::unlinkat(staging, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        result => Ok(result?),
    }
}
