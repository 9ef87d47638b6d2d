//! Frames on the data streams: packs of small files, and blocks of large ones.

use super::{
    frame::{
        BLOCK_PREFIX_BYTES, HEADER_BYTES, MAX_PACKED_BYTES, PACK_BYTES, PACK_FRAME_BYTES, WireError,
        begin_frame, end_frame,
    },
    message::Prefix,
};
use crate::{
    block_sizes::block_bytes,
    codec::{DecodeError, Reader, put_bytes, put_varint},
    hash::{ContentId, TransferHash},
    tree::{
        attrs::{Attrs, MAX_ATTRS_BYTES},
        entry::{Meta, put_meta, read_meta},
    },
    wire::buffers,
};

/// The longest description of a failure.
const MAX_TEXT_BYTES: usize = 4096;

/// The offset of a pack's files in its frame, behind their hash.
const FILES_AT: usize = HEADER_BYTES + 32;

/// The kind of a frame with a pack.
pub const PACK: u8 = 64;
/// The kind of a frame with a block of a large file.
pub const BLOCK: u8 = 65;
/// The kind of a frame that ends a large file.
pub const END: u8 = 66;

const CONTENT: u8 = 0;
const CONTENT_WITH_META: u8 = 1;
const FAILED: u8 = 2;
/// The bit of a kind for content whose beginning the sink has.
const KEPT: u8 = 4;
const KEPT_CONTENT: u8 = CONTENT | KEPT;
const KEPT_CONTENT_WITH_META: u8 = CONTENT_WITH_META | KEPT;
/// The bit of a kind for content of a file that was in motion when it was read.
const IN_MOTION: u8 = 8;

/// A file's state when its content was read, if it may differ from the listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fresh<'a> {
    /// Mode, time and owner.
    pub meta: Meta,
    /// Extended attributes.
    pub attrs: Attrs<'a>,
}

impl<'a> Fresh<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        put_meta(out, &self.meta);
        put_bytes(out, self.attrs.bytes());
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { meta: read_meta(reader)?, attrs: Attrs::decode(reader.bytes(MAX_ATTRS_BYTES)?)? })
    }
}

/// Why the source could not send a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed<'a> {
    /// The operation that failed.
    pub operation: &'a str,
    /// The error.
    pub error: &'a str,
}

/// One file of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed<'a> {
    /// The number of the need.
    pub need: u32,
    /// Its content, or the reason why there is none.
    pub content: Result<ContentFrame<'a>, Failed<'a>>,
}

/// The whole content of a small file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentFrame<'a> {
    /// Metadata that is newer than the listing's.
    pub fresh: Option<Fresh<'a>>,
    /// The prefix that the sink has, if the content begins with it.
    pub kept: Option<BasisPrefix>,
    /// The content after that prefix.
    pub bytes: &'a [u8],
    /// Whether another process may have been writing to the file while it was read.
    pub in_motion: bool,
}

/// The prefix of a file that the sink named as its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BasisPrefix {
    /// Length in bytes.
    pub len: u32,
    /// The id of the whole content, because the pack and its hash do not contain the prefix.
    pub id: ContentId,
}

/// The hash by which a pack is checked: BLAKE3 of its body after the hash.
#[derive(PartialEq, Eq)]
struct PackHash([u8; 32]);

impl PackHash {
    fn of(files: &[u8]) -> Self {
        Self(*blake3::hash(files).as_bytes())
    }
}

/// Builds a pack in one buffer. Contents are read directly into it.
#[derive(Debug)]
pub struct PackBuilder {
    frame: Vec<u8>,
    /// The place of the last file's kind.
    kind_at: usize,
}

impl Default for PackBuilder {
    fn default() -> Self {
        let mut frame = buffers::empty(PACK_FRAME_BYTES);
        begin_frame(&mut frame, PACK);
        frame.resize(FILES_AT, 0);
        Self { frame, kind_at: 0 }
    }
}

impl PackBuilder {
    /// Returns whether the pack has to be sent before another file is added.
    pub fn is_full(&self) -> bool {
        self.frame.len() >= PACK_BYTES
    }

    /// Returns whether it has no files.
    pub fn is_empty(&self) -> bool {
        self.frame.len() == FILES_AT
    }

    /// Appends a file of `size` bytes, which `fill` appends to the frame. If they begin with `prefix`, the pack keeps
    /// only the rest. If `fill` fails, nothing is appended.
    pub fn push<E>(
        &mut self,
        need: u32,
        fresh: Option<Fresh<'_>>,
        prefix: Option<Prefix>,
        size: usize,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.frame.len();
        put_varint(&mut self.frame, u64::from(need));
        let kind_at = self.frame.len();
        self.frame.push(if fresh.is_some() { CONTENT_WITH_META } else { CONTENT });
        if let Some(fresh) = fresh {
            fresh.put(&mut self.frame);
        }
        put_varint(&mut self.frame, size as u64);
        let content_at = self.frame.len();
        if let Err(error) = fill(&mut self.frame) {
            self.frame.truncate(start);
            return Err(error);
        }
        debug_assert_eq!(self.frame.len(), content_at + size);
        let content = &self.frame[content_at..];
        if let Some(Prefix { len, .. }) = prefix.filter(|prefix| prefix.begins(content)) {
            let id = ContentId::of(content);
            self.frame[kind_at] |= KEPT;
            let kept = len.to_le_bytes().into_iter().chain(id.0);
            self.frame.splice(content_at..content_at + len as usize, kept);
        }
        self.kind_at = kind_at;
        Ok(())
    }

