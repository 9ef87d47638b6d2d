//! The source's half: which of its bytes the sink has already.
//!
//! A [`Differ`] cuts the source's file into chunks and looks each up in the [`Basis`]. It seldom has to search for the
//! cuts: where a chunk of the basis was found, the next one is *expected* to follow with its length, and a
//! single hash over those bytes settles it. That is the whole cost of data that did not change, or only moved, and
//! it finds the same cuts as a search would, because cuts depend on nothing but what follows the cut before.
//!
//! The last chunk of a basis ends where its file ended, not where its content said. Expected and found
//! again with more bytes behind it, it shows that the file has grown: its bytes are copied, and the source's
//! own chunk goes on past them.

use super::basis::{Basis, Ordinal};
use super::chunk::{ChunkSizes, Chunker};
use super::digest::{ChunkHasher, Part, hash_chunk};
use super::list::{ListBuilder, Root};

/// One step of making the target: it makes one or more of its chunks, whole. The steps of a file are in its order and
/// leave no gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Chunks of a file of the basis, one after the other, which end in the target where they end there.
    Copy(Extent),
    /// One chunk, put together from pieces.
    Chunk(Vec<Piece>),
}

/// A part of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes that the sink has.
    Copy(Extent),
    /// Bytes that have to cross.
    Literal {
        /// Bytes from the start of the source's file, and of the target.
        offset: u64,
        /// Bytes to send, never 0.
        len: u64,
    },
}

/// A range of a file of the basis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Which file, in the order in which the basis was given.
    pub basis: u32,
    /// Bytes from that file's start.
    pub offset: u64,
    /// Length in bytes, never 0.
    pub len: u64,
}

impl Op {
    /// Bytes of the target that it makes.
    #[must_use]
    pub fn target_len(&self) -> u64 {
        match self {
            Self::Copy(extent) => extent.len,
            Self::Chunk(pieces) => pieces.iter().map(Piece::target_len).sum(),
        }
    }

    /// What it copies, if it is a copy of whole chunks.
    #[must_use]
    pub fn extent(&self) -> Option<&Extent> {
        match self {
            Self::Copy(extent) => Some(extent),
            Self::Chunk(_) => None,
        }
    }

    /// Bytes that have to cross for it.
    #[must_use]
    pub fn literal_len(&self) -> u64 {
        match self {
            Self::Copy(_) => 0,
            Self::Chunk(pieces) => pieces.iter().map(Piece::literal_len).sum(),
        }
    }
}

impl Piece {
    /// Bytes of the target that it makes.
    #[must_use]
    pub fn target_len(&self) -> u64 {
        match self {
            Self::Copy(extent) => extent.len,
            Self::Literal { len, .. } => *len,
        }
    }

    /// Bytes that have to cross for it.
    #[must_use]
    pub fn literal_len(&self) -> u64 {
        match self {
            Self::Copy(_) => 0,
            Self::Literal { len, .. } => *len,
        }
    }

    /// The two as one, if the second goes on at the byte where the first stops.
    pub(super) fn joined(self, next: Self) -> Option<Self> {
        match (self, next) {
            (Self::Copy(a), Self::Copy(b)) if a.basis == b.basis && a.end() == b.offset => {
                Some(Self::Copy(Extent { len: a.len + b.len, ..a }))
            }
            (Self::Literal { offset, len }, Self::Literal { offset: then, len: more })
                if offset + len == then =>
            {
                Some(Self::Literal { offset, len: len + more })
            }
            _ => None,
        }
    }

    /// Its first bytes, up to `len` of them, and what is left of it.
    pub(super) fn split(self, len: u64) -> (Self, Option<Self>) {
        let more = self.target_len().saturating_sub(len);
        let len = self.target_len() - more;
        let (now, later) = match self {
            Self::Literal { offset, .. } => {
                (Self::Literal { offset, len }, Self::Literal { offset: offset + len, len: more })
            }
            Self::Copy(extent) => {
                let later = Extent { offset: extent.offset + len, len: more, ..extent };
                (Self::Copy(Extent { len, ..extent }), Self::Copy(later))
            }
        };
        (now, (more > 0).then_some(later))
    }
}

impl Extent {
    /// Where it ends in its file.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// A chunk of the source's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Bytes from the start of the source's file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
    /// The hash of its bytes.
    pub hash: blake3::Hash,
    /// Where the sink can take it from.
    pub origin: Origin,
}

impl Found {
    /// The same chunk, looked up again: a source may cut and hash while it waits for the sink's lists.
    #[must_use]
    pub fn looked_up(self, basis: &Basis) -> Self {
        let origin = basis.find(&self.hash, self.len).map_or(Origin::New, Origin::Known);
        Self { origin, ..self }
    }
}

