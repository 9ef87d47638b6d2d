//! Reads blobs by ranges of packs, each authenticated.

use std::{ops::Range, sync::Arc};

use syncer::snapshot::store::ContentRef;

use super::{
    blob::{BlobId, BlobKind, ContentPart, decode_parts, decompress},
    bucket_error::BucketError,
    bucket_store::{BucketStore, NOT_SEALED},
    pack_index::{BlobIndex, BlobPlace, NewerIndex, ObjectName, pack_path},
    pack_writer::blob_place,
};

/// The longest range that is read at once, unless one blob is longer.
const RANGE_BYTES: u64 = 4 << 20;

/// Blobs that are not asked for are read with others if they are no longer than this together.
const GAP_BYTES: u64 = 64 << 10;

/// Returns the error for a blob that no index names.
pub(crate) fn lacks(store: &BucketStore, id: &BlobId) -> BucketError {
    let what = match id.kind {
        BlobKind::Folder => "directory",
        BlobKind::Data => "content",
        BlobKind::Pieces => "the pieces of content",
    };
    let hash = id.hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    BucketError::Lacks { url: store.url().clone(), what, id: hash }
}

/// Some blobs that are read by one request: the pack, its range, and the number of blobs.
struct ReadRange {
    pack: u32,
    range: Range<u64>,
    blobs: usize,
}

/// Puts the reads of neighbors together.
fn ranges_of(places: &[BlobPlace]) -> Vec<ReadRange> {
    let mut ranges: Vec<ReadRange> = Vec::new();
    for place in places {
        let end = place.offset + u64::from(place.len);
        match ranges.last_mut() {
            Some(last)
                if last.pack == place.pack
                    && place.offset >= last.range.end
                    && place.offset - last.range.end <= GAP_BYTES
                    && end - last.range.start <= RANGE_BYTES =>
            {
                last.range.end = end;
                last.blobs += 1;
            }
            _ => ranges.push(ReadRange { pack: place.pack, range: place.offset..end, blobs: 1 }),
        }
    }
    ranges
}

/// Receives the bytes of a blob, or what is wrong with it, with its number in the request.
pub(crate) type ReceiveBlob<'t> =
    dyn FnMut(usize, Result<Vec<u8>, BucketError>) -> Result<(), BucketError> + 't;

/// Takes over blobs whose pack is missing, which is named, with the one who receives them.
type TakeOverGone<'t> = dyn FnMut(&[BlobId], &str, &mut ReceiveBlob<'_>) -> Result<(), BucketError> + 't;

impl BucketStore {
    /// Reads blobs, decrypts each, and passes it on, in their order. Those that a prune has moved meanwhile are read at
    /// their new places.
    pub(crate) fn read_blobs(
        &self,
        index: &BlobIndex,
        ids: &[BlobId],
        receive: &mut ReceiveBlob<'_>,
    ) -> Result<(), BucketError> {
        self.read_at(index, ids, receive, &mut |ids, _, receive| self.read_moved(ids, receive))
    }

    /// Reads blobs at these places. `gone` takes over those of a pack that is missing.
    fn read_at(
        &self,
        index: &BlobIndex,
        ids: &[BlobId],
        receive: &mut ReceiveBlob<'_>,
        gone: &mut TakeOverGone<'_>,
    ) -> Result<(), BucketError> {
        let place = |id: &BlobId| index.get(id).ok_or_else(|| lacks(self, id));
        let places: Vec<BlobPlace> = ids.iter().map(place).collect::<Result<_, _>>()?;
        let ranges = ranges_of(&places);
        let pack = |range: &ReadRange| pack_path(index.packs()[range.pack as usize]);
        let asked: Vec<_> = ranges.iter().map(|range| (pack(range), range.range.clone())).collect();
        let mut end = 0;
        self.objects.get_ranges(&asked, &mut |number, bytes| {
            let ReadRange { range, blobs, .. } = &ranges[number];
            let mut some = end..end + blobs;
            end = some.end;
            match bytes {
                Ok(bytes) => some.try_for_each(|nth| {
                    let place = &places[nth];
                    let from = (place.offset - range.start) as usize;
                    let sealed = &bytes[from..from + place.len as usize];
                    receive(nth, self.open_blob(index.pack(place), place, &ids[nth], sealed))
                }),
                Err(BucketError::Missing { .. }) => {
                    gone(&ids[some.clone()], &asked[number].0, &mut |nth, bytes| {
                        receive(some.start + nth, bytes)
                    })
                }
                Err(error) if error.is_of_an_object() && *blobs == 1 => receive(some.start, Err(error)),
                // Of a range that is cut off, some blobs may be whole.
                Err(error) if error.is_of_an_object() => some.try_for_each(|nth| {
                    let one = &ids[nth..=nth];
                    self.read_at(index, one, &mut |_, bytes| receive(nth, bytes), gone)
                }),
                Err(error) => Err(error),
            }
        })
    }

