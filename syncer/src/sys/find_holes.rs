//! Decides which files count as sparse, and finds the data and the holes of a file, as its file system reports them
//! (`SEEK_DATA`, `SEEK_HOLE`).

use std::ops::Range;

use parking_lot::Mutex;
use rustix::{
    fs::{SeekFrom, Stat},
    io::Errno,
};

use crate::sys::file_part::Slice;

/// Returns whether so few blocks are allocated for a file that it may have holes, and counts as sparse.
pub(crate) fn has_holes(stat: &Stat) -> bool {
    blocks_leave_holes(stat.st_size as u64, stat.st_blocks as u64)
}

/// Returns whether a file of `size` bytes counts as sparse, by its `blocks` of 512 bytes: at least a page is missing.
pub(crate) fn blocks_leave_holes(size: u64, blocks: u64) -> bool {
    const PAGE: u64 = 4096;
    size > PAGE && blocks.saturating_mul(512).saturating_add(PAGE) <= size
}

/// The data ranges of a file. The last one found is remembered: it may be the whole file, and some file systems read
/// every page to find its end.
///
/// Where the file system does not report holes, the whole file is data. The lookups move the file's offset, which no
/// other code uses.
#[derive(Debug)]
pub(crate) struct DataMap {
    len: u64,
    last: Mutex<Range<u64>>,
}

impl DataMap {
    /// Starts a map of a file of `len` bytes.
    pub(crate) fn new(len: u64) -> Self {
        Self { len, last: Mutex::new(0..0) }
    }

    /// Returns the first data range from `at` on; `None` if a hole reaches to the end.
    pub(crate) fn next(&self, file: Slice<'_>, at: u64) -> Option<Range<u64>> {
        let mut last = self.last.lock();
        if !last.contains(&at) {
            *last = find(file, at, self.len)?;
        }
        Some(last.start.max(at)..last.end)
    }

    /// Returns all data ranges from `start` to `end`.
    pub(crate) fn within(&self, file: Slice<'_>, start: u64, end: u64) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        let mut at = start;
        while at < end
            && let Some(data) = self.next(file, at).filter(|data| data.start < end)
        {
            at = data.end.min(end);
            ranges.push(data.start..at);
        }
        ranges
    }
}

/// Returns the end of the last data of a file of `len` bytes.
pub(crate) fn data_end(file: Slice<'_>, len: u64) -> u64 {
    let map = DataMap::new(len);
    let mut end = 0;
    while let Some(data) = map.next(file, end) {
        end = data.end;
    }
    end
}

fn find(Slice { fd, start: begin, row }: Slice<'_>, at: u64, len: u64) -> Option<Range<u64>> {
    if row.is_some() {
        return (at < len).then_some(at..len);
    }
    let start = match rustix::fs::seek(fd, SeekFrom::Data(begin + at)) {
        Ok(start) => start.saturating_sub(begin),
        Err(Errno::NXIO) => return None,
        Err(_) => at,
    };
    if start >= len {
        return None;
    }
    let end =
        rustix::fs::seek(fd, SeekFrom::Hole(begin + start)).map_or(len, |end| end.saturating_sub(begin));
    Some(start..end.clamp(start + 1, len))
}

#[cfg(test)]
mod tests {
    use std::os::{fd::AsFd as _, unix::fs::FileExt as _};

    use super::*;

    const LEN: u64 = 1 << 20;

    #[test]
    fn data_is_found_between_holes() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(LEN).unwrap();
        file.write_all_at(&[1; 4096], 64 << 10).unwrap();
        file.write_all_at(&[1; 100], LEN - 100).unwrap();
        let map = DataMap::new(LEN);
        let whole = Slice::all_of(file.as_fd());
        let ranges = map.within(whole, 0, LEN);
        assert!(ranges.iter().any(|range| range.contains(&(64 << 10))), "{ranges:?}");
        assert!(ranges.iter().any(|range| range.contains(&(LEN - 1))), "{ranges:?}");
        let data: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        assert!(data <= 256 << 10, "{ranges:?}");
        let inside = 66 << 10..67 << 10;
        assert_eq!(map.within(whole, inside.start, inside.end).first(), Some(&inside));
        assert_eq!(map.next(whole, 66 << 10).map(|data| data.start), Some(66 << 10));
        assert_eq!(data_end(whole, LEN), LEN);
        file.set_len(LEN - 100).unwrap();
        let end = data_end(whole, LEN - 100);
        assert!(((64 << 10) + 4096..=LEN - 100).contains(&end), "{end}");
        file.set_len(0).unwrap();
        file.set_len(LEN).unwrap();
        assert!([0, LEN].contains(&data_end(whole, LEN)), "some file systems do not tell");
    }

    #[test]
    fn a_file_with_no_data_has_no_ranges() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(5 << 20).unwrap();
        let (map, whole) = (DataMap::new(5 << 20), Slice::all_of(file.as_fd()));
        assert_eq!(map.next(whole, 0), None);
        assert!(map.within(whole, 0, 5 << 20).is_empty());
    }

    #[test]
    fn in_a_part_of_a_file_data_is_where_it_is_from_the_parts_start() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 * LEN).unwrap();
        file.write_all_at(&[1; 4096], LEN + (64 << 10)).unwrap();
        let map = DataMap::new(LEN);
        let part = Slice::from(file.as_fd(), LEN);
        let ranges = map.within(part, 0, LEN);
        assert!(ranges.iter().any(|range| range.contains(&(64 << 10))), "{ranges:?}");
        assert!(ranges.iter().all(|range| range.end <= LEN), "{ranges:?}");
        let next = Slice::from(file.as_fd(), 2 * LEN);
        assert_eq!(DataMap::new(LEN).next(next, 0), None);
    }
}
