//! Finds the bytes of the source's file that the sink already has.
//!
//! A [`Differ`] cuts the source's file into chunks and looks each up in the [`Basis`]. After a chunk of the basis it
//! *expects* the next one with its length, and one hash over those bytes decides. Cuts depend only on the bytes since
//! the cut before, so this finds the same cuts as a search, at the cost of one hash for data that did not change or
//! only moved.
//!
//! The last chunk of a basis ends where its file ended, not where its content said. If it is found with more bytes
//! behind it, the file has grown: its bytes are copied, and the source's own chunk continues past them.

use super::basis::{Basis, Ordinal};
use super::cut_chunks::Chunker;

/// A chunk of the source's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkMatch {
    /// Bytes from the start of the source's file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
    /// The hash of its bytes.
    pub hash: blake3::Hash,
    /// Where the sink can take its bytes from.
    pub origin: ChunkOrigin,
}

/// The share of a chunk that the sink has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkOrigin {
    /// Nothing.
    New,
    /// All of it.
    Known(Ordinal),
    /// Its first bytes, which are all of the last chunk of a file that has grown.
    Grown(Ordinal),
}

/// Compares the source's file with a basis, chunk by chunk.
#[derive(Debug)]
pub struct Differ<'b> {
    basis: &'b Basis,
    chunker: Chunker,
    offset: u64,
    expected: Option<Ordinal>,
    begun: Option<Begun>,
}

/// The chunk at the present cut if it is not the expected one: the hash of its first bytes is already known.
#[derive(Debug)]
struct Begun {
    hasher: blake3::Hasher,
    len: usize,
    grown: Option<Ordinal>,
}

/// The result of an expectation.
enum Tried {
    Confirmed(blake3::Hash),
    Refuted,
    TooFewBytes,
}

impl<'b> Differ<'b> {
    /// Starts at the start of a file, which is cut to the sizes of the basis.
    #[must_use]
    pub fn new(basis: &'b Basis) -> Self {
        Self { basis, chunker: Chunker::new(basis.sizes()), offset: 0, expected: basis.first(), begun: None }
    }

    /// Returns the chunk at the start of `bytes`, and moves to its end.
    ///
    /// `bytes` begin at the last cut; with `last`, the file ends with them. `None` requests more bytes, at most the
    /// longest chunk. With `last`, only an empty slice returns `None`.
    pub fn next(&mut self, bytes: &[u8], last: bool) -> Option<ChunkMatch> {
        if let Some(ordinal) = self.expected {
            match self.try_expected(ordinal, bytes, last) {
                Tried::TooFewBytes => return None,
                Tried::Refuted => self.expected = None,
                Tried::Confirmed(hash) => {
                    return Some(self.found(self.basis.len_of(ordinal), hash, ChunkOrigin::Known(ordinal)));
                }
            }
        }
        let cut = self.chunker.next_cut(bytes, last)?;
        let grown = self.begun.as_ref().filter(|begun| begun.len <= cut).and_then(|begun| begun.grown);
        let hash = self.hash(&bytes[..cut]);
        let known = self.basis.find(&hash, cut as u32).map(ChunkOrigin::Known);
        Some(self.found(
            cut as u32,
            hash,
            known.or(grown.map(ChunkOrigin::Grown)).unwrap_or(ChunkOrigin::New),
        ))
    }

    fn try_expected(&mut self, ordinal: Ordinal, bytes: &[u8], last: bool) -> Tried {
        let len = self.basis.len_of(ordinal) as usize;
        if bytes.len() < len {
            return if last { Tried::Refuted } else { Tried::TooFewBytes };
        }
        let mut hasher = blake3::Hasher::new();
        let hash = hasher.update(&bytes[..len]).finalize();
        let same = self.basis.is_named(ordinal, &hash);
        let ends_here = self.basis.next(ordinal).is_some() || (last && bytes.len() == len);
        if same && ends_here {
            return Tried::Confirmed(hash);
        }
        self.begun = Some(Begun { hasher, len, grown: same.then_some(ordinal) });
        Tried::Refuted
    }

    fn hash(&mut self, chunk: &[u8]) -> blake3::Hash {
        match self.begun.take() {
            Some(mut begun) if begun.len <= chunk.len() => {
                begun.hasher.update(&chunk[begun.len..]).finalize()
            }
            _ => blake3::hash(chunk),
        }
    }

