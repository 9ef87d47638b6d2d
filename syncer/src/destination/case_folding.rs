//! Refuses names that a file system that folds case takes for those of other entries, or for Volferry's own folder.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::{Mutex, MutexGuard};
use rustix::{
    fs::{AtFlags, Dir},
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
        let folds_case = self.state.is_named(&OWN_DIR.to_ascii_uppercase());
        self.retire.case.folds.store(folds_case, Relaxed);
        match names.find(|name| folds_case && self.state.is_named(name)) {
            Some(name) => Err(ApplyError::OwnName { path: self.path.clone(), name: display(name) }),
            None => Ok(()),
        }
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
            // Somebody else made an entry of this very name since the plan was made.
            Ok(_) if is_listed(at)? => Ok(Some(turn)),
            Ok(_) => Err(has_other_case()),
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

/// Returns whether its folder lists an entry by exactly its name.
fn is_listed(at: EntryAt<'_>) -> io::Result<bool> {
    let entries = Dir::new(open_child(&at.dir, b".", rustix::fs::OFlags::RDONLY)?)?;
    for entry in entries {
        if entry?.file_name().to_bytes() == at.name {
            return Ok(true);
        }
    }
    Ok(false)
}
