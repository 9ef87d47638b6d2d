//! A part of a device, or of an image, that is written to in place.

use std::{
    io,
    ops::Range,
    os::fd::BorrowedFd,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use rustix::{fs::SeekFrom, io::Errno};

use super::file_io;
use crate::slice::{Slice, data_in};

/// On a device, fewer zeros than these are written as any bytes: that is quicker than a command to the disk, which is
/// waited for.
const MIN_HOLE_BYTES: u64 = 64 << 10;

/// So much of a device is looked at at once.
const BUFFER_BYTES: u64 = 1 << 20;

/// A part of a device, which is written to in place.
#[derive(Debug)]
pub(super) struct PartWriter {
    start: u64,
    len: u64,
    is_block: bool,
    written: AtomicU64,
}

impl PartWriter {
    /// The range of `len` bytes from `start` on, of which nothing is written yet.
    pub(super) fn new(start: u64, len: u64, is_block: bool) -> Self {
        Self { start, len, is_block, written: AtomicU64::new(0) }
    }

    /// How many bytes were written to it.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// The part as a file of its own.
    pub(super) fn slice<'a>(&self, fd: BorrowedFd<'a>) -> Slice<'a> {
        Slice { fd, start: self.start }
    }

    /// Where `offset` of the part is on the device, if `len` bytes from there on are the part's.
    fn at(&self, offset: u64, len: u64) -> io::Result<u64> {
        let is_within = offset.checked_add(len).is_some_and(|end| end <= self.len);
        if is_within { Ok(self.start + offset) } else { Err(beyond()) }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn check_len(&self, len: u64) -> io::Result<()> {
        if len == self.len { Ok(()) } else { Err(beyond()) }
    }

    pub(super) fn write(&self, fd: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> io::Result<()> {
        file_io::write_all(fd, bytes, self.at(offset, bytes.len() as u64)?)?;
        self.written.fetch_add(bytes.len() as u64, Relaxed);
        Ok(())
    }

    /// Makes a range zeros, without room taken for them where that can be. What is zeros already is left alone; a
    /// device has to be read to tell.
    pub(super) fn make_hole(&self, fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
        let (mut at, end) = (self.at(offset, len)?, self.start + offset + len);
        if !self.is_block {
            return if has_data(fd, at, len) { self.zero(fd, at..end) } else { Ok(()) };
        }
        let mut buffer = vec![0; len.min(BUFFER_BYTES) as usize];
        while at < end {
            let there = &mut buffer[..(end - at).min(BUFFER_BYTES) as usize];
            file_io::read_exact_at(fd, there, at)?;
            data_in(there, at).into_iter().try_for_each(|data| self.zero(fd, data))?;
            at += there.len() as u64;
        }
        Ok(())
    }

    fn zero(&self, fd: BorrowedFd<'_>, Range { start, end }: Range<u64>) -> io::Result<()> {
        match self.is_block && end - start < MIN_HOLE_BYTES {
            true => file_io::write_zeros(fd, start, end - start)?,
            false => file_io::make_hole(fd, start, end - start)?,
        }
        self.written.fetch_add(end - start, Relaxed);
        Ok(())
    }
}

/// Whether a file has anything but a hole in a range. Where it cannot be told, it has.
fn has_data(fd: BorrowedFd<'_>, at: u64, len: u64) -> bool {
    match rustix::fs::seek(fd, SeekFrom::Data(at)) {
        Ok(data) => data < at + len,
        Err(error) => error != Errno::NXIO,
    }
}

pub(super) fn beyond() -> io::Error {
    io::Error::other("it is not within the part of the device that it was said to be of")
}
