//! The face of a store elsewhere, as a run sees it that takes a snapshot into it.

use std::collections::BTreeSet;

use crate::{
    hash::ContentId,
    snapshot::{
        check::{ReadPace, StoreShare, Verified},
        copy::ContentPiece,
        store::{Folder, FolderId, Roots, Snapshot, SnapshotError, SnapshotId},
    },
};

/// Receives a directory of an earlier snapshot, with its number in the request; `None` for one that cannot be read.
pub type ReceiveOldFolder<'t> = dyn FnMut(usize, Option<Folder>) + 't;

/// Changes the list of a store, beside a new snapshot.
pub type ChangeRoots<'t> = dyn FnMut(&mut Roots) -> Result<(), SnapshotError> + 't;

/// Names the snapshots of a list that go.
pub type JudgeRoots<'t> = dyn Fn(&Roots) -> Result<BTreeSet<SnapshotId>, SnapshotError> + 't;

/// The snapshots that were removed, and the bytes that this freed.
#[derive(Debug)]
pub struct RemovedSnapshots {
    /// The snapshots.
    pub snapshots: BTreeSet<SnapshotId>,
    /// The freed bytes.
    pub bytes: u64,
}

/// The part of a store that was checked, and what was found in it.
#[derive(Debug)]
pub struct VerifiedShare {
    /// The part.
    pub part: StoreShare,
    /// The result.
    pub verified: Verified,
}

/// A store elsewhere that takes a tree file by file, and shows it when all of it is there.
pub trait OffsiteStore {
    /// Returns its list as it was read or written last.
    fn roots(&self) -> &Roots;

    /// Passes on directories of earlier snapshots, in their order.
    ///
    /// # Errors
    /// If the store does not answer.
    fn old_folders(
        &mut self,
        wanted: &[FolderId],
        receive: &mut ReceiveOldFolder<'_>,
    ) -> Result<(), SnapshotError>;

    /// Returns whether it has a directory and all below it, as far as it knows.
    fn has_folder(&self, id: FolderId) -> bool;

    /// Returns whether it has content of `len` bytes.
    fn has_content(&self, id: ContentId, len: u64) -> bool;

    /// Begins content of `len` bytes, in the place of one that was not ended.
    fn begin_content(&mut self, len: u64);

    /// Takes the next piece of it.
    ///
    /// # Errors
    /// If it cannot be stored.
    fn add_piece(&mut self, piece: ContentPiece<'_>) -> Result<(), SnapshotError>;

    /// Ends the content, and returns its hash.
    ///
    /// # Errors
    /// If it cannot be stored.
    fn end_content(&mut self) -> Result<ContentId, SnapshotError>;

    /// Takes a directory, after all that is in it.
    ///
    /// # Errors
    /// If it cannot be stored.
    fn add_folder(&mut self, folder: &Folder) -> Result<FolderId, SnapshotError>;

    /// Waits until all that was taken is there.
    ///
    /// # Errors
    /// If it cannot be stored.
    fn finish(&mut self) -> Result<(), SnapshotError>;

    /// Returns the bytes that were written so far.
    fn written(&self) -> u64;

    /// Adds a snapshot of what was taken to the list. Returns false if somebody has removed objects meanwhile, so that
    /// all has to be compared again.
    ///
    /// # Errors
    /// If the list cannot be changed; an error of `change`.
    fn publish(&mut self, snapshot: &Snapshot, change: &mut ChangeRoots<'_>) -> Result<bool, SnapshotError>;

    /// Removes the snapshots that `judge` names, and what only they need.
    ///
    /// # Errors
    /// If a snapshot that stays cannot be read, or the list not be changed.
    fn remove(&mut self, judge: &JudgeRoots<'_>) -> Result<RemovedSnapshots, SnapshotError>;

    /// Checks the next of `of` parts of it. What is damaged is sent again by the next runs that have it.
    ///
    /// # Errors
    /// If it does not answer, or its list is damaged.
    fn verify(&mut self, of: u64, pace: &ReadPace<'_>) -> Result<VerifiedShare, SnapshotError>;
}
