//! Decides whether a directory is stored as a whole, or as its changes from its version in the last snapshot.

use crate::snapshot::store::{Folder, FolderChanges, FolderRef, Store};

/// The changes are stored if they are at most this fraction (1/n) of the directory's length.
const SHARE_OF_FOLDER: usize = 4;

/// Shorter directories are stored as a whole.
const SMALL_FOLDER_BYTES: usize = 256;

/// Encodes the changes of a directory of `len` bytes from its version in the last snapshot, or from the base of that
/// version. Returns `None` if it is to be stored as a whole, as also where neither can be read.
pub(super) fn small_changes(old: &FolderRef, folder: &Folder, len: usize, store: &Store) -> Option<Vec<u8>> {
    if len < SMALL_FOLDER_BYTES {
        return None;
    }
    let base = store.base_of(old).ok()?;
    let changes = FolderChanges::between(base.place, &base.folder, folder).encode();
    (changes.len() <= len / SHARE_OF_FOLDER).then_some(changes)
}
