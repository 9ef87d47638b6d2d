//! A damaged object of a store, and the files and directories that need it.

use super::{
    content::ContentRef,
    folder::FolderRef,
    id::SnapshotId,
    snapshot_error::{SnapshotError, chain},
};
use crate::path::RelPath;

/// A damaged object.
#[derive(Debug)]
pub struct Damage {
    /// The object and its place.
    pub object: String,
    /// The error.
    pub error: String,
    /// The number of files and directories that need it, counted in each snapshot.
    pub count: u64,
    /// Their paths.
    pub files: Vec<DamagedPath>,
    /// The origin of the bytes that healed it.
    pub healed_from: Option<String>,
    pub(super) what: Damaged,
}

/// A path that needs a damaged object, in snapshots that follow one another in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedPath {
    /// The path.
    pub path: RelPath,
    /// The first of these snapshots.
    pub first: SnapshotId,
    /// The last of them.
    pub last: SnapshotId,
    /// Their number.
    pub snapshots: u64,
}

/// The kind of a damaged object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Damaged {
    /// The content of a file, and its length in bytes.
    Content(ContentRef, u64),
    /// A directory.
    Folder(FolderRef),
    /// The record of a snapshot at the end of its pack.
    Record(SnapshotId),
}

impl Damage {
    pub(super) fn new(what: Damaged, object: String, error: &SnapshotError) -> Self {
        Self { object, error: chain(error), count: 0, files: Vec::new(), healed_from: None, what }
    }
}