    /// Marks the file that was appended last as in motion when it was read.
    pub fn mark_in_motion(&mut self) {
        self.frame[self.kind_at] |= IN_MOTION;
    }

    /// Appends a file that could not be read.
    pub fn push_failed(&mut self, need: u32, operation: &str, error: &str) {
        put_varint(&mut self.frame, u64::from(need));
        put_failed(&mut self.frame, operation, error);
    }

    /// Returns the finished frame.
    pub fn finish(mut self) -> Vec<u8> {
        let hash = PackHash::of(&self.frame[FILES_AT..]);
        self.frame[HEADER_BYTES..FILES_AT].copy_from_slice(&hash.0);
        end_frame(&mut self.frame, 0);
        self.frame
    }
}

fn put_failed(out: &mut Vec<u8>, operation: &str, error: &str) {
    out.push(FAILED);
    put_bytes(out, operation.as_bytes());
    put_bytes(out, &error.as_bytes()[..error.floor_char_boundary(MAX_TEXT_BYTES)]);
}

/// Iterates over the files of a pack's body, up to the first error.
#[derive(Debug)]
pub struct Pack<'a> {
    reader: Reader<'a>,
    /// Whether the files match the hash that the source sent.
    pub is_intact: bool,
}

impl<'a> Pack<'a> {
    /// Reads a pack's body up to its files.
    pub fn open(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let hash = reader.array().map_err(malformed)?;
        let files = reader.clone().take(reader.remaining()).map_err(malformed)?;
        Ok(Self { reader, is_intact: PackHash::of(files) == PackHash(hash) })
    }

    fn read(&mut self) -> Result<Packed<'a>, DecodeError> {
        let reader = &mut self.reader;
        let need = reader.varint32()?;
        let kind = reader.byte()?;
        let content = match kind & !IN_MOTION {
            CONTENT | KEPT_CONTENT => Ok(read_content(reader, None, kind)?),
            CONTENT_WITH_META | KEPT_CONTENT_WITH_META => {
                let fresh = Fresh::read(reader)?;
                Ok(read_content(reader, Some(fresh), kind)?)
            }
            FAILED if kind == FAILED => Err(read_failed(reader)?),
            _ => return Err(DecodeError::Invalid("a packed file is neither content nor a failure")),
        };
        Ok(Packed { need, content })
    }
}

impl<'a> Iterator for Pack<'a> {
    type Item = Result<Packed<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let item = self.read();
        if item.is_err() {
            self.reader = Reader::new(&[]);
        }
        Some(item.map_err(malformed))
    }
}

fn malformed(source: DecodeError) -> WireError {
    WireError::Malformed { what: "Pack", source }
}

fn read_content<'a>(
    reader: &mut Reader<'a>,
    fresh: Option<Fresh<'a>>,
    kind: u8,
) -> Result<ContentFrame<'a>, DecodeError> {
    let size = reader.varint()?;
    if size > MAX_PACKED_BYTES {
        return Err(DecodeError::Invalid("a packed file is larger than a pack may hold"));
    }
    let kept = if kind & KEPT != 0 { Some(read_kept(reader)?) } else { None };
    let rest = size.checked_sub(kept.map_or(0, |kept| kept.len.into())).ok_or(DecodeError::Overflow)?;
    let bytes = reader.take(rest as usize)?;
    Ok(ContentFrame { fresh, kept, bytes, in_motion: kind & IN_MOTION != 0 })
}

fn read_kept(reader: &mut Reader<'_>) -> Result<BasisPrefix, DecodeError> {
    Ok(BasisPrefix { len: u32::from_le_bytes(reader.array()?), id: ContentId(reader.array()?) })
}

fn read_failed<'a>(reader: &mut Reader<'a>) -> Result<Failed<'a>, DecodeError> {
    let operation = read_text(reader)?;
    let error = read_text(reader)?;
    Ok(Failed { operation, error })
}

fn read_text<'a>(reader: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    let bytes = reader.bytes(MAX_TEXT_BYTES)?;
    std::str::from_utf8(bytes).map_err(|_| DecodeError::Invalid("a text is not UTF-8"))
}

