//! Refuses names that a file system that folds case takes for those of other entries, or for Volferry's own folder.

use std::{
    io,
    os::fd::AsFd as _,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::{Mutex, MutexGuard};
use rustix::{
    fs::{AtFlags, Dir, OFlags},
    io::Errno,
};

use crate::{
    destination::{Destination, destination_error::ApplyError, remove_old_versions::EntryAt},
    path::{OWN_DIR, display},
    sys::root::open_child,
};

/// What is known of names that differ only in case.
#[derive(Debug, Default)]
pub(crate) struct CaseFolding {
    folds: AtomicBool,
    /// Held while an entry gets its name, so that no other gets it in between.
    turn: Mutex<()>,
}

impl Destination {
    /// Finds out whether the file system folds case, and checks that no name in the source's root is taken for
    /// Volferry's own folder at the destination.
    ///
    /// # Errors
    /// [`ApplyError::OwnName`] where one of the `names` is.
    pub fn check_names<'n>(&self, mut names: impl Iterator<Item = &'n [u8]>) -> Result<(), ApplyError> {
        // Asked once, so that the names of a large root need no look-up where case is not folded.
        let folds_case = self.folds_case();
        self.retire.case.folds.store(folds_case, Relaxed);
        let is_own =
            |name: &[u8]| name.eq_ignore_ascii_case(OWN_DIR) || is_unclear(name) && self.state.is_named(name);
        match names.find(|name| folds_case && is_own(name)) {
            Some(name) => Err(ApplyError::OwnName { path: self.path.clone(), name: display(name) }),
            None => Ok(()),
        }
    }

    /// Returns whether another name leads to Volferry's own folder: it does, or there is an entry that the root does
    /// not list. What is cached of one name of a folder may be older than what is cached of another.
    fn folds_case(&self) -> bool {
        let other = OWN_DIR.to_ascii_uppercase();
        let at = EntryAt::staged(self.root.as_fd(), &other);
        let is_there = rustix::fs::statat(at.dir, at.name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        is_there && (self.state.is_named(&other) || holder(at).is_ok_and(|holder| holder == Holder::Other))
    }
}

impl CaseFolding {
    /// Checks, before an entry that was planned as a new one gets its name, that it would not replace one whose name
    /// differs in case. Where case is folded, the caller holds what is returned until the entry has its name.
    ///
    /// # Errors
    /// That it would; or that the folder cannot be listed.
    pub(super) fn turn(&self, at: EntryAt<'_>) -> io::Result<Option<MutexGuard<'_, ()>>> {
        if !at.is_new || !self.folds.load(Relaxed) {
            return Ok(None);
        }
        let turn = self.turn.lock();
        match rustix::fs::statat(at.dir, at.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(Some(turn)),
            Ok(_) if holder(at)? == Holder::Other => Err(has_other_case()),
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
enum Holder {
    /// It has this very name: somebody made it since the plan was made.
    Itself,
    /// It may be one whose name differs in case.
    Other,
    /// There is none: the kernel takes names from a cache, which can be older than a delete.
    Nobody,
}

/// Finds the entry that a name leads to.
fn holder(at: EntryAt<'_>) -> io::Result<Holder> {
    let mut holder = Holder::Nobody;
    for entry in Dir::new(open_child(at.dir, b".", OFlags::RDONLY)?)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == at.name {
            return Ok(Holder::Itself);
        }
        if name.eq_ignore_ascii_case(at.name) || is_unclear(at.name) || is_unclear(name) {
            holder = Holder::Other;
        }
    }
    Ok(holder)
}

/// Returns whether it depends on the file system what other names lead to the same entry: it folds other letters, too,
/// or has short forms of names.
fn is_unclear(name: &[u8]) -> bool {
    name.contains(&b'~') || !name.is_ascii()
}
