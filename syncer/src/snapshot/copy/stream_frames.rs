//! The frames of history over a stream: a kind, a length (`u32` little endian) and a body each.
//!
//! `syncer/doc/snapshots.md` draws the bodies.

use std::io::{self, Read, Write};

use contract::VolumeId;

use super::{
    content_basis::{HASH_BYTES, MAX_GRANULES},
    copy_snapshots::CopiedHistory,
    copy_source::{OfferedHistory, RequestedContent},
};
use crate::{
    codec::{DecodeError, Reader, put_bytes, put_varint},
    hash::{ContentId, TreeDigest},
    path::display,
    snapshot::store::{ContentRef, FolderId, FolderRef, Home, ObjectRef, Roots, SnapshotError, SnapshotId},
    tree::stamps::Stamps,
};

/// The longest request, the longest text of an error, and the longest piece of content, in bytes.
pub(crate) const MAX_REQUEST_BYTES: u32 = 64 << 20;
pub(crate) const MAX_TEXT_BYTES: u32 = 64 << 10;
pub(crate) const MAX_PIECE_BYTES: u32 = 1 << 20;

/// The kinds of frames.
pub(crate) mod kind {
    pub(crate) const OFFER: u8 = 1;
    pub(crate) const FOLDERS: u8 = 2;
    pub(crate) const ALLOCATED: u8 = 3;
    pub(crate) const CONTENTS: u8 = 4;
    pub(crate) const DONE: u8 = 5;
    pub(crate) const FAILED: u8 = 6;
    pub(crate) const DATA: u8 = 7;
    pub(crate) const HOLE: u8 = 8;
    pub(crate) const SAME: u8 = 9;
    pub(crate) const END: u8 = 10;
}

/// A frame of a stream.
pub(crate) struct StreamFrame {
    /// One of [`kind`].
    pub kind: u8,
    pub body: Vec<u8>,
}

/// Both directions of a stream.
#[derive(Debug)]
pub(crate) struct Frames<R, W> {
    pub from: R,
    pub to: W,
}

impl<R: Read, W: Write> Frames<R, W> {
    pub(crate) fn send(&mut self, kind: u8, body: &[u8]) -> io::Result<()> {
        self.to.write_all(&[kind])?;
        self.to.write_all(&(body.len() as u32).to_le_bytes())?;
        self.to.write_all(body)
    }

    /// Reads a frame. A body grows as it arrives, so that no length makes this end take memory for nothing.
    pub(crate) fn receive(&mut self, most: impl Fn(u8) -> u32) -> Result<StreamFrame, SnapshotError> {
        let mut head = [0; 5];
        self.from.read_exact(&mut head).map_err(SnapshotError::Link)?;
        let [kind, len @ ..] = head;
        let len = u32::from_le_bytes(len);
        if len > most(kind) {
            return Err(SnapshotError::malformed());
        }
        let mut body = Vec::new();
        (&mut self.from).take(len.into()).read_to_end(&mut body).map_err(SnapshotError::Link)?;
        if body.len() == len as usize {
            Ok(StreamFrame { kind, body })
        } else {
            Err(SnapshotError::Link(io::ErrorKind::UnexpectedEof.into()))
        }
    }

    pub(crate) fn flush(&mut self) -> Result<(), SnapshotError> {
        self.to.flush().map_err(SnapshotError::Link)
    }
}

pub(crate) fn not_decoded(_: DecodeError) -> SnapshotError {
    SnapshotError::malformed()
}

pub(crate) fn put_content(out: &mut Vec<u8>, content: &ContentRef) {
    out.extend_from_slice(&content.id.0);
    match content.home {
        Home::Own => out.push(0),
        Home::Pack { pack, offset } => {
            out.push(1);
            out.extend_from_slice(&pack.to_le_bytes());
            put_varint(out, offset);
        }
    }
}

pub(crate) fn read_content_ref(reader: &mut Reader<'_>) -> Result<ContentRef, DecodeError> {
    let id = ContentId(reader.array()?);
    let home = match reader.byte()? {
        0 => Home::Own,
        1 => Home::Pack { pack: u64::from_le_bytes(reader.array()?), offset: reader.varint()? },
        _ => return Err(DecodeError::Invalid("content has a place of an unknown kind")),
    };
    Ok(ContentRef { id, home })
}

pub(crate) fn read_requested(reader: &mut Reader<'_>) -> Result<RequestedContent, DecodeError> {
    let (content, len) = (read_content_ref(reader)?, reader.varint()?);
    let count = reader.length()?;
    if count as u64 > MAX_GRANULES || count > reader.remaining() / HASH_BYTES {
        return Err(DecodeError::Truncated);
    }
    let granules = (0..count).map(|_| reader.array()).collect::<Result<_, _>>()?;
    Ok(RequestedContent { content, len, granules })
}

