//! Refuses names that a file system that folds case takes for Volferry's own folder.

use std::{os::fd::AsFd as _, sync::atomic::Ordering::Relaxed};

use rustix::fs::AtFlags;

use super::{destination_error::ApplyError, writable_tree::Destination};
use crate::{
    path::{OWN_DIR, display},
    sys::listed_name::{Holder, holder, is_unclear},
};

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
        let root = self.root.as_fd();
        let is_there = rustix::fs::statat(root, &*other, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let is_another = || holder(root, &other).is_ok_and(|holder| holder == Holder::Other);
        is_there && (self.state.is_named(&other) || is_another())
    }
}
