//! Files read one after the other, as if they were one.

use std::{
    io,
    num::NonZeroU64,
    ops::Range,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::fs::Advice;

use crate::sys::file_part::{SizedFile, Slice};

/// The files of the destination that chunks are copied from, in order.
pub(crate) struct ConcatFiles {
    files: Vec<OwnedFd>,
    /// The offset at which each file ends.
    ends: Vec<u64>,
}

/// A range of the whole, as a place in one file.
#[derive(Debug)]
pub(crate) struct FileRange<'a> {
    pub file: BorrowedFd<'a>,
    /// The offset in the file at which it begins.
    pub offset: u64,
}

impl ConcatFiles {
    /// Concatenates files.
    pub(crate) fn new(files: Vec<SizedFile>) -> Self {
        let mut end = 0;
        let (files, ends) = files
            .into_iter()
            .map(|SizedFile { file, len }| {
                end += len;
                (file, end)
            })
            .unzip();
        Self { files, ends }
    }

    /// Yields the files in order.
    pub(crate) fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.files.iter().map(OwnedFd::as_fd)
    }

    /// Returns the length of all files together in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Finds the file and offset of a range, if it is in one file.
    pub(crate) fn place(&self, range: Range<u64>) -> Option<FileRange<'_>> {
        let nth = self.ends.partition_point(|end| *end <= range.start);
        let start = nth.checked_sub(1).map_or(0, |before| self.ends[before]);
        let file = self.files.get(nth).filter(|_| range.end <= self.ends[nth])?.as_fd();
        Some(FileRange { file, offset: range.start - start })
    }

    /// Tells the system to read a range of one file ahead.
    pub(crate) fn will_need(&self, offset: u64, len: u64) {
        if let Some(FileRange { file, offset }) = self.place(offset..offset + 1) {
            let _ = rustix::fs::fadvise(file, offset, NonZeroU64::new(len), Advice::WillNeed);
        }
    }

    /// Fills `bytes` from `offset` on, possibly from several of the files.
    ///
    /// # Errors
    /// `UnexpectedEof` if a file, or the last one, ends early.
    pub(crate) fn read_exact_at(&self, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
        let mut nth = self.ends.partition_point(|end| *end <= offset);
        while !bytes.is_empty() {
            let (file, end) =
                self.files.get(nth).zip(self.ends.get(nth)).ok_or(io::ErrorKind::UnexpectedEof)?;
            let start = nth.checked_sub(1).map_or(0, |before| self.ends[before]);
            let here = usize::try_from(end - offset).map_or(bytes.len(), |here| here.min(bytes.len()));
            let (now, rest) = bytes.split_at_mut(here);
            Slice::all_of(file.as_fd()).read_exact_at(now, offset - start)?;
            (bytes, offset, nth) = (rest, *end, nth + 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn files_are_read_across_their_ends_and_not_beyond_the_last() {
        let parts: [&[u8]; 4] = [b"abc", b"", b"defgh", b"i"];
        let files = parts.map(|part| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(part).unwrap();
            SizedFile { file: file.into(), len: part.len() as u64 }
        });
        let joined = ConcatFiles::new(files.into());
        assert_eq!(joined.len(), 9);
        for start in 0..=9 {
            for end in start..=9 {
                let mut bytes = vec![0; end - start];
                joined.read_exact_at(&mut bytes, start as u64).unwrap();
                assert_eq!(bytes, b"abcdefghi"[start..end]);
            }
        }
        assert!(joined.read_exact_at(&mut [0; 2], 8).is_err() && joined.read_exact_at(&mut [0], 9).is_err());
    }

    #[test]
    fn a_file_that_was_cut_short_is_not_read_as_the_next() {
        let mut short = tempfile::tempfile().unwrap();
        short.write_all(b"ab").unwrap();
        let mut next = tempfile::tempfile().unwrap();
        next.write_all(b"def").unwrap();
        let files = [short, next].map(|file| SizedFile { file: file.into(), len: 3 });
        let joined = ConcatFiles::new(files.into());
        assert!(joined.read_exact_at(&mut [0; 4], 0).is_err());
    }
}