    fn found(&mut self, len: u32, hash: blake3::Hash, origin: ChunkOrigin) -> ChunkMatch {
        let found = ChunkMatch { offset: self.offset, len, hash, origin };
        self.offset += u64::from(len);
        self.expected = match origin {
            ChunkOrigin::Known(ordinal) => self.basis.next(ordinal),
            ChunkOrigin::New | ChunkOrigin::Grown(_) => None,
        };
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::chunk_sizes::ChunkSizes;
    use super::super::edits::{Edit, edited, edits};
    use super::super::list::list;
    use super::super::testing::{noise, text};
    use super::*;

    const FINE: ChunkSizes = ChunkSizes::FINE;

    fn basis(bytes: &[u8]) -> Basis {
        Basis::new(&list(bytes, FINE)).unwrap()
    }

    /// Returns all chunks of `bytes`, which arrive `step` bytes at a time.
    fn chunks(basis: &Basis, bytes: &[u8], step: usize) -> Vec<ChunkMatch> {
        let mut differ = Differ::new(basis);
        let mut all = Vec::new();
        let (mut start, mut end) = (0, 0);
        while end < bytes.len() {
            end = bytes.len().min(end + step);
            while let Some(found) = differ.next(&bytes[start..end], end == bytes.len()) {
                start += found.len as usize;
                all.push(found);
            }
        }
        all
    }

    /// Makes `new` as a sink does, and returns the number of its bytes that had to cross.
    fn cost(old: &[u8], new: &[u8], step: usize) -> u64 {
        let basis = basis(old);
        let (mut made, mut literal) = (Vec::new(), 0);
        for found in chunks(&basis, new, step) {
            let copied = match found.origin {
                ChunkOrigin::New => 0..0,
                ChunkOrigin::Known(ordinal) | ChunkOrigin::Grown(ordinal) => {
                    let offset = basis.offset(ordinal) as usize;
                    offset..offset + basis.len_of(ordinal) as usize
                }
            };
            let (start, end) = (made.len() + copied.len(), found.offset as usize + found.len as usize);
            made.extend_from_slice(&old[copied]);
            made.extend_from_slice(&new[start..end]);
            literal += (end - start) as u64;
        }
        assert_eq!(made, new);
        literal
    }

    #[test]
    fn an_unchanged_file_costs_nothing() {
        let bytes = noise(1, 3_000_000);
        assert_eq!(cost(&bytes, &bytes, bytes.len()), 0);
        assert_eq!(cost(&bytes, &[], 1), 0);
        assert_eq!(cost(&[], &bytes, 9_999), 3_000_000);
    }

    #[test]
    fn bytes_appended_are_all_that_crosses() {
        for (len, more) in [(1, 1), (4096, 40), (200_000, 14_000), (850_000, 1), (850_000, 300_000)] {
            let new = text(3, len + more);
            for step in [700, new.len()] {
                assert_eq!(cost(&new[..len], &new, step), more as u64, "{more} bytes after {len}");
            }
        }
    }

    #[test]
    fn a_file_cut_short_crosses_its_last_chunk_at_most() {
        let old = noise(4, 500_000);
        for len in [1, 1_000, 250_000, 499_999] {
            assert!(cost(&old, &old[..len], len) <= u64::from(FINE.max()), "cut to {len}");
        }
    }

    #[test]
    fn an_edit_in_place_costs_the_chunks_that_it_touches() {
        let old = noise(5, 600_000);
        for edit in [8, 100, 10_000, 40_000] {
            let costs = (0..16_u16).map(|place| {
                let mut new = old.clone();
                Edit::Overwrite(place * 3_700 + 777, edit).apply(&mut new, 100 + u64::from(place));
                cost(&old, &new, new.len()) - edit as u64
            });
            let cost = costs.sum::<u64>() / 16;
            assert!(cost < 3 * (4 << 10), "an edit of {edit} bytes costs {cost} more");
        }
    }

    #[test]
    fn an_insertion_costs_what_was_inserted_and_about_a_chunk() {
        let old = noise(6, 600_000);
        for inserted in [1, 5_000, 100_000] {
            let costs = (0..16_u16).map(|place| {
                let mut new = old.clone();
                Edit::Insert(place * 3_700 + 777, inserted).apply(&mut new, 100 + u64::from(place));
                cost(&old, &new, new.len()) - inserted as u64
            });
            let cost = costs.sum::<u64>() / 16;
            assert!(cost < 2 * (4 << 10), "{inserted} bytes cost {cost} more");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn whatever_was_edited_is_made_anew(
            seed in 0_u64..20, len in 0_usize..150_000, edits in edits(30_000), step in 1_usize..100_000,
        ) {
            let old = if seed % 2 == 0 { noise(seed, len) } else { text(seed, len) };
            cost(&old, &edited(&old, &edits), step);
        }

        #[test]
        fn following_a_basis_finds_the_same_cuts_as_searching(
            seed in 0_u64..20, len in 0_usize..150_000, edits in edits(30_000), step in 1_usize..100_000,
        ) {
            let old = if seed % 2 == 0 { noise(seed, len) } else { text(seed, len) };
            let new = edited(&old, &edits);
            let followed = chunks(&basis(&old), &new, step);
            let searched = chunks(&Basis::empty(FINE), &new, new.len().max(1));
            let cuts = |found: &[ChunkMatch]| found.iter().map(|found| (found.offset, found.len, found.hash)).collect::<Vec<_>>();
            prop_assert_eq!(cuts(&followed), cuts(&searched));
        }
    }
}
