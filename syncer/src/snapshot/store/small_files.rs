//! Reads and replaces small files of a store, such as the notes of checks.

use std::io;

use super::{
    read_store::Store,
    snapshot_error::{SnapshotError, io_error},
    store_files::{read_regular, write_new},
};

/// Reads a small file of the store; one that is missing, too long or not text counts as empty.
pub(crate) fn read_text_file(store: &Store, name: &str, most: u64) -> Result<String, SnapshotError> {
    match read_regular(store.dir(), name, most) {
        Ok(text) => Ok(String::from_utf8(text).unwrap_or_default()),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(String::new()),
        Err(error) => Err(io_error("read", store.path().join(name))(error)),
    }
}

/// Replaces a file of the store by one rename.
pub(crate) fn replace_file(store: &Store, name: &str, bytes: &[u8]) -> Result<(), SnapshotError> {
    let replace = || -> io::Result<()> {
        let (dir, new) = (store.dir(), format!("{name}.new"));
        rustix::fs::fsync(write_new(dir, &new, bytes)?)?;
        Ok(rustix::fs::renameat(dir, &new, dir, name)?)
    };
    replace().map_err(io_error("write", store.path().join(name)))
}
