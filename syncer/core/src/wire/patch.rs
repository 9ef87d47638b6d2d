//! Encodes frames that make part of a large file from a basis: [`Patch`] for bytes that did not move, and [`Chunks`]
//! for bytes that may have moved.

use super::frame::{HEADER_BYTES, WireError, begin_frame, end_frame};
use crate::{
    block_sizes::{MAX_BLOCK_BYTES, block_bytes},
    codec::{DecodeError, Reader, put_signed, put_varint},
    delta::chunk_sizes::MAX_CHUNK,
};

/// The kind of a frame with a patch.
pub const PATCH: u8 = 67;
/// The kind of a frame with chunks of a large file.
pub const CHUNKS: u8 = 68;

/// The most parts of one frame. A block that changes every few KiB has as many.
pub const MAX_PARTS: usize = 1024;

/// A frame of chunks covers about this many bytes of its file, so that the sink's workers share a file.
const FRAME_LEN: u64 = 4 << 20;

/// The kind of a part, in the lowest two bits of its length.
const LITERAL: u64 = 0;
const KEPT: u64 = 1;
const HOLE: u64 = 2;
const COPIED: u64 = 1;
const GROWN: u64 = 2;
const TAG_BITS: u32 = 2;

/// The file and the range that a frame covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// The number of the need.
    pub need: u32,
    /// See [`Block::attempt`](super::data::Block::attempt).
    pub attempt: u32,
    /// The length of the file in this attempt.
    pub file_len: u64,
    /// The offset in the file of the first part.
    pub offset: u64,
}

impl BlockHeader {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.need));
        put_varint(out, u64::from(self.attempt));
        put_varint(out, self.file_len);
        put_varint(out, self.offset);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let place = Self {
            need: reader.varint32()?,
            attempt: reader.varint32()?,
            file_len: reader.varint()?,
            offset: reader.varint()?,
        };
        if place.offset < place.file_len && place.file_len <= i64::MAX as u64 {
            Ok(place)
        } else {
            Err(DecodeError::Invalid("a part of a file is not within the file"))
        }
    }

    /// Returns the bytes of the file from here on.
    fn rest(&self) -> u64 {
        self.file_len - self.offset
    }
}

/// A range of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment<'a> {
    /// Literal bytes.
    Literal(&'a [u8]),
    /// This many bytes of the basis at the same offset.
    Kept(u64),
    /// A hole of this many bytes.
    Hole(u64),
}

impl Segment<'_> {
    /// Returns its length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Literal(bytes) => bytes.len() as u64,
            Self::Kept(len) | Self::Hole(len) => *len,
        }
    }

    /// Returns whether it has no bytes. Decoded segments always have some.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A block of a large file in segments, or several blocks that are one hole and one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch<'a> {
    /// Its offset is a multiple of [`block_bytes`].
    pub place: BlockHeader,
    /// Consecutive segments that cover the whole block.
    pub segments: Vec<Segment<'a>>,
}

impl<'a> Patch<'a> {
    /// Returns whether it is entirely a hole.
    pub fn is_hole(&self) -> bool {
        matches!(self.segments[..], [Segment::Hole(_)])
    }

    /// Returns the number of bytes of the file that it covers.
    pub fn len(&self) -> u64 {
        self.segments.iter().map(Segment::len).sum()
    }

    /// Returns whether it covers no bytes. Decoded patches always cover some.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes that are kept from the basis.
    pub fn kept(&self) -> u64 {
        let kept = |segment: &Segment<'_>| if let Segment::Kept(len) = segment { *len } else { 0 };
        self.segments.iter().map(kept).sum()
    }

    /// Encodes the frame.
    pub fn encode(&self) -> Vec<u8> {
        let literal =
            |segment: &Segment<'_>| if matches!(segment, Segment::Literal(_)) { segment.len() } else { 0 };
        let bytes: u64 = self.segments.iter().map(literal).sum();
        let mut frame = Vec::with_capacity(HEADER_BYTES + 32 + 4 * self.segments.len() + bytes as usize);
        begin_frame(&mut frame, PATCH);
        self.place.put(&mut frame);
        put_varint(&mut frame, self.segments.len() as u64);
        for segment in &self.segments {
            let tag = match segment {
                Segment::Literal(_) => LITERAL,
                Segment::Kept(_) => KEPT,
                Segment::Hole(_) => HOLE,
            };
            put_varint(&mut frame, segment.len() << TAG_BITS | tag);
        }
        for segment in &self.segments {
            if let Segment::Literal(bytes) = segment {
                frame.extend_from_slice(bytes);
            }
        }
        end_frame(&mut frame, 0);
        frame
    }

