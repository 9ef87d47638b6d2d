//! Where a file has data, and where a hole, as the file system says (`SEEK_DATA`, `SEEK_HOLE`).

use std::{ops::Range, os::fd::BorrowedFd};

use rustix::fs::SeekFrom;

use crate::hash::BLOCK_BYTES;

/// The ranges of a file that have data, ascending.
///
/// Where the file system cannot tell, everything is data. The file's offset is moved, which nothing else here looks at.
#[derive(Debug, Clone)]
pub(super) struct DataRanges<'a> {
    file: BorrowedFd<'a>,
    at: u64,
    end: u64,
}

impl<'a> DataRanges<'a> {
    /// From `start` to `end`.
    pub(super) fn new(file: BorrowedFd<'a>, start: u64, end: u64) -> Self {
        Self { file, at: start, end }
    }

    /// All of them before `end`.
    pub(super) fn within(&mut self, end: u64) -> Vec<Range<u64>> {
        self.end = self.end.min(end);
        self.collect()
    }
}

impl Iterator for DataRanges<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        if self.at >= self.end {
            return None;
        }
        let start = match rustix::fs::seek(self.file, SeekFrom::Data(self.at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => self.end,
            Err(_) => self.at,
        };
        if start >= self.end {
            self.at = self.end;
            return None;
        }
        let end =
            rustix::fs::seek(self.file, SeekFrom::Hole(start)).unwrap_or(self.end).clamp(start + 1, self.end);
        self.at = end;
        Some(start..end)
    }
}

/// Whether a block that is all hole is one in the hash of a file of `len` bytes, too. In a file of a single block its zeros are hashed.
pub(super) fn is_block_hole(len: u64) -> bool {
    len > BLOCK_BYTES as u64
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        os::{fd::AsFd as _, unix::fs::FileExt as _},
    };

    use super::*;

    #[test]
    fn data_is_found_between_holes() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[1; 4096], 64 << 10).unwrap();
        file.write_all_at(&[1; 100], (1 << 20) - 100).unwrap();
        let ranges: Vec<_> = DataRanges::new(file.as_fd(), 0, 1 << 20).collect();
        assert!(ranges.iter().any(|range| range.contains(&(64 << 10))), "{ranges:?}");
        assert!(ranges.iter().any(|range| range.contains(&((1 << 20) - 1))), "{ranges:?}");
        let data: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        assert!(data <= 256 << 10, "{ranges:?}");
    }

    #[test]
    fn a_file_with_no_data_has_no_ranges() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(5 << 20).unwrap();
        assert_eq!(DataRanges::new(file.as_fd(), 0, 5 << 20).next(), None);
        assert_eq!(DataRanges::new(File::open("/proc/self/stat").unwrap().as_fd(), 0, 0).next(), None);
    }
}
