//! The source's tree, as the end that plans can look at it.

use crate::{session::session_error::SessionError, tree::dir::DirId, wire::Listed};

/// The source's tree, as the sink can look at it.
pub(crate) trait SourceTree {
    /// Asks for the listings of these directories.
    fn request(&mut self, dirs: &[DirId]) -> Result<(), SessionError>;

    /// The listings that were asked for, in the order of asking.
    fn next(&mut self) -> Result<Listed, SessionError>;
}
