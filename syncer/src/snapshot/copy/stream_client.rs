//! The store at the other end of a stream of bytes, such as the pipes of ssh, as a source of snapshots.
//!
//! Each request is answered before the next one is sent, and one request asks for all directories of a level, so that a
//! level takes one round trip.

use std::io::{BufReader, BufWriter, Read, Write};

use super::{
    copy_snapshots::CopiedHistory,
    copy_source::{
        ContentPiece, HistorySource, OfferedHistory, ReceiveFolder, ReceivePiece, RequestedContent,
    },
    stream_frames::{
        Frames, MAX_PIECE_BYTES, MAX_REQUEST_BYTES, MAX_TEXT_BYTES, StreamFrame, cut, decode_offer,
        encode_copied, kind, not_decoded, put_content,
    },
};
use crate::{
    codec::{Reader, put_varint},
    path::display,
    snapshot::store::{ContentRef, Folder, FolderRef, MAX_FOLDER_BYTES, MAX_ROOTS_BYTES, SnapshotError},
};
use contract::chain;

/// The most directories of one request. More of one level are asked for by several requests.
const MAX_ASKED_FOLDERS: usize = 1 << 16;

/// The most hashes of granules of one request.
const MAX_ASKED_GRANULES: usize = 1 << 20;

/// The store at the other end of a stream.
#[derive(Debug)]
pub struct StreamedHistory<R: Read, W: Write> {
    frames: Frames<BufReader<R>, BufWriter<W>>,
}

impl<R: Read, W: Write> StreamedHistory<R, W> {
    /// Asks over these two directions.
    pub fn new(from: R, to: W) -> Self {
        Self { frames: Frames { from: BufReader::new(from), to: BufWriter::new(to) } }
    }

    /// Tells the other end how the copy has ended.
    ///
    /// # Errors
    /// If the other end is lost.
    pub fn finish(mut self, done: &Result<CopiedHistory, SnapshotError>) -> Result<(), SnapshotError> {
        let sent = match done {
            Ok(done) => self.frames.send(kind::DONE, &encode_copied(done)),
            Err(error) => {
                let hint = error.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
                self.frames.send(kind::FAILED, cut(&format!("{}{hint}", chain(error))))
            }
        };
        sent.map_err(SnapshotError::Link)?;
        self.frames.flush()
    }

    fn ask(&mut self, kind: u8, body: &[u8]) -> Result<(), SnapshotError> {
        self.frames.send(kind, body).map_err(SnapshotError::Link)?;
        self.frames.flush()
    }

    /// Reads a frame of an answer; a failure there is an error here.
    fn answer(&mut self) -> Result<StreamFrame, SnapshotError> {
        let most = |kind| match kind {
            kind::OFFER => MAX_ROOTS_BYTES as u32 + 64,
            kind::FOLDERS => MAX_FOLDER_BYTES,
            kind::ALLOCATED => MAX_REQUEST_BYTES,
            kind::FAILED => MAX_TEXT_BYTES,
            _ => MAX_PIECE_BYTES,
        };
        match self.frames.receive(most)? {
            StreamFrame { kind: kind::FAILED, body } => Err(SnapshotError::Elsewhere(display(&body))),
            frame => Ok(frame),
        }
    }

    fn answer_of(&mut self, kind: u8) -> Result<Vec<u8>, SnapshotError> {
        let answer = self.answer()?;
        if answer.kind == kind { Ok(answer.body) } else { Err(SnapshotError::malformed()) }
    }

