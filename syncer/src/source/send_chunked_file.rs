//! Sends large files in which bytes may have moved: cuts them into chunks, and sends those that the sink does not have.

use std::{io, sync::Arc};

use rustix::io::Errno;

use crate::{
    delta::{
        basis::Basis,
        diff::{ChunkMatch, ChunkOrigin, Differ},
        list::{ChunkList, ListBuilder},
        window::Window,
    },
    hash::TransferHash,
    path::RelPath,
    source::{
        read_again::CHANGED,
        send_frames::{RequestedFile, SendWorker},
        send_large_file::Large,
        source_file::SourceFile,
    },
    transport::TransportError,
    wire::{
        data::{EndFrame, Fresh, Whole},
        patch::{BlockHeader, ChunkPart, ChunksBuilder, Copied},
    },
};

impl SendWorker<'_> {
    /// Sends a file, except for the chunks that the sink has. If that fails, sends all of it.
    pub(crate) fn send_chunks(
        &mut self,
        dir: &RelPath,
        file: &RequestedFile,
        list: &ChunkList,
    ) -> Result<(), TransportError> {
        match self.try_chunks(dir, file, list)? {
            Ok(end) => {
                self.monitor.add_files(1);
                self.send(end)
            }
            Err(error) => {
                tracing::debug!(%dir, %error, "a file is sent whole");
                self.help(Arc::new(Large::instead_of_chunks(self.origin, dir, file.clone(), self.monitor)))
            }
        }
    }

    fn try_chunks(
        &mut self,
        dir: &RelPath,
        file: &RequestedFile,
        list: &ChunkList,
    ) -> Result<io::Result<Vec<u8>>, TransportError> {
        let basis = match Basis::new(list) {
            Ok(basis) => basis,
            Err(error) => return Ok(Err(io::Error::other(error))),
        };
        let opened = match self.origin.file(file.dir, dir, &file.name, self.monitor) {
            Ok(opened) if opened.is_part() => {
                return Ok(Err(io::Error::other("nothing moves within a device")));
            }
            Ok(opened) if self.holes && opened.has_holes() => {
                return Ok(Err(io::Error::other("it has holes")));
            }
            Ok(opened) => opened,
            Err(error) => return Ok(Err(error)),
        };
        let mut reading = ChunkReader {
            in_motion: opened.is_in_motion(),
            differ: Differ::new(&basis),
            window: Window::new(list.sizes(), opened.len()),
            root: ListBuilder::new(list.sizes()),
            read: 0,
            opened: &opened,
        };
        let mut frame = ChunksBuilder::default();
        let mut place = BlockHeader { need: file.need, attempt: 0, file_len: opened.len(), offset: 0 };
        loop {
            self.check()?;
            match reading.next() {
                Ok(Some(found)) => {
                    let part = split(&found, &basis, reading.window.bytes());
                    if !frame.has_room(part.literal) {
                        self.send_frame(&mut frame, &mut place)?;
                    }
                    frame.push(part);
                    reading.window.consume(found.len as usize);
                }
                Ok(None) if !frame.is_empty() => self.send_frame(&mut frame, &mut place)?,
                Ok(None) => return Ok(reading.end(file)),
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    fn send_frame(
        &mut self,
        frame: &mut ChunksBuilder,
        place: &mut BlockHeader,
    ) -> Result<(), TransportError> {
        let frame = std::mem::take(frame);
        let len = frame.len();
        self.send(frame.finish(place))?;
        self.monitor.add_bytes(len);
        place.offset += len;
        Ok(())
    }
}

/// Splits a chunk into the range that the sink copies from its basis, and the literal bytes.
fn split<'b>(found: &ChunkMatch, basis: &Basis, bytes: &'b [u8]) -> ChunkPart<'b> {
    let chunk = &bytes[..found.len as usize];
    let (ordinal, len) = match found.origin {
        ChunkOrigin::New => return ChunkPart { copied: None, literal: chunk },
        ChunkOrigin::Known(ordinal) => (ordinal, found.len),
        ChunkOrigin::Grown(ordinal) => (ordinal, basis.len_of(ordinal)),
    };
    let copied = Some(Copied { offset: basis.offset(ordinal), len });
    ChunkPart { copied, literal: &chunk[len as usize..] }
}

/// A file that is read through a window and cut into chunks.
struct ChunkReader<'a> {
    opened: &'a SourceFile,
    in_motion: bool,
    read: u64,
    window: Window,
    differ: Differ<'a>,
    root: ListBuilder,
}

impl ChunkReader<'_> {
    /// Returns the chunk at the start of the window; `None` at the end of the file.
    fn next(&mut self) -> io::Result<Option<ChunkMatch>> {
        loop {
            let last = self.read == self.opened.len();
            if let Some(found) = self.differ.next(self.window.bytes(), last) {
                self.root.push(&found.hash, found.len);
                return Ok(Some(found));
            }
            if last {
                return Ok(None);
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let rest = self.opened.len() - self.read;
        let spare = self.window.spare();
        let most = usize::try_from(rest).map_or(spare.len(), |rest| rest.min(spare.len()));
        match rustix::io::pread(self.opened.content().fd, &mut spare[..most], self.read) {
            Ok(0) => Err(io::Error::other(CHANGED)),
            Ok(read) => {
                self.window.filled(read);
                self.read += read as u64;
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the frame that ends the file.
    fn end(self, file: &RequestedFile) -> io::Result<Vec<u8>> {
        let fresh = self.opened.fresh(&file.meta, file.as_listed)?;
        if !self.opened.is_unchanged()? {
            return Err(io::Error::other(CHANGED));
        }
        let fresh = fresh.as_ref().map(|it| Fresh { meta: it.meta, attrs: it.attrs.as_attrs() });
        let (file_len, hash) = (self.opened.len(), TransferHash(*self.root.root().0.as_bytes()));
        let whole = Whole { file_len, hash, fresh, in_motion: self.in_motion };
        Ok(EndFrame { need: file.need, attempt: 0, outcome: Ok(whole) }.encode())
    }
}
