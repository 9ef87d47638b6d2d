//! Answers the other end of a stream from a store, while snapshots are copied there.

use std::io::{BufReader, BufWriter, Read, Write};

use super::{
    content::ContentRef,
    content_basis::{GranuleHash, granule_bytes, hash_of},
    copy_history::CopiedHistory,
    folder::FolderRef,
    history_frames::{
        Frames, MAX_PIECE_BYTES, MAX_REQUEST_BYTES, cut, decode_copied, encode_offer, kind, malformed,
        not_decoded, read_asked, read_content_ref, read_folders, read_list,
    },
    history_source::{ContentPiece, HistorySource as _, NoHistory, PIECE_BYTES, StoredHistory, read_content},
    snapshot_error::{SnapshotError, chain},
};
use crate::codec::{Reader, put_varint};

/// How a copy into the store at the other end has ended.
#[derive(Debug)]
pub enum FarCopy {
    /// It got to its end.
    Done(CopiedHistory),
    /// It did not, for this reason.
    Failed(String),
}

/// Answers the other end from the store of `history`, until the copy there has ended.
///
/// # Errors
/// If the other end is lost, or asks for what no store asks for.
pub fn serve_history(
    history: &mut StoredHistory<'_>,
    from: impl Read,
    to: impl Write,
) -> Result<FarCopy, SnapshotError> {
    let mut frames = Frames { from: BufReader::new(from), to: BufWriter::new(to) };
    loop {
        let (kind, body) = frames.receive(|_| MAX_REQUEST_BYTES)?;
        let mut reader = Reader::new(&body);
        let answered = match kind {
            kind::OFFER => history.offer().map(|offer| (kind::OFFER, encode_offer(&offer))).map(Some),
            kind::FOLDERS => send_folders(history, &read_folders(&mut reader)?, &mut frames).map(|()| None),
            kind::ALLOCATED => {
                let wanted = read_list(&mut reader, read_content_ref)?;
                let allocated = history.allocated(&wanted);
                allocated.map(|allocated| {
                    let mut body = Vec::new();
                    allocated.iter().for_each(|bytes| put_varint(&mut body, *bytes));
                    Some((kind::ALLOCATED, body))
                })
            }
            kind::CONTENTS => {
                let wanted = read_list(&mut reader, read_asked)?;
                send_contents(history, &wanted, &mut frames).map(|()| None)
            }
            kind::DONE => return Ok(FarCopy::Done(decode_copied(&body).map_err(not_decoded)?)),
            kind::FAILED => return Ok(FarCopy::Failed(String::from_utf8_lossy(&body).into_owned())),
            _ => return Err(malformed()),
        };
        let sent = match answered {
            Ok(Some((kind, body))) => frames.send(kind, &body),
            Ok(None) => Ok(()),
            Err(SnapshotError::Link(error)) => Err(error),
            Err(error) => frames.send(kind::FAILED, cut(&chain(&error))),
        };
        sent.map_err(SnapshotError::Link)?;
        frames.flush()?;
    }
}

/// Answers the other end as a store without snapshots, until the copy there has ended.
///
/// # Errors
/// If the other end is lost, or asks for more than the list.
pub fn serve_nothing(from: impl Read, to: impl Write) -> Result<(), SnapshotError> {
    let mut frames = Frames { from: BufReader::new(from), to: BufWriter::new(to) };
    loop {
        match frames.receive(|_| MAX_REQUEST_BYTES)?.0 {
            kind::OFFER => {
                let offer = encode_offer(&NoHistory.offer()?);
                frames.send(kind::OFFER, &offer).map_err(SnapshotError::Link)?;
                frames.flush()?;
            }
            kind::DONE | kind::FAILED => return Ok(()),
            _ => return Err(malformed()),
        }
    }
}

/// Answers the first request of the other end with the reason why this one has nothing to offer.
///
/// # Errors
/// If the other end is lost.
pub fn refuse_history(error: &SnapshotError, from: impl Read, to: impl Write) -> Result<(), SnapshotError> {
    let mut frames = Frames { from: BufReader::new(from), to: BufWriter::new(to) };
    frames.receive(|_| MAX_REQUEST_BYTES)?;
    frames.send(kind::FAILED, cut(&chain(error))).map_err(SnapshotError::Link)?;
    frames.flush()
}

fn send_folders<R: Read, W: Write>(
    history: &mut StoredHistory<'_>,
    wanted: &[FolderRef],
    frames: &mut Frames<R, W>,
) -> Result<(), SnapshotError> {
    history.folders(wanted, &mut |_, folder| {
        frames.send(kind::FOLDERS, &folder.encode().1).map_err(SnapshotError::Link)
    })
}

fn send_contents<R: Read, W: Write>(
    history: &mut StoredHistory<'_>,
    wanted: &[(ContentRef, u64, Vec<GranuleHash>)],
    frames: &mut Frames<R, W>,
) -> Result<(), SnapshotError> {
    for (content, len, granules) in wanted {
        match granules.is_empty() {
            true => {
                let mut buffer = vec![0; PIECE_BYTES as usize];
                read_content(history.store, (content, *len), &mut buffer, &mut |piece| {
                    send_piece(frames, piece)
                })?;
            }
            false => send_difference(history, (content, *len), granules, frames)?,
        }
    }
    Ok(())
}

/// Sends the granules of content that differ from those of the other end's basis.
fn send_difference<R: Read, W: Write>(
    history: &StoredHistory<'_>,
    (content, len): (&ContentRef, u64),
    granules: &[GranuleHash],
    frames: &mut Frames<R, W>,
) -> Result<(), SnapshotError> {
    let granule = granule_bytes(len);
    // Holes within a granule are zeros, so that granules are whole when they are compared.
    let mut whole = vec![0; granule as usize];
    let open = history.store.content(content)?;
    let mut at = 0;
    while at < len {
        let piece = &mut whole[..(len - at).min(granule) as usize];
        let read = open.slice().read_exact_at(piece, at);
        read.map_err(|_| SnapshotError::Hash(history.store.name_of(content)))?;
        let known = granules.get((at / granule) as usize);
        match known.is_some_and(|known| *known == hash_of(piece)) {
            true => send_piece(frames, ContentPiece::Same(piece.len() as u64))?,
            false => {
                let parts = piece.chunks(MAX_PIECE_BYTES as usize);
                parts.into_iter().try_for_each(|part| send_piece(frames, ContentPiece::Data(part)))?;
            }
        }
        at += piece.len() as u64;
    }
    send_piece(frames, ContentPiece::End)
}

fn send_piece<R: Read, W: Write>(
    frames: &mut Frames<R, W>,
    piece: ContentPiece<'_>,
) -> Result<(), SnapshotError> {
    let number = |number| {
        let mut body = Vec::new();
        put_varint(&mut body, number);
        body
    };
    let sent = match piece {
        ContentPiece::Data(bytes) => frames.send(kind::DATA, bytes),
        ContentPiece::Hole(len) => frames.send(kind::HOLE, &number(len)),
        ContentPiece::Same(len) => frames.send(kind::SAME, &number(len)),
        ContentPiece::End => frames.send(kind::END, &[]),
    };
    sent.map_err(SnapshotError::Link)
}
