//! Refuses names that a file system that folds case takes for those of other entries.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::{Mutex, MutexGuard};
use rustix::{
    fs::{AtFlags, Dir, OFlags},
    io::Errno,
};

use crate::sys::root::open_child;

/// What is known of names that differ only in case.
#[derive(Debug, Default)]
pub(crate) struct CaseFolding {
    pub(super) folds: AtomicBool,
    /// Held while an entry gets its name, so that no other gets it in between.
    turn: Mutex<()>,
}

impl CaseFolding {
    /// Checks, before an entry that was planned as a new one gets its name, that it would not replace one whose name
    /// differs in case. Where case is folded, the caller holds what is returned until the entry has its name.
    ///
    /// # Errors
    /// That it would; or that the folder cannot be listed.
    pub(super) fn turn(&self, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<MutexGuard<'_, ()>>> {
        if !self.folds.load(Relaxed) {
            return Ok(None);
        }
        let turn = self.turn.lock();
        match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(Some(turn)),
            Ok(_) if holder(dir, name)? == Holder::Other => Err(has_other_case()),
            Ok(_) => Ok(Some(turn)),
            Err(error) => Err(error.into()),
        }
    }

    /// Says why a new entry could not be made, where the reason is that another has its name in another case.
    pub(super) fn explain(&self, error: io::Error) -> io::Error {
        let is_taken = error.kind() == io::ErrorKind::AlreadyExists && self.folds.load(Relaxed);
        if is_taken { has_other_case() } else { error }
    }
}

fn has_other_case() -> io::Error {
    io::Error::other(
        "the destination has an entry whose name differs only in case, which is the same name there: rename one of the \
         two, leave it out with --exclude, or, if the source has only this one, run with --delete=before",
    )
}

/// The entry that a name leads to, as its folder lists it.
#[derive(Debug, PartialEq)]
pub(super) enum Holder {
    /// It has this very name: somebody made it since the plan was made.
    Itself,
    /// It may be one whose name differs in case.
    Other,
    /// There is none: the kernel takes names from a cache, which can be older than a delete.
    Nobody,
}

/// Finds the entry that a name leads to.
pub(super) fn holder(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Holder> {
    let mut holder = Holder::Nobody;
    for entry in Dir::new(open_child(dir, b".", OFlags::RDONLY)?)? {
        let entry = entry?;
        let listed = entry.file_name().to_bytes();
        if listed == name {
            return Ok(Holder::Itself);
        }
        if listed.eq_ignore_ascii_case(name) || is_unclear(name) || is_unclear(listed) {
            holder = Holder::Other;
        }
    }
    Ok(holder)
}

/// Returns whether it depends on the file system what other names lead to the same entry: it folds other letters, too,
/// or has short forms of names.
pub(super) fn is_unclear(name: &[u8]) -> bool {
    name.contains(&b'~') || !name.is_ascii()
}