    /// Reads blobs whose pack is gone where the newest list has them: a prune has moved them, or they are lost.
    fn read_moved(&self, ids: &[BlobId], receive: &mut ReceiveBlob<'_>) -> Result<(), BucketError> {
        let index = self.newest_index()?;
        let mut lost = |ids: &[BlobId], pack: &str, receive: &mut ReceiveBlob<'_>| {
            (0..ids.len()).try_for_each(|nth| receive(nth, Err(self.objects.missing(pack))))
        };
        if ids.iter().all(|id| index.get(id).is_some()) {
            return self.read_at(&index, ids, receive, &mut lost);
        }
        ids.iter().enumerate().try_for_each(|(nth, id)| match index.get(id) {
            None => receive(nth, Err(lacks(self, id))),
            Some(_) => self.read_at(&index, &[*id], &mut |_, bytes| receive(nth, bytes), &mut lost),
        })
    }

    /// Returns the index of the newest list, which is read again only after another prune.
    fn newest_index(&self) -> Result<Arc<BlobIndex>, BucketError> {
        let collections = self.list_to_read()?.list.roots.collections;
        let mut newer = self.newer.lock();
        if let Some(newer) = newer.as_ref().filter(|newer| newer.collections == collections) {
            return Ok(Arc::clone(&newer.index));
        }
        let known = self.known_to_read()?;
        let index = Arc::new(known.index);
        *newer = Some(NewerIndex { collections: known.list.roots.collections, index: Arc::clone(&index) });
        Ok(index)
    }

    /// Decrypts a blob.
    fn open_blob(
        &self,
        pack: ObjectName,
        place: &BlobPlace,
        id: &BlobId,
        sealed: &[u8],
    ) -> Result<Vec<u8>, BucketError> {
        let opened = self.seal.open(&blob_place(pack, place.offset, id), sealed);
        let plain = opened.and_then(|opened| decompress(&opened, place.plain.into()));
        plain.ok_or_else(|| self.objects.damaged(&pack_path(pack), NOT_SEALED))
    }

    /// Returns the parts of each of these contents.
    pub(crate) fn parts(
        &self,
        index: &BlobIndex,
        contents: &[ContentRef],
    ) -> Result<Vec<Vec<ContentPart>>, BucketError> {
        let whole = |content: &ContentRef| {
            let place = index.get(&BlobId::data(content.id))?;
            Some(vec![ContentPart::Data(content.id, place.plain.into())])
        };
        let mut parts: Vec<Option<Vec<ContentPart>>> = contents.iter().map(whole).collect();
        let missing = |(nth, parts): (usize, &Option<_>)| parts.is_none().then_some(nth);
        let long: Vec<usize> = parts.iter().enumerate().filter_map(missing).collect();
        let ids: Vec<BlobId> = long.iter().map(|nth| BlobId::pieces(contents[*nth].id)).collect();
        self.read_blobs(index, &ids, &mut |nth, bytes| {
            parts[long[nth]] = decode_parts(&bytes?).ok();
            Ok(())
        })?;
        let all = parts.into_iter().zip(contents);
        all.map(|(parts, of)| parts.ok_or_else(|| lacks(self, &BlobId::pieces(of.id)))).collect()
    }
}