    /// Decodes the body of a patch.
    ///
    /// # Errors
    /// If it is not exactly one block, or a hole of several.
    pub fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        Self::read(Reader::new(body)).map_err(|source| WireError::Malformed { what: "Patch", source })
    }

    fn read(mut reader: Reader<'a>) -> Result<Self, DecodeError> {
        let place = BlockHeader::read(&mut reader)?;
        let parts = read_parts(&mut reader, |_, tag| if tag > HOLE { Err(UNKNOWN_PART) } else { Ok(()) })?;
        let segment = |part: &PatchPart<()>| {
            Ok(match part.tag {
                LITERAL => Segment::Literal(take(&mut reader, part.len)?),
                KEPT => Segment::Kept(part.len),
                _ => Segment::Hole(part.len),
            })
        };
        let segments = parts.iter().map(segment).collect::<Result<Vec<_>, DecodeError>>()?;
        reader.finish()?;
        let patch = Self { place, segments };
        patch.check().map(|()| patch)
    }

    fn check(&self) -> Result<(), DecodeError> {
        let block = block_bytes(self.place.file_len) as u64;
        let len = self.segments.iter().try_fold(0, |sum: u64, segment| sum.checked_add(segment.len()));
        let (len, rest) = (len.ok_or(DecodeError::Overflow)?, self.place.rest());
        let one = len == rest.min(block);
        let several = self.is_hole() && (len == rest || len < rest && len.is_multiple_of(block));
        if self.place.offset.is_multiple_of(block) && (one || several) {
            Ok(())
        } else {
            Err(DecodeError::Invalid("a patch is not at its place or not of its size"))
        }
    }
}

/// A range of the basis that is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied<L = u32> {
    /// Its offset in the basis.
    pub offset: u64,
    /// Its length in bytes.
    pub len: L,
}

/// One chunk of the source's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkPart<'a> {
    /// Its first bytes, which are copied.
    pub copied: Option<Copied>,
    /// Its other bytes, which are literal.
    pub literal: &'a [u8],
}

impl ChunkPart<'_> {
    /// Returns its length in bytes.
    pub fn len(&self) -> u64 {
        self.copied.map_or(0, |copied| u64::from(copied.len)) + self.literal.len() as u64
    }

    /// Returns whether it has no bytes. Decoded chunks always have some.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Consecutive chunks of a large file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunks<'a> {
    /// The place of the first chunk.
    pub place: BlockHeader,
    /// One or more.
    pub chunks: Vec<ChunkPart<'a>>,
}

impl<'a> Chunks<'a> {
    /// Returns the number of bytes of the file that all chunks cover.
    pub fn len(&self) -> u64 {
        self.chunks.iter().map(ChunkPart::len).sum()
    }

    /// Returns whether there is no chunk. Decoded frames always have one.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns the number of bytes that are copied from the basis.
    pub fn copied(&self) -> u64 {
        self.chunks.iter().filter_map(|chunk| chunk.copied).map(|copied| u64::from(copied.len)).sum()
    }

    /// Decodes the body of a frame of chunks.
    ///
    /// # Errors
    /// If they are not within the file, or one is longer than the longest chunk. Offsets in the basis are not
    /// checked, because only its owner knows its length.
    pub fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        Self::read(Reader::new(body)).map_err(|source| WireError::Malformed { what: "Chunks", source })
    }

    fn read(mut reader: Reader<'a>) -> Result<Self, DecodeError> {
        let place = BlockHeader::read(&mut reader)?;
        let mut last = 0;
        let parts = read_parts(&mut reader, |reader, tag| read_copied(reader, tag, &mut last))?;
        let chunk = |part: &PatchPart<Option<Copied<Option<u32>>>>| {
            let len =
                u32::try_from(part.len).ok().filter(|&len| len <= MAX_CHUNK).ok_or(DecodeError::Overflow)?;
            let copied = part.more.map(|it| Copied { offset: it.offset, len: it.len.unwrap_or(len) });
            let literal = len.checked_sub(copied.map_or(0, |it| it.len)).ok_or(DecodeError::Overflow)?;
            Ok(ChunkPart { copied, literal: take(&mut reader, u64::from(literal))? })
        };
        let chunks = parts.iter().map(chunk).collect::<Result<Vec<_>, DecodeError>>()?;
        reader.finish()?;
        let len: u64 = chunks.iter().map(ChunkPart::len).sum();
        if !chunks.is_empty() && len <= place.rest() {
            Ok(Self { place, chunks })
        } else {
            Err(DecodeError::Invalid("chunks reach beyond their file"))
        }
    }
}

