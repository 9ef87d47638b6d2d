//! Reads blobs by ranges of packs, each authenticated.

use std::ops::Range;

use syncer::snapshot::store::ContentRef;

use super::{
    blob::{BlobId, BlobKind, ContentPart, decode_parts, decompress},
    bucket_error::BucketError,
    bucket_store::{BucketStore, NOT_SEALED},
    index::{BlobIndex, BlobPlace, ObjectName, pack_path},
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

impl BucketStore {
    /// Reads blobs, decrypts each, and passes it on: in their order, and at last those of ranges that are damaged.
    pub(crate) fn read_blobs(
        &self,
        index: &BlobIndex,
        ids: &[BlobId],
        receive: &mut ReceiveBlob<'_>,
    ) -> Result<(), BucketError> {
        let place = |id: &BlobId| index.get(id).ok_or_else(|| lacks(self, id));
        let places: Vec<BlobPlace> = ids.iter().map(place).collect::<Result<_, _>>()?;
        let ranges = ranges_of(&places);
        let pack = |range: &ReadRange| pack_path(index.packs()[range.pack as usize]);
        let asked: Vec<_> = ranges.iter().map(|range| (pack(range), range.range.clone())).collect();
        let (mut nth, mut alone) = (0, Vec::new());
        self.objects.get_ranges(&asked, &mut |number, bytes| {
            let ReadRange { range, blobs, .. } = &ranges[number];
            let first = nth;
            nth += blobs;
            match bytes {
                Ok(bytes) => (first..nth).try_for_each(|nth| {
                    let place = &places[nth];
                    let from = (place.offset - range.start) as usize;
                    let sealed = &bytes[from..from + place.len as usize];
                    receive(nth, self.open_blob(index.pack(place), place, &ids[nth], sealed))
                }),
                Err(error) if error.is_of_an_object() && *blobs == 1 => receive(first, Err(error)),
                // Of a range that is cut off, some blobs may be whole.
                Err(error) if error.is_of_an_object() => {
                    alone.extend(first..nth);
                    Ok(())
                }
                Err(error) => Err(error),
            }
        })?;
        alone.into_iter().try_for_each(|nth| {
            let one = &ids[nth..=nth];
            self.read_blobs(index, one, &mut |_, bytes| receive(nth, bytes))
        })
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
