//! Decides whether a folder is the `lost+found` of a file system, which is no part of the data.
//!
//! ext4 has one in the root of each volume: `e2fsck` puts what it recovers there, and it belongs to root. So that
//! others can sync the volume, a scan takes it as not there if they may not read it, or if it is empty, since they
//! could not give it the metadata of another one. No run deletes root's because the source has none.

use std::{ffi::CStr, io, os::fd::OwnedFd};

use rustix::fs::OFlags;

use crate::{
    entry::{Entry, Kind},
    sys::root::{each_name, open_child},
};

/// The name that `mkfs` and `fsck` give to it, in the root of a file system.
const NAME: &[u8] = b"lost+found";

/// Returns whether the folder `name` of the root, which belongs to user `uid`, is root's `lost+found` without anything
/// that this process may read.
pub(super) fn is_bare(root: &OwnedFd, name: &CStr, uid: u32) -> bool {
    let may_be = uid == 0 && name.to_bytes() == NAME && !rustix::process::geteuid().is_root();
    may_be
        && match open_child(root, NAME, OFlags::RDONLY).and_then(|folder| check_empty(&folder)) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
        }
}

fn check_empty(folder: &OwnedFd) -> io::Result<()> {
    each_name(folder, |_| Err(io::ErrorKind::DirectoryNotEmpty.into()))
}

/// Returns whether an entry of the root is a `lost+found` that belongs to root.
pub(crate) fn is_roots(entry: &Entry<'_>) -> bool {
    entry.kind == Kind::Dir && entry.name == NAME && entry.meta.owner.uid == 0
}