/// What a sink has of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nothing.
    New,
    /// All of it.
    Known(Ordinal),
    /// Its first bytes: all of the last chunk of a file that has grown.
    Grown(Ordinal),
}

/// Goes through the source's file from a cut on.
///
/// Several may work on parts of one file at once: see [`meet`].
#[derive(Debug)]
pub struct Differ<'b> {
    basis: &'b Basis,
    chunker: Chunker,
    offset: u64,
    expected: Option<Ordinal>,
    begun: Option<Begun>,
}

/// The chunk at the present cut, where it is not what was expected: the hash of its first bytes is known already.
#[derive(Debug)]
struct Begun {
    hasher: ChunkHasher,
    len: usize,
    grown: Option<Ordinal>,
}

/// What came of an expectation.
enum Tried {
    Confirmed(blake3::Hash),
    Refuted,
    TooFewBytes,
}

impl<'b> Differ<'b> {
    /// At the start of a file, whose older version is the first of the basis.
    #[must_use]
    pub fn new(basis: &'b Basis, sizes: ChunkSizes) -> Self {
        Self::starting_at(0, basis, sizes)
    }

    /// At `offset` of a file, taking it for a cut: a good guess is where a chunk of the first file of the basis starts. For
    /// blocks it has to be a multiple of their size.
    #[must_use]
    pub fn starting_at(offset: u64, basis: &'b Basis, sizes: ChunkSizes) -> Self {
        let mut differ = Self { basis, chunker: Chunker::new(sizes), offset, expected: None, begun: None };
        differ.expect(basis.starting_at(0, offset));
        differ
    }

    /// The chunk that `bytes` begin with, and the differ stands at its end.
    ///
    /// `bytes` begin at the last cut; `last` says that the file ends with them. `None` asks for more bytes, at most
    /// until there are [`ChunkSizes::max`] of them; with `last`, only an empty slice gives `None`.
    pub fn next(&mut self, bytes: &[u8], last: bool) -> Option<Found> {
        if let Some(ordinal) = self.expected {
            match self.try_expected(ordinal, bytes, last) {
                Tried::TooFewBytes => return None,
                Tried::Refuted => self.expected = None,
                Tried::Confirmed(hash) => {
                    return Some(self.found(self.basis.len_of(ordinal), hash, Origin::Known(ordinal)));
                }
            }
        }
        let cut = self.chunker.next_cut(bytes, last)?;
        let (hash, grown) = self.hash(&bytes[..cut], Part::of_stream(self.offset, cut, bytes, last));
        let known = self.basis.find(&hash, cut as u32).map(Origin::Known);
        Some(self.found(cut as u32, hash, known.or(grown.map(Origin::Grown)).unwrap_or(Origin::New)))
    }

    fn try_expected(&mut self, ordinal: Ordinal, bytes: &[u8], last: bool) -> Tried {
        let len = self.basis.len_of(ordinal) as usize;
        if bytes.len() < len {
            return if last { Tried::Refuted } else { Tried::TooFewBytes };
        }
        let mut hasher = ChunkHasher::new(self.chunker.sizes(), self.offset);
        let hash = hasher.update(&bytes[..len]).finish(self.basis.part(ordinal));
        let same = self.basis.is_named(ordinal, &hash);
        let ends_here = self.basis.next(ordinal).is_some() || (last && bytes.len() == len);
        if same && ends_here {
            return Tried::Confirmed(hasher.finish(Part::of_stream(self.offset, len, bytes, last)));
        }
        self.begun = Some(Begun { hasher, len, grown: same.then_some(ordinal) });
        Tried::Refuted
    }

    /// The hash of a chunk, and the ordinal that its first bytes turned out to be.
    fn hash(&mut self, chunk: &[u8], part: Part) -> (blake3::Hash, Option<Ordinal>) {
        match self.begun.take() {
            Some(mut begun) if begun.len <= chunk.len() => {
                (begun.hasher.update(&chunk[begun.len..]).finish(part), begun.grown)
            }
            _ => (hash_chunk(self.chunker.sizes(), self.offset, chunk, part), None),
        }
    }

    fn found(&mut self, len: u32, hash: blake3::Hash, origin: Origin) -> Found {
        let found = Found { offset: self.offset, len, hash, origin };
        self.offset += u64::from(len);
        self.expect(match origin {
            Origin::Known(ordinal) => self.basis.next(ordinal),
            _ if self.chunker.sizes().is_blocks() => self.basis.starting_at(0, self.offset),
            Origin::New | Origin::Grown(_) => None,
        });
        found
    }

