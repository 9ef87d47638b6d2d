//! Decides whether a folder is the `lost+found` of a file system, as far as it concerns only root.
//!
//! ext4 has one in the root of each volume: `e2fsck` puts what it recovers there, and only root may read it. To others it
//! is a part of the file system, as its journal is. So that a volume can be synced without root's rights, a scan takes a
//! `lost+found` that it may not read as not there, and no run deletes one that belongs to root.

use std::{ffi::CStr, os::fd::OwnedFd};

use rustix::fs::{Access, AtFlags};

use crate::entry::{Entry, Kind};

/// The name that `mkfs` and `fsck` give to it, in the root of a file system.
const NAME: &[u8] = b"lost+found";

/// Returns whether the folder `name` of the root, which belongs to user `uid`, is root's `lost+found` and closed to this
/// process.
pub(super) fn is_closed(root: &OwnedFd, name: &CStr, uid: u32) -> bool {
    let needed = Access::READ_OK | Access::EXEC_OK;
    uid == 0 && name.to_bytes() == NAME && rustix::fs::accessat(root, name, needed, AtFlags::EACCESS).is_err()
}

/// Returns whether an entry of the root is a `lost+found` that belongs to root, which no run deletes.
pub(crate) fn is_roots(entry: &Entry<'_>) -> bool {
    entry.kind == Kind::Dir && entry.name == NAME && entry.meta.owner.uid == 0
}
