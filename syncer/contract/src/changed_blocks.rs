use std::ops::Range;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::content_hash::ContentHash;

/// The most ranges of a list. Written as gaps and lengths, they fit the first message between two ends.
pub const MAX_CHANGED_RANGES: usize = 32 << 10;

/// The ranges in which a device differs from an earlier content, its base, as a storage system lists them. The storage
/// is believed that nothing else differs; a run checks that the destination has the base.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ChangedBlocks {
    /// The file that contains the list.
    #[serde(skip)]
    pub file: String,
    /// The content before the changes.
    pub base: ContentHash,
    /// The ranges that may differ from it.
    pub ranges: ChangedRanges,
}

/// Ranges of bytes, in order, none of them empty, with at least a byte between any two.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct ChangedRanges(Vec<Range<u64>>);

/// Why ranges are no list of changed blocks.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RangeError {
    /// A range without a byte.
    #[error("the range at {0} is empty")]
    Empty(u64),
    /// A range that begins before the end of the one before.
    #[error(
        "the range at {0} begins before the end of the one before it: list ranges in their order, each once"
    )]
    Order(u64),
    /// A range with an end that no device has.
    #[error("the range at {0} ends behind all that a device may have")]
    Overflow(u64),
    /// A list of a peer that is longer than it may be, or has half a range.
    #[error("there are more ranges than may be, or half a one")]
    Count,
}

impl ChangedRanges {
    /// Takes pairs of an offset and a length, in order and without overlap. Joins ranges that touch, and of more than
    /// [`MAX_CHANGED_RANGES`] those with the narrowest gaps: a run then reads the gaps, too.
    ///
    /// # Errors
    /// [`RangeError`] for the first range that is empty, out of order, or too long.
    pub fn new(pairs: impl IntoIterator<Item = (u64, u64)>) -> Result<Self, RangeError> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut begins = 0;
        for (offset, len) in pairs {
            let end = offset.checked_add(len).filter(|end| *end <= i64::MAX as u64);
            let end = end.ok_or(RangeError::Overflow(offset))?;
            if len == 0 {
                return Err(RangeError::Empty(offset));
            }
            if offset < begins {
                return Err(RangeError::Order(offset));
            }
            begins = end;
            match ranges.last_mut() {
                Some(last) if last.end == offset => last.end = end,
                _ => ranges.push(offset..end),
            }
        }
        Ok(Self(close_gaps(ranges, MAX_CHANGED_RANGES)))
    }

    /// Returns the ranges.
    pub fn as_slice(&self) -> &[Range<u64>] {
        &self.0
    }

    /// Returns the sum of their lengths in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Returns the end of the last one; 0 if there is none.
    pub fn end(&self) -> u64 {
        self.0.last().map_or(0, |last| last.end)
    }
}

/// Joins ranges across the narrowest gaps, until at most `most` are left.
fn close_gaps(ranges: Vec<Range<u64>>, most: usize) -> Vec<Range<u64>> {
    let Some(closed) = ranges.len().checked_sub(most).filter(|closed| *closed > 0) else { return ranges };
    let gap = |nth: usize| ranges[nth + 1].start - ranges[nth].end;
    let mut nths: Vec<usize> = (0..ranges.len() - 1).collect();
    nths.select_nth_unstable_by_key(closed - 1, |nth| gap(*nth));
    let mut is_closed = vec![false; ranges.len()];
    nths[..closed].iter().for_each(|nth| is_closed[*nth] = true);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(most);
    for (nth, range) in ranges.into_iter().enumerate() {
        match joined.last_mut() {
            Some(last) if is_closed[nth - 1] => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

/// Reads gaps and lengths in turn, as a peer sends them.
impl TryFrom<Vec<u64>> for ChangedRanges {
    type Error = RangeError;

    fn try_from(numbers: Vec<u64>) -> Result<Self, RangeError> {
        if numbers.len() > 2 * MAX_CHANGED_RANGES || numbers.len() % 2 == 1 {
            return Err(RangeError::Count);
        }
        let mut at = 0_u64;
        let pairs = numbers.chunks_exact(2).map(|pair| {
            let start = at.checked_add(pair[0]).ok_or(RangeError::Overflow(at))?;
            at = start.checked_add(pair[1]).ok_or(RangeError::Overflow(start))?;
            Ok((start, pair[1]))
        });
        Self::new(pairs.collect::<Result<Vec<_>, _>>()?)
    }
}

impl From<ChangedRanges> for Vec<u64> {
    fn from(ranges: ChangedRanges) -> Self {
        let mut at = 0;
        let gap_and_len = |range: Range<u64>| {
            let gap = range.start - at;
            at = range.end;
            [gap, range.end - range.start]
        };
        ranges.0.into_iter().flat_map(gap_and_len).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one_and_what_is_no_list_is_refused() {
        let ranges = ChangedRanges::new([(0, 5), (5, 3), (10, 1)]).unwrap();
        assert_eq!(ranges.as_slice(), [0..8, 10..11]);
        assert_eq!((ranges.bytes(), ranges.end()), (9, 11));
        assert_eq!(ChangedRanges::new([]).unwrap().end(), 0);
        for (pairs, error) in [
            (vec![(0, 5), (4, 1)], RangeError::Order(4)),
            (vec![(10, 1), (0, 5)], RangeError::Order(0)),
            (vec![(7, 0)], RangeError::Empty(7)),
            (vec![(u64::MAX, 1)], RangeError::Overflow(u64::MAX)),
            (vec![(1, i64::MAX as u64)], RangeError::Overflow(1)),
        ] {
            assert_eq!(ChangedRanges::new(pairs), Err(error));
        }
    }

    #[test]
    fn of_too_many_ranges_those_with_the_narrowest_gaps_become_one() {
        let ranges = vec![0..1, 3..4, 10..11, 12..14, 30..31];
        assert_eq!(close_gaps(ranges.clone(), 5), ranges);
        assert_eq!(close_gaps(ranges.clone(), 3), [0..4, 10..14, 30..31]);
        assert_eq!(close_gaps(ranges, 2), [0..14, 30..31]);
        let many = (0..2 * MAX_CHANGED_RANGES as u64 + 7).map(|nth| (nth * 3, 1));
        let all = ChangedRanges::new(many).unwrap();
        assert_eq!(all.as_slice().len(), MAX_CHANGED_RANGES);
    }

    #[test]
    fn a_list_crosses_as_gaps_and_lengths_within_the_limit_of_a_message() {
        let list = |text: &str| serde_json::from_str::<ChangedRanges>(text);
        let ranges = ChangedRanges::new([(4096, 8192), (1 << 40, 512)]).unwrap();
        let text = serde_json::to_string(&ranges).unwrap();
        assert_eq!(text, "[4096,8192,1099511615488,512]");
        assert_eq!(list(&text).unwrap(), ranges);
        for bad in ["[1]", "[1,0]", "[18446744073709551615,1]", "[1,18446744073709551615]", "[-1,1]", "{}"] {
            assert!(list(bad).is_err(), "{bad}");
        }
        assert!(list(&format!("[{}1,1]", "1,1,".repeat(MAX_CHANGED_RANGES))).is_err());
        let most = 256_u64 << 40;
        let step = most / MAX_CHANGED_RANGES as u64;
        let longest = (0..MAX_CHANGED_RANGES as u64).map(|nth| (nth * step, step / 2));
        let longest = serde_json::to_string(&ChangedRanges::new(longest).unwrap()).unwrap();
        assert!(longest.len() < 900 << 10, "{}", longest.len());
    }
}