/// A block of a large file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block<'a> {
    /// The number of the need.
    pub need: u32,
    /// Counts the source's attempts to read the file. A new attempt invalidates the blocks of older ones.
    pub attempt: u32,
    /// The length of the file in this attempt.
    pub file_len: u64,
    /// Its offset, a multiple of [`block_bytes`].
    pub offset: u64,
    /// The content: one block, or less at the file's end.
    pub bytes: &'a [u8],
}

impl<'a> Block<'a> {
    /// Bytes of a block's frame before the content.
    pub const PREFIX_BYTES: usize = BLOCK_PREFIX_BYTES;

    /// Finishes the frame of a block whose content follows [`Self::PREFIX_BYTES`] bytes in `frame`. Those bytes are
    /// overwritten.
    pub fn seal(mut frame: Vec<u8>, need: u32, attempt: u32, file_len: u64, offset: u64) -> Vec<u8> {
        frame[0] = BLOCK;
        let prefix = &mut frame[HEADER_BYTES..];
        prefix[..4].copy_from_slice(&need.to_le_bytes());
        prefix[4..8].copy_from_slice(&attempt.to_le_bytes());
        prefix[8..16].copy_from_slice(&file_len.to_le_bytes());
        prefix[16..24].copy_from_slice(&offset.to_le_bytes());
        end_frame(&mut frame, 0);
        frame
    }

    /// Decodes a block's body.
    pub fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let mut read = || {
            let need = u32::from_le_bytes(reader.array()?);
            let attempt = u32::from_le_bytes(reader.array()?);
            let file_len = u64::from_le_bytes(reader.array()?);
            let offset = u64::from_le_bytes(reader.array()?);
            let bytes = reader.take(reader.remaining())?;
            let block = block_bytes(file_len) as u64;
            let place = offset % block == 0 && offset < file_len && file_len <= i64::MAX as u64;
            if !place || bytes.len() as u64 != (file_len - offset).min(block) {
                return Err(DecodeError::Invalid("a block is not at its place or not of its size"));
            }
            Ok(Self { need, attempt, file_len, offset, bytes })
        };
        read().map_err(|source| WireError::Malformed { what: "Block", source })
    }
}

/// The end of a large file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndFrame<'a> {
    /// The number of the need.
    pub need: u32,
    /// See [`Block::attempt`].
    pub attempt: u32,
    /// The whole file's data, or the reason why it could not be sent.
    pub outcome: Result<Whole<'a>, Failed<'a>>,
}

/// A large file that was sent completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole<'a> {
    /// Its length in this attempt.
    pub file_len: u64,
    /// The hash of its content.
    pub hash: TransferHash,
    /// Metadata that is newer than the listing's.
    pub fresh: Option<Fresh<'a>>,
    /// Whether another process may have been writing to the file while it was read.
    pub in_motion: bool,
}

impl<'a> EndFrame<'a> {
    /// Encodes the frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(64);
        begin_frame(&mut frame, END);
        put_varint(&mut frame, u64::from(self.need));
        put_varint(&mut frame, u64::from(self.attempt));
        match &self.outcome {
            Ok(whole) => {
                let kind = if whole.fresh.is_some() { CONTENT_WITH_META } else { CONTENT };
                frame.push(if whole.in_motion { kind | IN_MOTION } else { kind });
                if let Some(fresh) = whole.fresh {
                    fresh.put(&mut frame);
                }
                put_varint(&mut frame, whole.file_len);
                frame.extend_from_slice(&whole.hash.0);
            }
            Err(failed) => put_failed(&mut frame, failed.operation, failed.error),
        }
        end_frame(&mut frame, 0);
        frame
    }

    /// Decodes an end's body.
    pub fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let mut read = || {
            let need = reader.varint32()?;
            let attempt = reader.varint32()?;
            let kind = reader.byte()?;
            let in_motion = kind & IN_MOTION != 0;
            let outcome = match kind & !IN_MOTION {
                CONTENT => Ok(Whole { in_motion, ..read_whole(&mut reader, None)? }),
                CONTENT_WITH_META => {
                    let fresh = Fresh::read(&mut reader)?;
                    Ok(Whole { in_motion, ..read_whole(&mut reader, Some(fresh))? })
                }
                FAILED if kind == FAILED => Err(read_failed(&mut reader)?),
                _ => return Err(DecodeError::Invalid("a file ends neither with a hash nor with a failure")),
            };
            reader.clone().finish()?;
            Ok(Self { need, attempt, outcome })
        };
        read().map_err(|source| WireError::Malformed { what: "End", source })
    }
}

fn read_whole<'a>(reader: &mut Reader<'a>, fresh: Option<Fresh<'a>>) -> Result<Whole<'a>, DecodeError> {
    let file_len = reader.varint()?;
    if file_len > i64::MAX as u64 {
        return Err(DecodeError::Overflow);
    }
    Ok(Whole { file_len, hash: TransferHash(reader.array()?), fresh, in_motion: false })
}

#[cfg(test)]
mod tests;
