//! The source's tree, as the sink can read it.

use crate::{session_error::SessionError, tree::dir::DirId, wire::Listed};

/// Supplies the listings of the source's tree.
pub(crate) trait SourceTree {
    /// Requests the listings of these directories.
    fn request(&mut self, dirs: &[DirId]) -> Result<(), SessionError>;

    /// Returns the oldest requested listing.
    fn next(&mut self) -> Result<Listed, SessionError>;
}
