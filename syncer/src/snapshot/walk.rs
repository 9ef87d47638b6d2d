//! Visits every directory of several snapshots once.

use std::collections::HashSet;

use super::{
    folder::{Folder, FolderRef, ObjectRef},
    roots::Snapshot,
    snapshot_error::SnapshotError,
    store::Store,
};
use crate::{entry::Kind, path::RelPath};

/// A directory of a snapshot.
pub(super) struct Visited<'a> {
    /// Its path.
    pub path: &'a RelPath,
    /// The reference of its parent to it.
    pub folder: &'a FolderRef,
}

/// Receives a directory, or the reason why it cannot be read.
pub(super) type VisitFolder<'a> =
    dyn FnMut(&Visited<'_>, Result<&Folder, SnapshotError>) -> Result<(), SnapshotError> + 'a;

/// Reads every directory of these snapshots. A directory that several of them share is visited once, for the first of
/// them.
///
/// # Errors
/// Any error of `visit`.
pub(super) fn walk<'s>(
    store: &Store,
    snapshots: impl Iterator<Item = &'s Snapshot>,
    visit: &mut VisitFolder<'_>,
) -> Result<(), SnapshotError> {
    let mut seen: HashSet<ObjectRef> = HashSet::new();
    for snapshot in snapshots {
        let mut stack = vec![(snapshot.tree, RelPath::root())];
        while let Some((folder, path)) = stack.pop() {
            if !seen.insert(folder.place) {
                continue;
            }
            let visited = Visited { path: &path, folder: &folder };
            let read = store.folder(&folder);
            if let Ok(read) = &read {
                let names =
                    read.listing.iter().filter(|entry| entry.kind == Kind::Dir).map(|entry| entry.name);
                let below = names.zip(&read.children).map(|(name, child)| (*child, path.join(name)));
                stack.extend(below.map(|(child, below)| (child, below.unwrap_or_else(|_| path.clone()))));
            }
            match read {
                Ok(read) => visit(&visited, Ok(&read))?,
                Err(error) => visit(&visited, Err(error))?,
            }
        }
    }
    Ok(())
}
