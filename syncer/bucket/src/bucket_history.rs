//! A store in object storage as the source of a copy: answers by ranges of packs, each authenticated.

use syncer::snapshot::{
    Roots, SnapshotError,
    copy::{ContentPiece, HistorySource, OfferedHistory, ReceiveFolder, ReceivePiece, RequestedContent},
    store::{ContentRef, Folder, FolderRef},
};

use super::{
    blob::{BlobId, ContentPart},
    bucket_error::BucketError,
    bucket_store::BucketStore,
    known_packs::KnownPacks,
    pack_index::BlobIndex,
    read_blobs::lacks,
    store_list::StoreList,
};

/// A store that snapshots are copied from.
pub struct BucketHistory<'a> {
    store: &'a BucketStore,
    list: StoreList,
    index: BlobIndex,
    /// What ended the copy, as the caller says it.
    pub failed: Option<BucketError>,
    /// What is wrong with a list and with indexes that others were read in the place of.
    pub around: Vec<BucketError>,
}

impl std::fmt::Debug for BucketHistory<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BucketHistory").field("store", &self.store).finish_non_exhaustive()
    }
}

impl<'a> BucketHistory<'a> {
    /// Reads the list and the indexes of a store.
    ///
    /// # Errors
    /// If no list can be read.
    pub fn open(store: &'a BucketStore) -> Result<Self, BucketError> {
        let mut known = store.known_to_read()?;
        let around = known.take_around();
        let KnownPacks { list, index, .. } = known;
        Ok(Self { store, list, index, failed: None, around })
    }

    /// Returns the list.
    pub fn roots(&self) -> &Roots {
        &self.list.roots
    }

    /// Hands on a failure, which is kept if it ends the copy.
    fn fail(&mut self, error: BucketError) -> SnapshotError {
        let text = error.to_string();
        match error {
            BucketError::Snapshot(error) => error,
            error if error.is_of_an_object() => SnapshotError::Elsewhere(text),
            error => {
                self.failed = Some(error);
                SnapshotError::Link(std::io::Error::other(text))
            }
        }
    }
}

/// Passes an error of the one who takes on through the one who gives.
fn carried(result: Result<(), SnapshotError>) -> Result<(), BucketError> {
    result.map_err(BucketError::Snapshot)
}

impl HistorySource for BucketHistory<'_> {
    fn offer(&mut self) -> Result<OfferedHistory, SnapshotError> {
        Ok(OfferedHistory { volume: None, snapshots: self.list.roots.snapshots.clone() })
    }

    fn folders(&mut self, wanted: &[FolderRef], take: &mut ReceiveFolder<'_>) -> Result<(), SnapshotError> {
        let ids: Vec<BlobId> = wanted.iter().map(|folder| BlobId::folder(folder.id)).collect();
        let read = self.store.read_blobs(&self.index, &ids, &mut |nth, bytes| {
            let folder = Folder::decode(&bytes?).ok().filter(|folder| folder.id() == wanted[nth].id);
            carried(take(nth, folder.ok_or_else(|| lacks(self.store, &ids[nth]))?))
        });
        read.map_err(|error| self.fail(error))
    }

    fn allocated(&mut self, wanted: &[ContentRef]) -> Result<Vec<u64>, SnapshotError> {
        let data = |part: &ContentPart| match part {
            ContentPart::Data(_, len) => *len,
            ContentPart::Hole(_) => 0,
        };
        let all = self.store.parts(&self.index, wanted).map_err(|error| self.fail(error))?;
        Ok(all.iter().map(|parts| parts.iter().map(data).fold(0, u64::saturating_add)).collect())
    }

    fn contents(
        &mut self,
        wanted: &[RequestedContent],
        take: &mut ReceivePiece<'_>,
    ) -> Result<(), SnapshotError> {
        let passed = self.pass_contents(wanted, take);
        passed.map_err(|error| self.fail(error))
    }
}

impl BucketHistory<'_> {
    fn pass_contents(
        &self,
        wanted: &[RequestedContent],
        take: &mut ReceivePiece<'_>,
    ) -> Result<(), BucketError> {
        let contents: Vec<ContentRef> = wanted.iter().map(|asked| asked.content).collect();
        let parts = self.store.parts(&self.index, &contents)?;
        let numbered = parts.iter().enumerate().flat_map(|(nth, parts)| {
            let last = parts.len();
            parts.iter().enumerate().map(move |(at, part)| NumberedPart {
                nth,
                part: *part,
                is_last: at + 1 == last,
            })
        });
        let data = numbered.clone().filter_map(|numbered| match numbered.part {
            ContentPart::Data(id, _) => Some(BlobId::data(id)),
            ContentPart::Hole(_) => None,
        });
        let data: Vec<BlobId> = data.collect();
        let mut left = numbered;
        self.store.read_blobs(&self.index, &data, &mut |_, bytes| {
            let bytes = bytes?;
            for next in left.by_ref() {
                let is_data = matches!(next.part, ContentPart::Data(..));
                carried(next.pass(&bytes, take))?;
                if is_data {
                    break;
                }
            }
            Ok(())
        })?;
        left.try_for_each(|hole| carried(hole.pass(&[], take)))
    }
}

/// A part of the content of this number.
#[derive(Clone, Copy)]
struct NumberedPart {
    nth: usize,
    part: ContentPart,
    is_last: bool,
}

impl NumberedPart {
    /// Passes it on, and after the last one the end.
    fn pass(self, bytes: &[u8], take: &mut ReceivePiece<'_>) -> Result<(), SnapshotError> {
        take(
            self.nth,
            match self.part {
                ContentPart::Data(..) => ContentPiece::Data(bytes),
                ContentPart::Hole(len) => ContentPiece::Hole(len),
            },
        )?;
        if self.is_last { take(self.nth, ContentPiece::End) } else { Ok(()) }
    }
}
