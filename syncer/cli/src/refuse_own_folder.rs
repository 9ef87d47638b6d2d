//! Refuses to write what commands leave beside their runs into the folders `.volferry` of volumes.

use std::{io, path::Path};

use syncer::{locate::refuse_own, root::TreeLocation};

/// Refuses to write to a `folder` that is a volume's own or lies below it, by whatever link or mount it is named.
///
/// # Errors
/// A sentence that names the folder.
pub(crate) fn check(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    refuse_own(&TreeLocation::from(folder)).map_err(io::Error::other)
}
