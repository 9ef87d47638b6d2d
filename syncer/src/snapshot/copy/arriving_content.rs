//! Content that is arriving from another store: in memory or in a file of this store, with its hash so far.

use std::{io, os::fd::AsFd as _};

use super::copy_source::ContentPiece;
use crate::{
    hash::ContentId,
    monitor::Monitor,
    snapshot::store::{Engine, OpenContent, Packing, PartFile, write_data},
};

/// Bytes that are read at once of an older version.
const PIECE_BYTES: u64 = 256 << 10;

/// Content that is arriving, and its hash so far.
pub(crate) struct ArrivingContent<'p> {
    packing: &'p Packing<'p>,
    monitor: &'p Monitor,
    pub into: ArrivingInto,
    hasher: blake3::Hasher,
    at: u64,
    len: u64,
}

pub(crate) enum ArrivingInto {
    Memory(Vec<u8>),
    File(PartFile),
}

impl<'p> ArrivingContent<'p> {
    pub(crate) fn begin(packing: &'p Packing<'p>, monitor: &'p Monitor, len: u64) -> io::Result<Self> {
        let into = if Engine::Copy.packs(len) {
            ArrivingInto::Memory(Vec::with_capacity(len as usize))
        } else {
            let part = packing.create()?;
            rustix::fs::ftruncate(&part.file, len)?;
            ArrivingInto::File(part)
        };
        Ok(Self { packing, monitor, into, hasher: blake3::Hasher::new(), at: 0, len })
    }

    /// Appends a piece. Zeros become holes in a file.
    ///
    /// # Errors
    /// `InvalidData` if there is more than was announced; if the file cannot be written to, or the monitor is told to
    /// stop: a piece of some bytes may be a hole of years.
    pub(crate) fn push(&mut self, piece: ContentPiece<'_>, basis: Option<&OpenContent>) -> io::Result<()> {
        let len = match piece {
            ContentPiece::Data(bytes) => bytes.len() as u64,
            ContentPiece::Hole(len) | ContentPiece::Same(len) => len,
            ContentPiece::End => 0,
        };
        if self.at.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        match piece {
            ContentPiece::Data(bytes) => self.data(bytes)?,
            ContentPiece::Hole(len) => self.zeros(len)?,
            ContentPiece::Same(len) => self.same(len, basis.ok_or(io::ErrorKind::InvalidData)?)?,
            ContentPiece::End => {}
        }
        Ok(())
    }

    /// Appends what the older version has at this place.
    fn same(&mut self, len: u64, basis: &OpenContent) -> io::Result<()> {
        let end = self.at + len;
        let mut buffer = vec![0; len.min(PIECE_BYTES) as usize];
        while self.at < end {
            self.monitor.check()?;
            let piece = &mut buffer[..(end - self.at).min(PIECE_BYTES) as usize];
            basis.slice().read_exact_at(piece, self.at).map_err(|_| io::ErrorKind::InvalidData)?;
            self.data(piece)?;
        }
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        match &mut self.into {
            ArrivingInto::Memory(content) => content.extend_from_slice(bytes),
            ArrivingInto::File(part) => write_data(part.file.as_fd(), bytes, self.at)?,
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn zeros(&mut self, len: u64) -> io::Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let mut left = len;
        while left > 0 {
            self.monitor.check()?;
            let some = left.min(ZEROS.len() as u64);
            self.hasher.update(&ZEROS[..some as usize]);
            left -= some;
        }
        if let ArrivingInto::Memory(content) = &mut self.into {
            content.resize(content.len() + len as usize, 0);
        }
        self.at += len;
        Ok(())
    }

    /// Returns the hash of what has arrived.
    pub(crate) fn id(&self) -> ContentId {
        ContentId(*self.hasher.finalize().as_bytes())
    }

    pub(crate) fn is_whole(&self, id: &ContentId, len: u64) -> bool {
        self.at == len && self.hasher.finalize().as_bytes() == &id.0
    }
}

impl Drop for ArrivingContent<'_> {
    /// Removes the file of content that was not kept; one that was has another name.
    fn drop(&mut self) {
        if let ArrivingInto::File(part) = &self.into {
            self.packing.discard(&part.name);
        }
    }
}