    /// Only a chunk that was cut to the same sizes tells where a cut is.
    fn expect(&mut self, ordinal: Option<Ordinal>) {
        let sizes = self.chunker.sizes();
        self.expected = ordinal.filter(|&ordinal| self.basis.sizes_of(ordinal) == sizes);
    }
}

/// Where to go on in `later`, what another differ found from a guessed offset on, once this one's chunks reach `end`.
///
/// Two differs that have a cut in common have all later ones in common. So a large file is gone through by
/// several at once, each from its own offset and past where the next began until they meet; from there the next
/// one's chunks are the file's. `None`: no chunk of `later` starts at `end` yet.
#[must_use]
pub fn meet(end: u64, later: &[Found]) -> Option<usize> {
    later.binary_search_by_key(&end, |found| found.offset).ok()
}

/// Turns chunks into as few steps as they need.
#[derive(Debug, Default)]
pub struct Ops {
    ready: Vec<Op>,
    /// A copy that may still grow.
    open: Option<Extent>,
}

impl Ops {
    /// Adds the step that makes a chunk.
    pub fn push(&mut self, found: &Found, basis: &Basis) {
        let (offset, len) = (found.offset, u64::from(found.len));
        match found.origin {
            Origin::Known(ordinal) => self.copy(basis.extent(ordinal)),
            Origin::New => self.chunk(vec![Piece::Literal { offset, len }]),
            Origin::Grown(ordinal) => {
                let old = basis.extent(ordinal);
                let new =
                    (len > old.len).then(|| Piece::Literal { offset: offset + old.len, len: len - old.len });
                self.chunk([Piece::Copy(old)].into_iter().chain(new).collect());
            }
        }
    }

    /// The steps that can no longer change, for a source that sends while it looks.
    pub fn take_ready(&mut self) -> Vec<Op> {
        std::mem::take(&mut self.ready)
    }

    /// All steps not taken yet.
    #[must_use]
    pub fn finish(mut self) -> Vec<Op> {
        self.close();
        self.ready
    }

    fn copy(&mut self, extent: Extent) {
        match &mut self.open {
            Some(open) if open.basis == extent.basis && open.end() == extent.offset => open.len += extent.len,
            _ => {
                self.close();
                self.open = Some(extent);
            }
        }
    }

    fn chunk(&mut self, pieces: Vec<Piece>) {
        self.close();
        self.ready.push(Op::Chunk(pieces));
    }

    fn close(&mut self) {
        self.ready.extend(self.open.take().map(Op::Copy));
    }
}

