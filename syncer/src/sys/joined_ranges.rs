//! Ranges of a device that are read and written like one row of bytes, without the gaps between them.

use std::ops::Range;

/// Ranges of a device, one behind the other.
#[derive(Debug)]
pub struct JoinedRanges {
    /// Each range of the device, with the offset of its first byte in the row.
    ranges: Vec<(u64, Range<u64>)>,
    len: u64,
}

impl JoinedRanges {
    /// Joins ranges, of which none is empty.
    pub(crate) fn new(ranges: &[Range<u64>]) -> Self {
        let mut len = 0;
        let at = |range: &Range<u64>| {
            let start = len;
            len += range.end - range.start;
            (start, range.clone())
        };
        let ranges = ranges.iter().map(at).collect();
        Self { ranges, len }
    }

    /// Returns the sum of the ranges' lengths in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Yields the ranges of the device where the bytes `row` of the row are, as far as there are any.
    pub(crate) fn places(&self, row: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.ranges.partition_point(|(at, range)| at + (range.end - range.start) <= row.start);
        let within = self.ranges[first..].iter().take_while(move |(at, _)| *at < row.end);
        within.map(move |(at, range)| {
            let skipped = row.start.saturating_sub(*at);
            range.start + skipped..range.end.min(range.start + (row.end - at))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_the_row_are_found_on_the_device() {
        let row = JoinedRanges::new(&[10..14, 20..21, 30..40]);
        let places = |range| row.places(range).map(|place| (place.start, place.end)).collect::<Vec<_>>();
        assert_eq!(row.len(), 15);
        assert_eq!(places(0..15), [(10, 14), (20, 21), (30, 40)]);
        assert_eq!(places(1..3), [(11, 13)]);
        assert_eq!(places(3..6), [(13, 14), (20, 21), (30, 31)]);
        assert_eq!(places(4..5), [(20, 21)]);
        assert_eq!(places(14..99), [(39, 40)]);
        assert_eq!(places(15..16), []);
        assert_eq!(places(4..4), []);
        assert_eq!(JoinedRanges::new(&[]).places(0..1).next(), None);
    }
}
