//! Finds entries by their index. An encoding can only be read from its start, which takes milliseconds for a million
//! entries, so offsets are noted on the way.

use super::{encoding::Listing, read::Entries};

/// The number of entries between two marks. An entry is found in some microseconds, and a mark of about 150 bytes is
/// cheap for that many entries.
const STRIDE: usize = 512;

/// Reads the entries of a listing from any index on.
#[derive(Debug, Clone)]
pub struct EntryIndex<'a> {
    /// Readers at entries 0, `STRIDE`, 2 `STRIDE` …, as far as was read.
    marks: Vec<Entries<'a>>,
}

impl<'a> EntryIndex<'a> {
    /// Starts with a listing of which no entry is read yet.
    #[must_use]
    pub fn of(listing: &'a Listing) -> Self {
        Self { marks: vec![listing.iter()] }
    }

    /// Returns the entries from the one at `index` on; none if the listing is shorter.
    pub fn from(&mut self, index: u32) -> Entries<'a> {
        let index = index as usize;
        while self.marks.len() <= index / STRIDE
            && let Some(last) = self.marks.last()
        {
            let mut next = last.clone();
            if next.nth(STRIDE - 1).is_none() {
                return next;
            }
            self.marks.push(next);
        }
        let mut entries = self.marks[index / STRIDE].clone();
        if let Some(before) = (index % STRIDE).checked_sub(1) {
            entries.nth(before);
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{
        attrs::Attrs,
        entry::{Entry, Kind, Meta},
        listing::ListingBuilder,
    };

    #[test]
    fn every_place_is_found_from_any_other_and_none_behind_the_last() {
        let names: Vec<String> = (0..3 * STRIDE + 5).map(|n| format!("{n:06}")).collect();
        let mut builder = ListingBuilder::default();
        for (size, name) in (0..).zip(&names) {
            let (kind, meta) = (Kind::File { size }, Meta { mode: (size % 7) as u16, ..Meta::default() });
            builder.push(&Entry { name: name.as_bytes(), kind, meta, attrs: Attrs::default() });
        }
        let listing = builder.finish();
        let mut places = EntryIndex::of(&listing);
        for index in [3 * STRIDE + 4, 0, STRIDE - 1, STRIDE, STRIDE + 1, 2 * STRIDE, 3 * STRIDE, 7] {
            let found: Vec<_> = places.from(index as u32).take(2).collect();
            assert_eq!(found, listing.iter().skip(index).take(2).collect::<Vec<_>>(), "{index}");
        }
        for index in [names.len(), 4 * STRIDE, 100 * STRIDE] {
            assert_eq!(places.from(index as u32).next(), None, "{index}");
        }
        assert_eq!(EntryIndex::of(&Listing::default()).from(0).next(), None);
    }
}
