//! What packs are made of: directories, contents, and the lists of pieces that long contents are stored as.

use syncer::snapshot::store::FolderId;
use volferry_core::{
    codec::{DecodeError, Reader, put_varint},
    hash::ContentId,
};

/// The longest content that is stored as one blob, in bytes. Longer ones are stored in pieces.
pub(crate) const MAX_WHOLE: u64 = 1 << 20;

/// The longest blob that is read, in bytes: a directory of millions of entries.
pub(crate) const MAX_BLOB: u64 = 1 << 30;

/// Shorter blobs are not compressed.
const MIN_COMPRESSED: usize = 128;

/// What a blob is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum BlobKind {
    /// A directory, as in packs of a volume, without the places of what it refers to.
    Folder = 1,
    /// Content, or a piece of one. Its id is the hash of these bytes.
    Data = 2,
    /// The pieces of long content. Its id is the hash of the content.
    Pieces = 3,
}

/// What a blob is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlobId {
    pub kind: BlobKind,
    pub hash: [u8; 32],
}

impl BlobId {
    pub(crate) fn folder(id: FolderId) -> Self {
        Self { kind: BlobKind::Folder, hash: id.0 }
    }

    pub(crate) fn data(id: ContentId) -> Self {
        Self { kind: BlobKind::Data, hash: id.0 }
    }

    pub(crate) fn pieces(id: ContentId) -> Self {
        Self { kind: BlobKind::Pieces, hash: id.0 }
    }

    /// Returns what content of `len` bytes is stored as.
    pub(crate) fn content(id: ContentId, len: u64) -> Self {
        if len > MAX_WHOLE { Self::pieces(id) } else { Self::data(id) }
    }

    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.push(self.kind as u8);
        out.extend_from_slice(&self.hash);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = match reader.byte()? {
            1 => BlobKind::Folder,
            2 => BlobKind::Data,
            3 => BlobKind::Pieces,
            _ => return Err(DecodeError::Invalid("a blob is of a kind that this program does not know")),
        };
        Ok(Self { kind, hash: reader.array()? })
    }
}

/// A part of long content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentPart {
    /// So many zeros.
    Hole(u64),
    /// A blob of data, and its length in bytes.
    Data(ContentId, u64),
}

/// Encodes the pieces of long content.
pub(crate) fn encode_parts(parts: &[ContentPart]) -> Vec<u8> {
    let mut out = Vec::with_capacity(parts.len() * 36);
    put_varint(&mut out, parts.len() as u64);
    for part in parts {
        match part {
            ContentPart::Hole(len) => {
                out.push(0);
                put_varint(&mut out, *len);
            }
            ContentPart::Data(id, len) => {
                out.push(1);
                put_varint(&mut out, *len);
                out.extend_from_slice(&id.0);
            }
        }
    }
    out
}

/// Decodes the pieces of long content.
pub(crate) fn decode_parts(bytes: &[u8]) -> Result<Vec<ContentPart>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let count = reader.length()?;
    if count > reader.remaining() / 2 {
        return Err(DecodeError::Truncated);
    }
    let mut parts = Vec::with_capacity(count);
    for _ in 0..count {
        parts.push(match (reader.byte()?, reader.varint()?) {
            (0, len) => ContentPart::Hole(len),
            (1, len) => ContentPart::Data(ContentId(reader.array()?), len),
            _ => return Err(DecodeError::Invalid("a piece is of a kind that this program does not know")),
        });
    }
    reader.finish()?;
    Ok(parts)
}

/// Returns what is sealed of a blob: 0 and its bytes, or 1 and its bytes compressed by zstd.
pub(crate) fn compress(plain: &[u8]) -> Vec<u8> {
    let small = || zstd::bulk::compress(plain, 1).ok().filter(|small| small.len() < plain.len() / 16 * 15);
    match (plain.len() >= MIN_COMPRESSED).then(small).flatten() {
        Some(small) => [&[1][..], &small].concat(),
        None => [&[0][..], plain].concat(),
    }
}

/// Returns the `len` bytes of a blob; `None` if it is something else.
pub(crate) fn decompress(opened: &[u8], len: u64) -> Option<Vec<u8>> {
    let (how, rest) = opened.split_first()?;
    let plain = match how {
        0 => rest.to_vec(),
        1 => zstd::bulk::decompress(rest, usize::try_from(len.min(MAX_BLOB)).ok()?).ok()?,
        _ => return None,
    };
    (plain.len() as u64 == len).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_survive_the_trip_and_no_cut_is_one() {
        let parts = [ContentPart::Hole(1 << 40), ContentPart::Data(ContentId([7; 32]), 300)];
        let bytes = encode_parts(&parts);
        assert_eq!(decode_parts(&bytes).unwrap(), parts);
        for end in 0..bytes.len() {
            assert!(decode_parts(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn a_blob_has_the_length_that_the_index_says_or_is_none() {
        let noise: Vec<u8> = (0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for plain in [Vec::new(), vec![1; 5], vec![0; 1 << 20], noise] {
            let stored = compress(&plain);
            assert!(stored.len() <= plain.len() + 1);
            assert_eq!(decompress(&stored, plain.len() as u64).as_ref(), Some(&plain));
            assert_eq!(decompress(&stored, plain.len() as u64 + 1), None);
            assert!(plain.is_empty() || decompress(&stored, plain.len() as u64 - 1).is_none());
        }
        assert_eq!(decompress(&[], 0), None);
        assert_eq!(decompress(&[2, 1], 1), None);
    }
}
