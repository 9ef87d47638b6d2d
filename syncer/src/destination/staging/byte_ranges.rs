//! The ranges of a file that have new content, as data or as holes.

use std::{collections::BTreeMap, ops::Range};

/// The new content of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeChange {
    /// Other bytes.
    Data,
    /// A hole.
    Hole,
}

/// Ranges that do not overlap, in ascending order. Adjacent ranges of the same kind are merged. A later change replaces
/// an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Ranges(BTreeMap<u64, (u64, RangeChange)>);

impl Ranges {
    /// Sets the new content of a range.
    pub(crate) fn set(&mut self, Range { mut start, mut end }: Range<u64>, change: RangeChange) {
        if start >= end {
            return;
        }
        self.clear(start..end);
        if let Some((&before, &(stop, same))) = self.0.range(..start).next_back()
            && (stop, same) == (start, change)
        {
            start = before;
        }
        if let Some(&(stop, same)) = self.0.get(&end)
            && same == change
        {
            self.0.remove(&end);
            end = stop;
        }
        self.0.insert(start, (end, change));
    }

    fn clear(&mut self, Range { start, end }: Range<u64>) {
        while let Some((&at, &(stop, change))) =
            self.0.range(..end).next_back().filter(|(_, (stop, _))| *stop > start)
        {
            self.0.remove(&at);
            if at < start {
                self.0.insert(at, (start, change));
            }
            if stop > end {
                self.0.insert(end, (stop, change));
            }
        }
    }

    /// Yields the ranges and their changes, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Range<u64>, RangeChange)> {
        self.0.iter().map(|(&start, &(end, change))| (start..end, change))
    }

    /// Splits a range into its changed and unchanged pieces, in ascending order; unchanged ones have `None`.
    pub(crate) fn within(&self, Range { start, end }: Range<u64>) -> Vec<(Range<u64>, Option<RangeChange>)> {
        let first = self.0.range(..=start).next_back().map_or(start, |(&at, _)| at);
        let (mut at, mut pieces) = (start, Vec::new());
        for (&from, &(to, change)) in self.0.range(first..end).filter(|(_, (to, _))| *to > start) {
            let (from, to) = (from.max(start), to.min(end));
            if at < from {
                pieces.push((at..from, None));
            }
            pieces.push((from..to, Some(change)));
            at = to;
        }
        if at < end {
            pieces.push((at..end, None));
        }
        pieces
    }

    /// Returns the number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_what_was_set_byte_by_byte(
            sets in prop::collection::vec((0..64_u64, 0..24_u64, any::<bool>()), 0..20),
            (start, len) in (0..64_u64, 0..40_u64),
        ) {
            let mut plain = [None; 128];
            let mut ranges = Ranges::default();
            for (start, len, is_hole) in sets {
                let change = if is_hole { RangeChange::Hole } else { RangeChange::Data };
                ranges.set(start..start + len, change);
                plain[start as usize..(start + len) as usize].fill(Some(change));
            }
            let mut last = None;
            for (range, change) in ranges.iter() {
                prop_assert!(range.start < range.end);
                prop_assert!(last.is_none_or(|(end, _)| end <= range.start));
                prop_assert!(last != Some((range.start, change)), "equal neighbours are one");
                last = Some((range.end, change));
            }
            let mut at = start;
            for (range, change) in ranges.within(start..start + len) {
                prop_assert_eq!(range.start, at);
                prop_assert!(plain[range.start as usize..range.end as usize].iter().all(|there| *there == change));
                at = range.end;
            }
            prop_assert_eq!(at, start + len);
            let set = ranges.iter().map(|(range, _)| range.end - range.start).sum::<u64>();
            prop_assert_eq!(set, plain.iter().flatten().count() as u64);
        }
    }
}
