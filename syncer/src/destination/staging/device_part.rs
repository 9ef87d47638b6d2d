//! A part of a device, or of an image, that is written to in place.

use std::{
    io,
    ops::Range,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use rustix::{fs::SeekFrom, io::Errno};

use crate::{
    destination::copy_bytes,
    sys::{
        file_part::{Slice, data_in},
        joined_ranges::JoinedRanges,
    },
};

/// On a device, shorter ranges of zeros are written like data: that is quicker than a command to the disk, which has to
/// be awaited.
const MIN_HOLE_BYTES: u64 = 64 << 10;

/// The number of bytes of a device that are read at once to look for data.
const BUFFER_BYTES: u64 = 1 << 20;

/// A part of a device, which is written to in place.
#[derive(Debug)]
pub(crate) struct PartWriter {
    start: u64,
    len: u64,
    is_block: bool,
    /// The ranges of the device in whose row it is; none if it is on the device itself.
    row: Option<Arc<JoinedRanges>>,
    written: AtomicU64,
}

impl PartWriter {
    /// Makes a writer for the `len` bytes from `start` on.
    pub(crate) fn new(start: u64, len: u64, is_block: bool, row: Option<Arc<JoinedRanges>>) -> Self {
        Self { start, len, is_block, row, written: AtomicU64::new(0) }
    }

    /// Returns the number of bytes that were written to it.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Returns the part as if it were a file.
    pub(crate) fn slice<'a>(&'a self, fd: BorrowedFd<'a>) -> Slice<'a> {
        Slice { fd, start: self.start, row: self.row.as_deref() }
    }

    /// Calls `at` with each range of the device where `len` bytes from `offset` in the part are. Fails if they exceed
    /// the part.
    fn each(&self, offset: u64, len: u64, at: impl FnMut(Range<u64>) -> io::Result<()>) -> io::Result<()> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(beyond());
        }
        let start = self.start + offset;
        match &self.row {
            None => std::iter::once(start..start + len).try_for_each(at),
            Some(row) => row.places(start..start + len).try_for_each(at),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn check_len(&self, len: u64) -> io::Result<()> {
        if len == self.len { Ok(()) } else { Err(beyond()) }
    }

    pub(crate) fn write(&self, fd: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut rest = bytes;
        self.each(offset, bytes.len() as u64, |place| {
            let (now, later) = rest.split_at((place.end - place.start) as usize);
            rest = later;
            copy_bytes::write_all(fd, now, place.start)?;
            self.written.fetch_add(now.len() as u64, Relaxed);
            Ok(())
        })
    }

    /// Fills a range with zeros, without allocating space for them where that is supported. Existing zeros are left
    /// alone; on a device, they have to be read for that.
    pub(crate) fn make_hole(&self, fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
        self.each(offset, len, |place| self.make_hole_at(fd, place))
    }

    fn make_hole_at(&self, fd: BorrowedFd<'_>, Range { start: mut at, end }: Range<u64>) -> io::Result<()> {
        if !self.is_block {
            return if has_data(fd, at, end - at) { self.zero(fd, at..end) } else { Ok(()) };
        }
        let mut buffer = vec![0; (end - at).min(BUFFER_BYTES) as usize];
        while at < end {
            let there = &mut buffer[..(end - at).min(BUFFER_BYTES) as usize];
            copy_bytes::read_exact_at(fd, there, at)?;
            data_in(there, at).into_iter().try_for_each(|data| self.zero(fd, data))?;
            at += there.len() as u64;
        }
        Ok(())
    }

    fn zero(&self, fd: BorrowedFd<'_>, Range { start, end }: Range<u64>) -> io::Result<()> {
        if self.is_block && end - start < MIN_HOLE_BYTES {
            copy_bytes::write_zeros(fd, start, end - start)?;
        } else {
            copy_bytes::make_hole(fd, start, end - start)?;
        }
        self.written.fetch_add(end - start, Relaxed);
        Ok(())
    }
}

/// Returns whether a file has data in a range; true if the file system does not report it.
fn has_data(fd: BorrowedFd<'_>, at: u64, len: u64) -> bool {
    match rustix::fs::seek(fd, SeekFrom::Data(at)) {
        Ok(data) => data < at + len,
        Err(error) => error != Errno::NXIO,
    }
}

pub(crate) fn beyond() -> io::Error {
    io::Error::other("it is not within the part of the device that it was said to be of")
}