pub(crate) fn read_folders(reader: &mut Reader<'_>) -> Result<Vec<FolderRef>, SnapshotError> {
    read_list(reader, |reader| {
        let id = FolderId(reader.array()?);
        let pack = u64::from_le_bytes(reader.array()?);
        let place = ObjectRef { pack, offset: reader.varint()?, len: reader.varint32()? };
        Ok(FolderRef { id, place, digest: TreeDigest::default(), seen: Stamps::unknown() })
    })
}

/// Reads a list, of which each element takes at least a byte.
pub(crate) fn read_list<T>(
    reader: &mut Reader<'_>,
    read: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, SnapshotError> {
    let mut list = || {
        let count = reader.length()?;
        if count > reader.remaining() {
            return Err(DecodeError::Truncated);
        }
        let list = (0..count).map(|_| read(reader)).collect::<Result<_, _>>()?;
        Ok(list)
    };
    list().map_err(not_decoded)
}

pub(crate) fn encode_offer(offer: &OfferedHistory) -> Vec<u8> {
    let mut out = Vec::new();
    out.push(u8::from(offer.volume.is_some()));
    offer.volume.iter().for_each(|volume| out.extend_from_slice(volume.bytes()));
    out.extend_from_slice(&Roots { snapshots: offer.snapshots.clone(), ..Roots::default() }.encode());
    out
}

pub(crate) fn decode_offer(bytes: &[u8]) -> Result<OfferedHistory, SnapshotError> {
    let mut reader = Reader::new(bytes);
    let read = |reader: &mut Reader<'_>| -> Result<Option<VolumeId>, DecodeError> {
        Ok(if reader.byte()? == 0 { None } else { Some(VolumeId::new(reader.array()?)) })
    };
    let volume = read(&mut reader).map_err(not_decoded)?;
    let list = reader.take(reader.remaining()).map_err(not_decoded)?;
    let roots = Roots::decode(list).map_err(|_| SnapshotError::malformed())?;
    Ok(OfferedHistory { volume, snapshots: roots.snapshots })
}

/// Cuts a text to what a frame may have.
pub(crate) fn cut(text: &str) -> &[u8] {
    &text.as_bytes()[..text.len().min(MAX_TEXT_BYTES as usize)]
}

pub(crate) fn encode_copied(done: &CopiedHistory) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, &Roots { snapshots: done.copied.clone(), ..Roots::default() }.encode());
    for ids in [&done.present, &done.healed, &done.forgotten] {
        put_varint(&mut out, ids.len() as u64);
        ids.iter().for_each(|id| out.extend_from_slice(&id.0.to_le_bytes()));
    }
    put_varint(&mut out, done.failed.len() as u64);
    for (id, error) in &done.failed {
        out.extend_from_slice(&id.0.to_le_bytes());
        put_bytes(&mut out, cut(error));
    }
    put_varint(&mut out, done.bytes);
    out
}

pub(crate) fn decode_copied(bytes: &[u8]) -> Result<CopiedHistory, DecodeError> {
    let mut reader = Reader::new(bytes);
    let list = reader.bytes(MAX_REQUEST_BYTES as usize)?;
    let copied = Roots::decode(list).map_err(|_| DecodeError::Invalid("it has no list"))?.snapshots;
    let count = |reader: &mut Reader<'_>| match reader.length()? {
        count if count <= reader.remaining() / 8 => Ok(count),
        _ => Err(DecodeError::Truncated),
    };
    let id = |reader: &mut Reader<'_>| Ok(SnapshotId(u64::from_le_bytes(reader.array()?)));
    let ids = |reader: &mut Reader<'_>| -> Result<Vec<SnapshotId>, DecodeError> {
        (0..count(reader)?).map(|_| id(reader)).collect()
    };
    let (present, healed, forgotten) = (ids(&mut reader)?, ids(&mut reader)?, ids(&mut reader)?);
    let failed = (0..count(&mut reader)?).map(|_| {
        let id = id(&mut reader)?;
        Ok((id, display(reader.bytes(MAX_TEXT_BYTES as usize)?)))
    });
    let failed = failed.collect::<Result<_, DecodeError>>()?;
    let bytes = reader.varint()?;
    reader.finish()?;
    Ok(CopiedHistory { copied, present, healed, forgotten, failed, dropped: 0, bytes })
}
