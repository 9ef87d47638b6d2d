//! A part of an open file, read like a file of its own.

use std::{
    io,
    ops::Range,
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::io::Errno;

use crate::sys::joined_ranges::JoinedRanges;

/// An open file, of which `len` bytes count.
#[derive(Debug)]
pub(crate) struct SizedFile {
    pub file: OwnedFd,
    pub len: u64,
}

/// An open file from some offset on.
#[derive(Debug, Clone, Copy)]
pub struct Slice<'a> {
    /// The file.
    pub fd: BorrowedFd<'a>,
    /// The offset at which the slice begins.
    pub start: u64,
    /// The ranges of the file in whose row the slice begins there; none if it begins in the file itself.
    pub row: Option<&'a JoinedRanges>,
}

impl<'a> Slice<'a> {
    /// Returns the whole of a file.
    pub fn all_of(fd: BorrowedFd<'a>) -> Self {
        Self::from(fd, 0)
    }

    /// Returns a file from `start` on.
    pub fn from(fd: BorrowedFd<'a>, start: u64) -> Self {
        Self { fd, start, row: None }
    }

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before.
    pub fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        if self.read_at(bytes, offset)? == bytes.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// Fills `bytes` from `offset` on, up to the end of the file, and returns the number of bytes read.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = self.start + offset;
        let Some(row) = self.row else { return read_at(self.fd, bytes, start) };
        let mut filled = 0;
        for place in row.places(start..start + bytes.len() as u64) {
            let len = (place.end - place.start) as usize;
            let read = read_at(self.fd, &mut bytes[filled..filled + len], place.start)?;
            filled += read;
            if read < len {
                break;
            }
        }
        Ok(filled)
    }
}

fn read_at(fd: BorrowedFd<'_>, bytes: &mut [u8], start: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::io::pread(fd, &mut bytes[filled..], start + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}

/// The length of the pieces that are checked for zeros: a page, and the block of most file systems and disks.
const PAGE_BYTES: usize = 4096;

/// Returns the page-sized ranges of `bytes` that are not zeros. The first byte is at `offset`.
pub(crate) fn data_in(bytes: &[u8], offset: u64) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (page, start) in bytes.chunks(PAGE_BYTES).zip((offset..).step_by(PAGE_BYTES)) {
        if is_zero(page) {
            continue;
        }
        let end = start + page.len() as u64;
        match ranges.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    ranges
}

fn is_zero(page: &[u8]) -> bool {
    static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
    ZEROS.starts_with(page)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::fd::AsFd as _};

    use super::*;

    #[test]
    fn a_slice_reads_from_where_it_begins() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "0123456789").unwrap();
        let slice = Slice::from(file.as_file().as_fd(), 3);
        let mut bytes = [0; 4];
        slice.read_exact_at(&mut bytes, 2).unwrap();
        assert_eq!(&bytes, b"5678");
        assert_eq!(slice.read_at(&mut bytes, 5).unwrap(), 2);
        assert!(slice.read_exact_at(&mut bytes, 5).is_err());
    }

    #[test]
    fn a_slice_of_joined_ranges_reads_over_the_gaps() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "0123456789").unwrap();
        let row = JoinedRanges::new(&[1..3, 5..6, 8..10]);
        let slice = Slice { row: Some(&row), ..Slice::from(file.as_file().as_fd(), 1) };
        let mut bytes = [0; 3];
        slice.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"258");
        assert_eq!(slice.read_at(&mut bytes, 3).unwrap(), 1);
        fs::write(file.path(), "01234567").unwrap();
        assert!(slice.read_exact_at(&mut bytes, 0).is_err(), "the file became shorter");
    }

    #[test]
    fn pages_of_zeros_are_no_data() {
        let mut bytes = vec![0; 5 * PAGE_BYTES + 100];
        assert_eq!(data_in(&bytes, 0), []);
        bytes[PAGE_BYTES - 1] = 1;
        bytes[PAGE_BYTES] = 1;
        bytes[3 * PAGE_BYTES + 77] = 1;
        bytes[5 * PAGE_BYTES + 99] = 1;
        let page = PAGE_BYTES as u64;
        let at = |from: u64, to: u64| 7 + from..7 + to;
        let data = [at(0, 2 * page), at(3 * page, 4 * page), at(5 * page, 5 * page + 100)];
        assert_eq!(data_in(&bytes, 7), data);
        assert_eq!(data_in(&[], 0), []);
    }
}