/// The steps that make a file that is at hand as a whole, and its root.
#[must_use]
pub fn diff(bytes: &[u8], basis: &Basis, sizes: ChunkSizes) -> (Vec<Op>, Root) {
    let mut differ = Differ::new(basis, sizes);
    let (mut ops, mut list) = (Ops::default(), ListBuilder::new(sizes));
    let mut rest = bytes;
    while let Some(found) = differ.next(rest, true) {
        ops.push(&found, basis);
        list.push(&found.hash, found.len);
        rest = &rest[found.len as usize..];
    }
    let (_, root) = list.finish();
    (ops.finish(), root)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use proptest::prelude::*;

    use super::super::list::{ChunkList, list};
    use super::super::name::ShortName;
    use super::super::testing::{Edit, edited, edits, noise, text};
    use super::*;

    const FINE: ChunkSizes = ChunkSizes::FINE;

    fn listed(bytes: &[u8], sizes: ChunkSizes) -> ChunkList<ShortName> {
        list(bytes, sizes).0.short()
    }

    fn literal(ops: &[Op]) -> u64 {
        ops.iter().map(Op::literal_len).sum()
    }

    fn differ(old: &[u8], new: &[u8], sizes: ChunkSizes) -> (Vec<Op>, Root) {
        diff(new, &Basis::new([&listed(old, sizes)]).unwrap(), sizes)
    }

    /// All chunks of `bytes`, which arrive `step` bytes at a time.
    fn chunks(mut differ: Differ<'_>, bytes: &[u8], step: usize) -> Vec<Found> {
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

    #[test]
    fn an_unchanged_file_is_one_copy() {
        let bytes = noise(1, 3_000_000);
        let whole = Extent { basis: 0, offset: 0, len: 3_000_000 };
        assert_eq!(differ(&bytes, &bytes, FINE), (vec![Op::Copy(whole)], list(&bytes, FINE).1));
    }

    #[test]
    fn an_empty_file_takes_no_steps_and_a_new_one_only_literals() {
        let bytes = noise(2, 100_000);
        assert_eq!(differ(&bytes, &[], FINE).0, []);
        assert_eq!(literal(&differ(&[], &bytes, FINE).0), 100_000);
    }

    #[test]
    fn bytes_appended_are_all_that_crosses() {
        let growths = [
            (1, 1),
            (4096, 40),
            (200_000, 14_000),
            (850_000, 1),
            (850_000, 300_000),
            (1 << 20, 5),
            (2_500_000, 9),
        ];
        for sizes in [FINE, ChunkSizes::BLOCKS] {
            for (len, more) in growths {
                let new = text(3, len + more);
                assert_eq!(
                    literal(&differ(&new[..len], &new, sizes).0),
                    more as u64,
                    "{more} bytes after {len}"
                );
            }
        }
    }

    #[test]
    fn bytes_appended_are_all_that_crosses_also_when_they_arrive_in_small_pieces() {
        let new = text(3, 214_000);
        let list = listed(&new[..200_000], FINE);
        let basis = Basis::new([&list]).unwrap();
        let mut ops = Ops::default();
        for found in chunks(Differ::new(&basis, FINE), &new, 700) {
            ops.push(&found, &basis);
        }
        assert_eq!(literal(&ops.finish()), 14_000);
    }

    #[test]
    fn in_blocks_an_edit_and_bytes_appended_cost_one_block_and_themselves() {
        let old = noise(14, 3_500_000);
        let mut new = [&old[..], &noise(15, 1_000)].concat();
        new[2_500_000] ^= 1;
        let (ops, root) = differ(&old, &new, ChunkSizes::BLOCKS);
        assert_eq!((literal(&ops), root.0), ((1 << 20) + 1_000, blake3::hash(&new)));
        assert!(matches!(ops[..], [Op::Copy(_), Op::Chunk(_), Op::Chunk(_)]), "{ops:?}");
    }

    #[test]
    fn a_file_cut_short_crosses_its_last_chunk_at_most() {
        let old = noise(4, 500_000);
        for len in [1, 1_000, 250_000, 499_999] {
            let (ops, _) = differ(&old, &old[..len], FINE);
            assert!(literal(&ops) <= u64::from(FINE.max()), "{ops:?}");
        }
    }

    #[test]
    fn an_edit_in_place_costs_the_chunks_that_it_touches() {
        let old = noise(5, 600_000);
        let mean = 4 << 10;
        for edit in [8, 100, 10_000, 40_000] {
            let costs = (0..16_u16).map(|place| {
                let mut new = old.clone();
                Edit::Overwrite(place * 3_700 + 777, edit).apply(&mut new, 100 + u64::from(place));
                literal(&differ(&old, &new, FINE).0) - edit as u64
            });
            let cost = costs.sum::<u64>() / 16;
            assert!(cost < 3 * mean, "an edit of {edit} bytes costs {cost} more");
        }
    }

    #[test]
    fn an_insertion_costs_what_was_inserted_and_about_a_chunk() {
        let old = noise(6, 600_000);
        for inserted in [1, 5_000, 100_000] {
            let costs = (0..16_u16).map(|place| {
                let mut new = old.clone();
                Edit::Insert(place * 3_700 + 777, inserted).apply(&mut new, 100 + u64::from(place));
                literal(&differ(&old, &new, FINE).0) - inserted as u64
            });
            let cost = costs.sum::<u64>() / 16;
            assert!(cost < 2 * (4 << 10), "{inserted} bytes cost {cost} more");
        }
    }

    #[test]
    fn bytes_are_found_in_any_file_of_the_basis() {
        let (one, two) = (noise(7, 300_000), noise(8, 300_000));
        let lists = [listed(&one, FINE), listed(&two, FINE)];
        let basis = Basis::new(&lists).unwrap();
        let (ops, _) = diff(&[&two[..], &one[..]].concat(), &basis, FINE);
        assert!(literal(&ops) < 3 * u64::from(FINE.max()));
        let used = ops.iter().filter_map(Op::extent).map(|extent| extent.basis).collect::<Vec<_>>();
        assert_eq!((used[0], *used.last().unwrap()), (1, 0));
    }

    #[test]
    fn copies_from_two_files_stay_two_even_where_their_offsets_join() {
        let bytes = noise(13, 200_000);
        let found = chunks(Differ::new(&Basis::empty(), FINE), &bytes, 200_000);
        let with = |known: Range<usize>| {
            let mut list = ListBuilder::new(FINE);
            for (number, chunk) in found.iter().enumerate() {
                let hash = if known.contains(&number) { chunk.hash } else { blake3::hash(b"another chunk") };
                list.push(&hash, chunk.len);
            }
            list.finish().0.short()
        };
        let lists = [with(0..10), with(10..found.len())];
        let (ops, _) = diff(&bytes, &Basis::new(&lists).unwrap(), FINE);
        let (cut, len) = (found[10].offset, 200_000);
        let copies =
            [(0, 0, cut), (1, cut, len - cut)].map(|(basis, offset, len)| Extent { basis, offset, len });
        assert_eq!(ops, copies.map(Op::Copy));
    }

    #[test]
    fn a_basis_cut_to_other_sizes_does_not_mislead() {
        let bytes = noise(9, 2_000_000);
        let other = listed(&bytes, ChunkSizes::for_len(2_000_000));
        let (ops, root) = diff(&bytes, &Basis::new([&other]).unwrap(), FINE);
        assert_eq!(root, list(&bytes, FINE).1);
        assert_eq!(ops.iter().map(Op::target_len).sum::<u64>(), 2_000_000);
    }

    #[test]
    fn chunks_found_before_the_basis_came_can_be_looked_up_later() {
        let old = noise(10, 500_000);
        let new = [b"x", &old[..]].concat();
        let list = listed(&old, FINE);
        let (empty, basis) = (Basis::empty(), Basis::new([&list]).unwrap());
        let later =
            chunks(Differ::new(&empty, FINE), &new, 50_000).into_iter().map(|found| found.looked_up(&basis));
        let found =
            later.filter(|found| found.origin != Origin::New).map(|found| u64::from(found.len)).sum::<u64>();
        assert!(found > 480_000, "{found} bytes found");
    }

    #[test]
    fn steps_that_can_no_longer_change_are_ready_before_the_end() {
        let old = noise(11, 100_000);
        let list = listed(&old, FINE);
        let basis = Basis::new([&list]).unwrap();
        let new = [&old[..50_000], &noise(12, 20_000), &old[50_000..]].concat();
        let mut ops = Ops::default();
        let mut early = Vec::new();
        for found in chunks(Differ::new(&basis, FINE), &new, 8_000) {
            ops.push(&found, &basis);
            early.extend(ops.take_ready());
        }
        let late = ops.finish();
        assert_eq!(late.len(), 1, "the last copy could still have grown: {late:?}");
        assert_eq!([early, late].concat(), diff(&new, &basis, FINE).0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn following_a_basis_finds_the_same_cuts_as_searching(
            seed in 0_u64..20, len in 0_usize..150_000, edits in edits(30_000), step in 1_usize..100_000,
        ) {
            let old = if seed % 2 == 0 { noise(seed, len) } else { text(seed, len) };
            let new = edited(&old, &edits);
            let list = listed(&old, FINE);
            let basis = Basis::new([&list]).unwrap();
            let empty = Basis::empty();
            let followed = chunks(Differ::new(&basis, FINE), &new, step);
            let searched = chunks(Differ::new(&empty, FINE), &new, new.len().max(1));
            let cuts = |found: &[Found]| found.iter().map(|found| (found.offset, found.len, found.hash)).collect::<Vec<_>>();
            prop_assert_eq!(cuts(&followed), cuts(&searched));
        }

        #[test]
        fn parts_of_a_file_gone_through_at_once_come_to_the_same_chunks(
            seed in 0_u64..20, edits in edits(30_000), starts in prop::collection::btree_set(1_u64..150_000, 0..5),
        ) {
            let old = noise(seed, 150_000);
            let new = edited(&old, &edits);
            let list = listed(&old, FINE);
            let basis = Basis::new([&list]).unwrap();
            let starts = starts.into_iter().filter(|&start| start < new.len() as u64);
            let parts = starts.map(|start| chunks(Differ::starting_at(start, &basis, FINE), &new[start as usize..], 70_000));
            let mut whole = chunks(Differ::new(&basis, FINE), &new, 70_000);
            let expected = whole.iter().map(|found| (found.offset, found.len, found.hash)).collect::<Vec<_>>();
            for part in parts {
                let met = whole.iter().position(|found| meet(found.offset, &part).is_some());
                if let Some(position) = met {
                    let from = meet(whole[position].offset, &part).unwrap();
                    whole.truncate(position);
                    whole.extend_from_slice(&part[from..]);
                }
            }
            let joined = whole.iter().map(|found| (found.offset, found.len, found.hash)).collect::<Vec<_>>();
            prop_assert_eq!(joined, expected);
        }
    }
}
