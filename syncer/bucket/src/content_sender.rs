//! Content on its way into packs: whole, or cut to pieces where its bytes say so.

use syncer::snapshot::copy::ContentPiece;
use volferry_core::{
    delta::{chunk_sizes::ChunkSizes, cut_chunks::Chunker},
    hash::ContentId,
};

use super::{
    blob::{BlobId, ContentPart, MAX_WHOLE, encode_parts},
    bucket_error::BucketError,
    pack_writer::PackWriter,
};

/// The zeros that are hashed at once.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Content on its way.
pub(crate) struct ContentSender {
    len: u64,
    at: u64,
    hasher: blake3::Hasher,
    /// The bytes since the last cut.
    pending: Vec<u8>,
    chunker: Chunker,
    parts: Vec<ContentPart>,
}

impl ContentSender {
    pub(crate) fn new(len: u64) -> Self {
        // The largest chunks, whatever the length: those of a file that grows stay the same.
        let chunker = Chunker::new(ChunkSizes::for_len(u64::MAX));
        let (hasher, pending, parts) = (blake3::Hasher::new(), Vec::new(), Vec::new());
        Self { len, at: 0, hasher, pending, chunker, parts }
    }

    /// Takes a piece, and adds the pieces that are complete to packs.
    pub(crate) fn push(
        &mut self,
        piece: ContentPiece<'_>,
        packs: &mut PackWriter,
    ) -> Result<(), BucketError> {
        match piece {
            ContentPiece::Data(bytes) => {
                self.at += bytes.len() as u64;
                self.hasher.update(bytes);
                self.pending.extend_from_slice(bytes);
                if self.len > MAX_WHOLE {
                    self.cut(false, packs)?;
                }
            }
            ContentPiece::Hole(len) => self.hole(len, packs)?,
            ContentPiece::Same(_) | ContentPiece::End => {}
        }
        Ok(())
    }

    fn hole(&mut self, len: u64, packs: &mut PackWriter) -> Result<(), BucketError> {
        self.at = self.at.saturating_add(len);
        let mut left = len;
        while left > 0 {
            let some = left.min(ZEROS.len() as u64);
            self.hasher.update(&ZEROS[..some as usize]);
            left -= some;
        }
        if self.len > MAX_WHOLE {
            self.cut(true, packs)?;
            // A long hole comes in parts.
            match self.parts.last_mut() {
                Some(ContentPart::Hole(before)) => *before = before.saturating_add(len),
                _ => self.parts.push(ContentPart::Hole(len)),
            }
        } else if self.at <= MAX_WHOLE {
            self.pending.resize(self.pending.len() + len as usize, 0);
        }
        Ok(())
    }

    /// Adds the pieces that end in what has come; all of it if it is the last before a hole or the end.
    fn cut(&mut self, last: bool, packs: &mut PackWriter) -> Result<(), BucketError> {
        let mut from = 0;
        while let Some(len) = self.chunker.next_cut(&self.pending[from..], last) {
            let piece = &self.pending[from..from + len];
            let id = ContentId::of(piece);
            packs.add(BlobId::data(id), piece)?;
            self.parts.push(ContentPart::Data(id, len as u64));
            from += len;
        }
        self.pending.drain(..from);
        Ok(())
    }

    /// Adds the rest, and returns the hash of all together; `None` if it does not have the length that was expected.
    pub(crate) fn finish(&mut self, packs: &mut PackWriter) -> Result<Option<ContentId>, BucketError> {
        if self.at != self.len {
            return Ok(None);
        }
        let id = ContentId(*self.hasher.finalize().as_bytes());
        if self.len <= MAX_WHOLE {
            packs.add(BlobId::data(id), &self.pending)?;
        } else {
            self.cut(true, packs)?;
            packs.add(BlobId::pieces(id), &encode_parts(&self.parts))?;
        }
        Ok(Some(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{blob::decode_parts, bucket_store::BucketStore, send_history::packs_of};

    #[test]
    fn a_hole_that_comes_in_parts_is_one() {
        const MIB: usize = 1 << 20;
        let store = BucketStore::in_memory();
        let mut packs = packs_of(&store).unwrap().packs;
        let mut ids = Vec::new();
        for holes in [&[3 * MIB as u64][..], &[MIB as u64, 2 * MIB as u64]] {
            let mut sender = ContentSender::new(3 * MIB as u64 + 4);
            for hole in holes {
                sender.push(ContentPiece::Hole(*hole), &mut packs).unwrap();
            }
            sender.push(ContentPiece::Data(b"data"), &mut packs).unwrap();
            ids.push(sender.finish(&mut packs).unwrap().unwrap());
            let parts = sender.parts;
            assert_eq!(
                parts,
                [ContentPart::Hole(3 * MIB as u64), ContentPart::Data(ContentId::of(b"data"), 4)]
            );
            assert_eq!(decode_parts(&encode_parts(&parts)).unwrap(), parts);
        }
        assert_eq!(ids[0], ContentId::of(&[&vec![0; 3 * MIB][..], b"data"].concat()));
        assert_eq!(ids[0], ids[1]);
    }
}
