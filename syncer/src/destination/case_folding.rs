//! Refuses names that a file system that folds case takes for Volferry's own folder.

use crate::{
    destination::{Destination, destination_error::ApplyError},
    path::{OWN_DIR, display},
};

impl Destination {
    /// Checks that no name in the source's root is taken for Volferry's own folder at the destination.
    ///
    /// # Errors
    /// [`ApplyError::OwnName`] where the file system folds case and takes one of the `names` for that folder.
    pub fn check_names<'n>(&self, mut names: impl Iterator<Item = &'n [u8]>) -> Result<(), ApplyError> {
        // Asked once, so that the names of a large root need no look-up where case is not folded.
        let folds_case = self.state.is_named(&OWN_DIR.to_ascii_uppercase());
        match names.find(|name| folds_case && self.state.is_named(name)) {
            Some(name) => Err(ApplyError::OwnName { path: self.path.clone(), name: display(name) }),
            None => Ok(()),
        }
    }
}