/// Reads the range of the basis that a chunk begins with; without a length, it is as long as the chunk. Offsets are
/// relative to the copy before.
fn read_copied(
    reader: &mut Reader<'_>,
    tag: u64,
    last: &mut u64,
) -> Result<Option<Copied<Option<u32>>>, DecodeError> {
    if tag == LITERAL {
        return Ok(None);
    }
    let offset = last.checked_add_signed(reader.signed()?).ok_or(DecodeError::Overflow)?;
    let len = match tag {
        COPIED => None,
        GROWN => Some(reader.varint32()?),
        _ => return Err(UNKNOWN_PART),
    };
    *last = offset;
    Ok(Some(Copied { offset, len }))
}

/// Collects chunks for a frame.
#[derive(Debug, Default)]
pub struct ChunksBuilder {
    parts: Vec<u8>,
    count: usize,
    literal: Vec<u8>,
    /// The offset of the last copy.
    last: u64,
    len: u64,
}

impl ChunksBuilder {
    /// Appends a chunk.
    pub fn push(&mut self, part: ChunkPart<'_>) {
        let (ChunkPart { copied, literal }, len) = (part, part.len());
        let tag = match copied {
            None => LITERAL,
            Some(_) if literal.is_empty() => COPIED,
            Some(_) => GROWN,
        };
        put_varint(&mut self.parts, len << TAG_BITS | tag);
        if let Some(Copied { offset, len: copied }) = copied {
            put_signed(&mut self.parts, offset.wrapping_sub(self.last) as i64);
            if tag == GROWN {
                put_varint(&mut self.parts, u64::from(copied));
            }
            self.last = offset;
        }
        self.literal.extend_from_slice(literal);
        self.count += 1;
        self.len += len;
    }

    /// Returns the number of bytes of the file that all chunks cover.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether there is no chunk.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether one more chunk with these literal bytes fits.
    pub fn has_room(&self, literal: &[u8]) -> bool {
        let room = self.literal.len() + literal.len() <= MAX_BLOCK_BYTES && self.len < FRAME_LEN;
        self.is_empty() || self.count < MAX_PARTS && room
    }

    /// Encodes the frame.
    pub fn finish(self, place: &BlockHeader) -> Vec<u8> {
        let mut frame = Vec::with_capacity(HEADER_BYTES + 40 + self.parts.len() + self.literal.len());
        begin_frame(&mut frame, CHUNKS);
        place.put(&mut frame);
        put_varint(&mut frame, self.count as u64);
        frame.extend_from_slice(&self.parts);
        frame.extend_from_slice(&self.literal);
        end_frame(&mut frame, 0);
        frame
    }
}

/// A part of a frame before its bytes are assigned.
struct PatchPart<T> {
    tag: u64,
    len: u64,
    more: T,
}

const UNKNOWN_PART: DecodeError =
    DecodeError::Invalid("a part of a file is of a kind that this version does not know");

fn read_parts<'a, T>(
    reader: &mut Reader<'a>,
    mut more: impl FnMut(&mut Reader<'a>, u64) -> Result<T, DecodeError>,
) -> Result<Vec<PatchPart<T>>, DecodeError> {
    let count = reader.varint()?;
    if count > MAX_PARTS as u64 {
        return Err(DecodeError::Invalid("a frame has more parts than it may"));
    }
    let mut read = |_| {
        let head = reader.varint()?;
        let (tag, len) = (head & ((1 << TAG_BITS) - 1), head >> TAG_BITS);
        if len == 0 {
            return Err(DecodeError::Invalid("a part of a file is empty"));
        }
        Ok(PatchPart { tag, len, more: more(reader, tag)? })
    };
    (0..count).map(&mut read).collect()
}

