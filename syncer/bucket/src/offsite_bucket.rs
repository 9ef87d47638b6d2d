//! A store in object storage, as a run takes a snapshot into it.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use contract::{BucketUrl, StoreKey, chain};
use futures::FutureExt as _;
use syncer::snapshot::{
    Roots, Snapshot, SnapshotError, SnapshotId,
    check::ReadPace,
    copy::ContentPiece,
    offsite::{ChangeRoots, JudgeRoots, OffsiteStore, ReceiveOldFolder, RemovedSnapshots, VerifiedShare},
    store::{EncodedFolder, Folder, FolderId},
};
use volferry_core::hash::ContentId;

use super::{
    blob::BlobId,
    bucket_error::BucketError,
    bucket_store::BucketStore,
    content_sender::ContentSender,
    pack_writer::PackWriter,
    prune_store::{PrunedStore, prune_store},
    send_history::{Published, WritableStore, packs_of, publish_snapshot},
    store_list::StoreList,
    verify_turn::{CheckedTurn, verify_in_turn},
};

/// A store that is open for a snapshot.
pub struct OffsiteBucket {
    store: Arc<BucketStore>,
    list: StoreList,
    packs: PackWriter,
    /// The content that is on its way.
    sender: ContentSender,
    /// Bytes of packs that were written before `packs` began.
    written: u64,
}

impl std::fmt::Debug for OffsiteBucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OffsiteBucket").field("store", &self.store).finish_non_exhaustive()
    }
}

impl OffsiteBucket {
    /// Opens the store at `url`, and makes it if the place is empty. No request goes on after `stop`.
    ///
    /// # Errors
    /// If it cannot be read or made, or the key is another one.
    pub fn open(
        url: &BucketUrl,
        key: &StoreKey,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Self, BucketError> {
        let store = Arc::new(BucketStore::open_or_make_until(url, key, stop.boxed().shared())?);
        let WritableStore { list, packs, .. } = packs_of(&store)?;
        Ok(Self { store, list, packs, sender: ContentSender::new(0), written: 0 })
    }

    /// Removes snapshots whose trees others have as well: nothing but the list changes. Returns `None` if some tree
    /// would go.
    fn remove_from_list(
        &mut self,
        judge: &JudgeRoots<'_>,
    ) -> Result<Option<BTreeSet<SnapshotId>>, BucketError> {
        let mut removed = None;
        self.list = self.store.change(&mut |list| {
            let gone = judge(&list.roots)?;
            let (go, stay): (Vec<_>, Vec<_>) =
                list.roots.snapshots.iter().partition(|it| gone.contains(&it.id));
            let kept: HashSet<FolderId> = stay.into_iter().map(|it| it.tree.id).collect();
            let is_free = go.iter().all(|it| kept.contains(&it.tree.id));
            removed = is_free.then(|| gone.clone());
            if is_free {
                list.roots.snapshots.retain(|it| !gone.contains(&it.id));
                list.gone.extend(&gone);
            }
            Ok(is_free && !gone.is_empty())
        })?;
        Ok(removed)
    }
}

/// Says why the store cannot be used, as a run reports it.
pub fn offsite(error: BucketError) -> SnapshotError {
    match error {
        BucketError::Snapshot(error) => error,
        error => {
            let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            let exit = match error {
                BucketError::Variable { .. } => error.exit(),
                _ => error.reason().exit(),
            };
            SnapshotError::Offsite {
                reason: error.reason(),
                exit,
                message: format!("{}{hint}", chain(&error)),
            }
        }
    }
}

impl OffsiteStore for OffsiteBucket {
    fn roots(&self) -> &Roots {
        &self.list.roots
    }

    fn old_folders(
        &mut self,
        wanted: &[FolderId],
        receive: &mut ReceiveOldFolder<'_>,
    ) -> Result<(), SnapshotError> {
        let ids = wanted.iter().map(|id| BlobId::folder(*id)).enumerate();
        let there = ids.filter(|(_, id)| self.packs.index.get(id).is_some());
        let (places, ids): (Vec<usize>, Vec<BlobId>) = there.unzip();
        let read = self.store.read_blobs(&self.packs.index, &ids, &mut |nth, bytes| {
            let folder = bytes.ok().and_then(|bytes| Folder::decode(&bytes).ok());
            receive(places[nth], folder.filter(|folder| BlobId::folder(folder.id()) == ids[nth]));
            Ok(())
        });
        read.map_err(offsite)
    }

    fn has_folder(&self, id: FolderId) -> bool {
        self.packs.has(&BlobId::folder(id))
    }

    fn has_content(&self, id: ContentId, len: u64) -> bool {
        self.packs.has(&BlobId::content(id, len))
    }

    fn begin_content(&mut self, len: u64) {
        self.sender = ContentSender::new(len);
    }

    fn add_piece(&mut self, piece: ContentPiece<'_>) -> Result<(), SnapshotError> {
        self.sender.push(piece, &mut self.packs).map_err(offsite)
    }

    fn end_content(&mut self) -> Result<ContentId, SnapshotError> {
        let id = self.sender.finish(&mut self.packs).map_err(offsite)?;
        id.ok_or_else(|| SnapshotError::Elsewhere("content has another length than was told".into()))
    }

    fn add_folder(&mut self, folder: &Folder) -> Result<FolderId, SnapshotError> {
        let EncodedFolder { id, bytes } = folder.encode();
        self.packs.add_folder(folder, id, &bytes).map_err(offsite)?;
        Ok(id)
    }

    fn finish(&mut self) -> Result<(), SnapshotError> {
        self.packs.finish().map_err(offsite)
    }

    fn written(&self) -> u64 {
        self.written + self.packs.written
    }

    fn publish(&mut self, snapshot: &Snapshot, change: &mut ChangeRoots<'_>) -> Result<bool, SnapshotError> {
        let published = publish_snapshot(&self.store, &mut self.list, &mut self.packs, snapshot, change);
        match published.map_err(offsite)? {
            Published::Done => Ok(true),
            Published::Pruned => {
                self.written += self.packs.written;
                // The packs that were sent are found by their ends.
                WritableStore { list: self.list, packs: self.packs, .. } =
                    packs_of(&self.store).map_err(offsite)?;
                Ok(false)
            }
        }
    }

    fn remove(&mut self, judge: &JudgeRoots<'_>) -> Result<RemovedSnapshots, SnapshotError> {
        if let Some(snapshots) = self.remove_from_list(judge).map_err(offsite)? {
            return Ok(RemovedSnapshots { snapshots, bytes: 0 });
        }
        let PrunedStore { snapshots, bytes, .. } = prune_store(&self.store, judge, false).map_err(offsite)?;
        self.list = self.store.list().map_err(offsite)?;
        Ok(RemovedSnapshots { snapshots, bytes })
    }

    fn verify(&mut self, of: u64, pace: &ReadPace<'_>) -> Result<VerifiedShare, SnapshotError> {
        // Where nothing can be noted, the next run checks this part again.
        let CheckedTurn { part, checked, noted: _ } =
            verify_in_turn(&self.store, of, pace, true).map_err(offsite)?;
        Ok(VerifiedShare { part, verified: checked.verified })
    }
}
