//! Reads files that decide who may use a service.

use std::{fs::File, io, io::Read as _, os::unix::fs::PermissionsExt as _, path::Path};

/// The permission of every user to write.
const OTHERS_WRITE: u32 = 0o002;

/// Reads a file that not every user may write to.
pub(crate) fn read_trusted(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    if file.metadata()?.permissions().mode() & OTHERS_WRITE != 0 {
        let why = format!("every user may write to it\nhint: run `chmod o-w {}`", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}
