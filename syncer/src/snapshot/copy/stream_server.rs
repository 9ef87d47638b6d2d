//! Answers the other end of a stream from a store, while snapshots are copied there.

use std::io::{BufReader, BufWriter, Read, Write};

use super::{
    copy_snapshots::CopiedHistory,
    copy_source::{ContentPiece, HistorySource},
    stream_frames::{
        Frames, MAX_REQUEST_BYTES, StreamFrame, cut, decode_copied, encode_offer, kind, not_decoded,
        read_content_ref, read_folders, read_list, read_requested,
    },
};
use crate::{
    codec::{Reader, put_varint},
    snapshot::store::{Folder, SnapshotError},
};
use contract::chain;

/// How a copy into the store at the other end has ended.
#[derive(Debug)]
pub enum FarCopy {
    /// It got to its end.
    Done(CopiedHistory),
    /// It did not, for this reason.
    Failed(String),
}

/// Answers the other end from `history`, until the copy there has ended.
///
/// # Errors
/// If the other end is lost, or asks for what no store asks for.
pub fn serve_history(
    history: &mut dyn HistorySource,
    from: impl Read,
    to: impl Write,
) -> Result<FarCopy, SnapshotError> {
    let mut frames = Frames { from: BufReader::new(from), to: BufWriter::new(to) };
    loop {
        let StreamFrame { kind, body } = frames.receive(|_| MAX_REQUEST_BYTES)?;
        let mut reader = Reader::new(&body);
        let answered = match kind {
            kind::OFFER => history.offer().map(|offer| (kind::OFFER, encode_offer(&offer))).map(Some),
            kind::FOLDERS => {
                let send = &mut |_, folder: Folder| {
                    frames.send(kind::FOLDERS, &folder.encode().bytes).map_err(SnapshotError::Link)
                };
                history.folders(&read_folders(&mut reader)?, send).map(|()| None)
            }
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
                let wanted = read_list(&mut reader, read_requested)?;
                history.contents(&wanted, &mut |_, piece| send_piece(&mut frames, piece)).map(|()| None)
            }
            kind::DONE => return Ok(FarCopy::Done(decode_copied(&body).map_err(not_decoded)?)),
            kind::FAILED => return Ok(FarCopy::Failed(String::from_utf8_lossy(&body).into_owned())),
            _ => return Err(SnapshotError::malformed()),
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
