//! Decides whether a folder at the top of a tree is the `lost+found` of its file system.
//!
//! `mkfs.ext4` makes one in each volume, for what `e2fsck` recovers, and gives it to user 0. Other users could neither
//! read one that is closed nor give an empty one the metadata of another. So that they can sync the volume, and a fresh
//! volume counts as empty, a scan takes both as not there. What is in one that the process may read is data.

use std::{ffi::CStr, io, os::fd::OwnedFd};

use rustix::fs::OFlags;

use crate::{
    entry::{Entry, Kind},
    sys::root::{each_name, open_child},
};

/// The name by which `e2fsck` finds it.
const NAME: &[u8] = b"lost+found";

/// Returns whether the folder `name` of a tree's `root`, which belongs to user `uid`, is a `lost+found` of user 0 in
/// which this process can read nothing.
pub(super) fn is_bare(root: &OwnedFd, name: &CStr, uid: u32) -> bool {
    (uid == 0 && name.to_bytes() == NAME)
        && match open_child(root, NAME, OFlags::RDONLY).and_then(|folder| check_empty(&folder)) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
        }
}

fn check_empty(folder: &OwnedFd) -> io::Result<()> {
    each_name(folder, |_| Err(io::ErrorKind::DirectoryNotEmpty.into()))
}

/// Returns whether an entry of a tree's root is a `lost+found`, which no run deletes because the source has none: the
/// source may have one that it cannot read any more. A copy belongs to whoever made it.
pub(crate) fn is_spared(entry: &Entry<'_>) -> bool {
    entry.kind == Kind::Dir && entry.name == NAME
}