fn take<'a>(reader: &mut Reader<'a>, len: u64) -> Result<&'a [u8], DecodeError> {
    reader.take(usize::try_from(len).map_err(|_| DecodeError::Overflow)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_sizes::MIN_BLOCK_BYTES;

    const BLOCK: u64 = MIN_BLOCK_BYTES as u64;

    fn place(file_len: u64, offset: u64) -> BlockHeader {
        BlockHeader { need: 7, attempt: 1, file_len, offset }
    }

    fn patch(file_len: u64, offset: u64, segments: Vec<Segment<'_>>) -> Patch<'_> {
        Patch { place: place(file_len, offset), segments }
    }

    #[test]
    fn patches_survive_the_trip() {
        let mixed = vec![Segment::Kept(10), Segment::Literal(b"new"), Segment::Hole(BLOCK - 13)];
        for patch in [
            patch(3 * BLOCK, BLOCK, mixed),
            patch(BLOCK + 5, BLOCK, vec![Segment::Literal(b"tail!")]),
            patch(9 * BLOCK, BLOCK, vec![Segment::Hole(3 * BLOCK)]),
            patch(9 * BLOCK + 1, 0, vec![Segment::Hole(9 * BLOCK + 1)]),
        ] {
            let frame = patch.encode();
            assert_eq!(frame[0], PATCH);
            assert_eq!(Patch::decode(&frame[HEADER_BYTES..]), Ok(patch));
            for end in HEADER_BYTES..frame.len() {
                assert!(Patch::decode(&frame[HEADER_BYTES..end]).is_err(), "cut at {end}");
            }
        }
    }

    #[test]
    fn a_patch_that_is_not_a_block_is_refused() {
        for patch in [
            patch(3 * BLOCK, 0, vec![Segment::Kept(BLOCK - 1)]),
            patch(3 * BLOCK, 0, vec![Segment::Kept(2 * BLOCK)]),
            patch(3 * BLOCK, 0, vec![Segment::Hole(BLOCK + 1)]),
            patch(3 * BLOCK, 0, vec![Segment::Hole(4 * BLOCK)]),
            patch(3 * BLOCK, 1, vec![Segment::Kept(BLOCK)]),
            patch(3 * BLOCK, 3 * BLOCK, vec![Segment::Kept(BLOCK)]),
            patch(3 * BLOCK, 0, vec![]),
            patch(3 * BLOCK, 0, vec![Segment::Kept(u64::MAX >> 2), Segment::Kept(BLOCK)]),
            patch(BLOCK, 0, vec![Segment::Kept(1); MAX_PARTS + 1]),
        ] {
            assert!(Patch::decode(&patch.encode()[HEADER_BYTES..]).is_err(), "{patch:?}");
        }
    }

    fn part(offset: u64, len: u32, literal: &[u8]) -> ChunkPart<'_> {
        ChunkPart { copied: Some(Copied { offset, len }), literal }
    }

    #[test]
    fn chunks_survive_the_trip() {
        let chunks: [ChunkPart<'_>; 4] = [
            part(500, 100, b""),
            ChunkPart { copied: None, literal: b"new" },
            part(0, 7, b"grown"),
            part(1 << 40, 1, b""),
        ];
        let mut builder = ChunksBuilder::default();
        chunks.iter().for_each(|chunk| builder.push(*chunk));
        assert_eq!(builder.len(), 116);
        let frame = builder.finish(&place(1000, 884));
        let expected = Chunks { place: place(1000, 884), chunks: chunks.to_vec() };
        assert_eq!(Chunks::decode(&frame[HEADER_BYTES..]), Ok(expected));
        for end in HEADER_BYTES..frame.len() {
            assert!(Chunks::decode(&frame[HEADER_BYTES..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn chunks_beyond_their_file_are_refused() {
        for (file_len, offset) in [(100, 91), (100, 100), (5, 0)] {
            let mut builder = ChunksBuilder::default();
            builder.push(part(0, 10, b""));
            assert!(Chunks::decode(&builder.finish(&place(file_len, offset))[HEADER_BYTES..]).is_err());
        }
        assert!(Chunks::decode(&ChunksBuilder::default().finish(&place(5, 0))[HEADER_BYTES..]).is_err());
    }

    #[test]
    fn a_chunk_longer_than_any_is_refused() {
        let mut builder = ChunksBuilder::default();
        builder.push(part(0, MAX_CHUNK + 1, b""));
        assert!(Chunks::decode(&builder.finish(&place(1 << 40, 0))[HEADER_BYTES..]).is_err());
    }
}
