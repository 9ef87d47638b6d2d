//! Walks the trees of snapshots by their directories alone.

use std::collections::HashSet;

use syncer::{
    path::RelPath,
    snapshot::store::{Folder, FolderId},
};

use super::{
    blob::BlobId, bucket_error::BucketError, bucket_store::BucketStore, pack_index::BlobIndex,
    read_blobs::lacks,
};

/// The directories that are asked for at once.
const BATCH: usize = 4096;

/// Receives a directory, or what is wrong with it, with its path and its id.
pub(crate) type VisitFolder<'v> =
    dyn FnMut(&RelPath, FolderId, Result<&Folder, BucketError>) -> Result<(), BucketError> + 'v;

/// A walk that goes through no directory twice.
pub(crate) struct TreeWalk<'a> {
    store: &'a BucketStore,
    index: &'a BlobIndex,
    seen: HashSet<FolderId>,
}

impl<'a> TreeWalk<'a> {
    pub(crate) fn new(store: &'a BucketStore, index: &'a BlobIndex) -> Self {
        Self { store, index, seen: HashSet::new() }
    }

    /// Visits a directory and all below it, unless they were visited before.
    pub(crate) fn walk(&mut self, root: FolderId, visit: &mut VisitFolder<'_>) -> Result<(), BucketError> {
        let mut left = vec![(RelPath::root(), root)];
        while !left.is_empty() {
            let mut some = left.split_off(left.len().saturating_sub(BATCH));
            some.retain(|(_, id)| self.seen.insert(*id));
            let (there, missing): (Vec<_>, Vec<_>) =
                some.into_iter().partition(|(_, id)| self.index.get(&BlobId::folder(*id)).is_some());
            for (path, id) in &missing {
                visit(path, *id, Err(lacks(self.store, &BlobId::folder(*id))))?;
            }
            let ids: Vec<BlobId> = there.iter().map(|(_, id)| BlobId::folder(*id)).collect();
            self.store.read_blobs(self.index, &ids, &mut |nth, bytes| {
                let (path, id) = &there[nth];
                let read = bytes.and_then(|bytes| {
                    let folder = Folder::decode(&bytes).ok().filter(|folder| folder.id() == *id);
                    folder.ok_or_else(|| lacks(self.store, &ids[nth]))
                });
                match read {
                    Err(error) => visit(path, *id, Err(error)),
                    Ok(folder) => {
                        for (name, child) in folder.subfolders() {
                            left.push((path.join(name).unwrap_or_else(|_| path.clone()), child.id));
                        }
                        visit(path, *id, Ok(&folder))
                    }
                }
            })?;
        }
        Ok(())
    }
}
