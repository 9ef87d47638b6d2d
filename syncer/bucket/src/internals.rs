//! The decoders of what is sealed in a store, for fuzzers, which have no key. They may change with any commit.

use super::{blob, pack_index::PackIndex, store_list::StoreList};

/// Decodes a list, and encodes it again.
pub fn list(bytes: &[u8]) -> Option<Vec<u8>> {
    StoreList::decode(bytes).ok().map(|list| list.encode())
}

/// Decodes an index, and encodes it again.
pub fn index(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    PackIndex::decode_all(bytes).ok()?.iter().for_each(|pack| pack.encode(&mut out));
    Some(out)
}

/// Decodes a list of pieces, and encodes it again.
pub fn pieces(bytes: &[u8]) -> Option<Vec<u8>> {
    blob::decode_parts(bytes).ok().map(|parts| blob::encode_parts(&parts))
}

/// Returns the `len` bytes of a blob, if it has so many.
pub fn unpack(opened: &[u8], len: u64) -> Option<Vec<u8>> {
    blob::decompress(opened, len)
}

/// Returns what is sealed of a blob.
pub fn pack(plain: &[u8]) -> Vec<u8> {
    blob::compress(plain)
}

/// Returns samples of a list, without damage and with some, of an index, and of a list of pieces.
pub fn samples() -> [Vec<u8>; 4] {
    use super::{
        blob::{BlobId, ContentPart},
        pack_index::{ObjectName, PackOffset, PackedBlob},
    };
    use volferry_core::hash::ContentId;
    let [one, other] = [1, 2].map(|byte| ObjectName([byte; 16]));
    let list = StoreList { indexes: vec![one, other], dropped: [other].into(), ..StoreList::default() };
    let damaged = [PackOffset { pack: one, offset: 300 }].into();
    let id = ContentId([7; 32]);
    let blobs =
        [BlobId::data(id), BlobId::pieces(id)].map(|id| PackedBlob { id, offset: 9, len: 50, plain: 9 });
    let mut index = Vec::new();
    PackIndex { name: one, blobs: blobs.into() }.encode(&mut index);
    let pieces = blob::encode_parts(&[ContentPart::Hole(1 << 40), ContentPart::Data(id, 9)]);
    [list.encode(), StoreList { damaged, ..list }.encode(), index, pieces]
}
