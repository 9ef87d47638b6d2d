//! Reads files that decide who may use a service.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use rustix::fs::{StatVfsMountFlags, statvfs};

/// The permission of every user to write, and the bit of a folder by which only an entry's owner may remove it.
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Reads a file that not every user may write to or replace.
pub(crate) fn read_trusted(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    if file.metadata()?.permissions().mode() & OTHERS_WRITE != 0 {
        return Err(open_to_all("every user may write to it", path));
    }
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let is_open = fs::metadata(folder)?.permissions().mode() & (OTHERS_WRITE | STICKY) == OTHERS_WRITE;
    // Kubernetes mounts a ConfigMap as a folder that is open to all, and read-only.
    if is_open && !statvfs(folder)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Err(open_to_all("every user may replace it", folder));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

fn open_to_all(what: &str, path: &Path) -> io::Error {
    let why = format!("{what}\nhint: run `chmod o-w {}`", path.display());
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}