    fn contents_of(
        &mut self,
        first: usize,
        wanted: &[RequestedContent],
        receive: &mut ReceivePiece<'_>,
    ) -> Result<(), SnapshotError> {
        let mut body = Vec::new();
        put_varint(&mut body, wanted.len() as u64);
        for RequestedContent { content, len, granules } in wanted {
            put_content(&mut body, content);
            put_varint(&mut body, *len);
            put_varint(&mut body, granules.len() as u64);
            granules.iter().for_each(|granule| body.extend_from_slice(granule));
        }
        self.ask(kind::CONTENTS, &body)?;
        let (mut nth, mut failed) = (0, None);
        while nth < wanted.len() {
            let StreamFrame { kind, body } = self.answer()?;
            let number = || {
                let mut reader = Reader::new(&body);
                let number = reader.varint()?;
                reader.finish().map(|()| number)
            };
            let piece = match kind {
                kind::DATA => ContentPiece::Data(&body),
                kind::HOLE => ContentPiece::Hole(number().map_err(not_decoded)?),
                kind::SAME => ContentPiece::Same(number().map_err(not_decoded)?),
                kind::END => ContentPiece::End,
                _ => return Err(SnapshotError::malformed()),
            };
            if failed.is_none() {
                match receive(first + nth, piece) {
                    Err(error) if !error.is_of_an_object() => return Err(error),
                    // The rest of the answer has to be read before the next request.
                    taken => failed = taken.err(),
                }
            }
            nth += usize::from(kind == kind::END);
        }
        failed.map_or(Ok(()), Err)
    }
}

impl<R: Read, W: Write> HistorySource for StreamedHistory<R, W> {
    fn offer(&mut self) -> Result<OfferedHistory, SnapshotError> {
        self.ask(kind::OFFER, &[])?;
        let body = self.answer_of(kind::OFFER)?;
        decode_offer(&body)
    }

    fn folders(
        &mut self,
        wanted: &[FolderRef],
        receive: &mut ReceiveFolder<'_>,
    ) -> Result<(), SnapshotError> {
        for (first, some) in (0..).step_by(MAX_ASKED_FOLDERS).zip(wanted.chunks(MAX_ASKED_FOLDERS)) {
            let mut body = Vec::new();
            put_varint(&mut body, some.len() as u64);
            for FolderRef { id, place, .. } in some {
                body.extend_from_slice(&id.0);
                body.extend_from_slice(&place.pack.to_le_bytes());
                put_varint(&mut body, place.offset);
                put_varint(&mut body, place.len.into());
            }
            self.ask(kind::FOLDERS, &body)?;
            let mut failed = None;
            for nth in 0..some.len() {
                let folder = Folder::decode(&self.answer_of(kind::FOLDERS)?);
                let folder = folder.map_err(|_| SnapshotError::Elsewhere("a directory is damaged".into()));
                if failed.is_none() {
                    match folder.and_then(|folder| receive(first + nth, folder)) {
                        Err(error) if !error.is_of_an_object() => return Err(error),
                        taken => failed = taken.err(),
                    }
                }
            }
            failed.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    fn wants_bases(&self) -> bool {
        true
    }

    fn allocated(&mut self, wanted: &[ContentRef]) -> Result<Vec<u64>, SnapshotError> {
        let mut body = Vec::new();
        put_varint(&mut body, wanted.len() as u64);
        wanted.iter().for_each(|content| put_content(&mut body, content));
        self.ask(kind::ALLOCATED, &body)?;
        let body = self.answer_of(kind::ALLOCATED)?;
        let mut reader = Reader::new(&body);
        let numbers = (0..wanted.len()).map(|_| reader.varint()).collect::<Result<_, _>>();
        numbers.map_err(not_decoded)
    }

    fn contents(
        &mut self,
        wanted: &[RequestedContent],
        receive: &mut ReceivePiece<'_>,
    ) -> Result<(), SnapshotError> {
        let mut first = 0;
        while first < wanted.len() {
            let mut granules = 0;
            let some = wanted[first..].iter().take_while(|asked| {
                granules += asked.granules.len();
                granules <= MAX_ASKED_GRANULES
            });
            let count = some.count().max(1);
            self.contents_of(first, &wanted[first..first + count], receive)?;
            first += count;
        }
        Ok(())
    }
}
