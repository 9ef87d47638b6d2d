//! A second look at what changed, with smaller chunks.
//!
//! Large chunks keep lists short and hashing fast, and make an edit of a few bytes cost a whole chunk. But where
//! such an edit was made is known: between two copies that were not neighbours in the basis. For such a [`Hole`] the
//! sink lists its side of it cut to [`ChunkSizes::for_hole`], the source looks for its own side there, and only what
//! differs at that grain crosses. It takes one more exchange, of some 10 bytes for every 4 KiB of the hole. Holes are
//! known one by one while the source still goes through its file, so that a large file hides the round trip.
//!
//! It is also how a file in blocks finds bytes that have moved: all that follows an insertion is one large hole.
//!
//! [`ChunkSizes::for_hole`]: super::chunk::ChunkSizes::for_hole

use std::collections::VecDeque;
use std::ops::Range;

use super::basis::{Basis, BasisFull};
use super::diff::{Extent, Op, Piece, diff};
use super::list::ChunkList;
use super::name::ShortName;

/// Bytes of the source that were not found, and the bytes of the basis that were not used, at the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The source's side: the range of one or more literal chunks, never empty.
    pub source: Range<u64>,
    /// Which file of the basis.
    pub basis: u32,
    /// The sink's side: a range of that file, never empty.
    pub gap: Range<u64>,
}

impl Hole {
    /// The hole that a run of [`Op::Chunk`]s leaves between the copies before and after it, or the file's ends.
    ///
    /// `basis_len` tells the length of a file of the basis. `None` where nothing can be gained: the bytes were
    /// inserted between neighbours, lie between two different files, or are no longer literal.
    #[must_use]
    pub fn new(
        before: Option<&Extent>,
        run: &[Op],
        after: Option<&Extent>,
        basis_len: impl FnOnce(u32) -> Option<u64>,
    ) -> Option<Self> {
        let source = run.iter().map(literal_chunk).reduce(|a, b| Some(a?.start..b?.end))??;
        let (basis, gap) = match (before, after) {
            (Some(before), Some(after)) if before.basis == after.basis => {
                (before.basis, before.end()..after.offset)
            }
            (Some(_), Some(_)) => return None,
            (Some(before), None) => (before.basis, before.end()..basis_len(before.basis)?),
            (None, Some(after)) => (after.basis, 0..after.offset),
            (None, None) => (0, 0..basis_len(0)?),
        };
        (!gap.is_empty()).then_some(Self { source, basis, gap })
    }

    /// Replaces the literals of the run by what is left of them once its bytes were looked for in the gap.
    ///
    /// `bytes` are the source's side, at hand as a whole; `list` is the sink's list of its side.
    ///
    /// # Errors
    /// When there are too many chunks to number.
    pub fn fill(&self, run: &mut [Op], bytes: &[u8], list: &ChunkList<ShortName>) -> Result<(), BasisFull> {
        let (ops, _) = diff(bytes, &Basis::new([list])?, list.sizes());
        self.place(run, ops);
        Ok(())
    }

    /// The same for a hole too large to be at hand: `ops` are the steps that make the source's side from the sink's, as
    /// a [`Differ`](super::diff::Differ) finds them that knows nothing else.
    pub fn place(&self, run: &mut [Op], ops: Vec<Op>) {
        let mut pieces = ops.into_iter().flat_map(|op| self.pieces(op)).collect::<VecDeque<_>>();
        for op in run {
            *op = Op::Chunk(take(&mut pieces, op.target_len()));
        }
    }

    /// A step between the two sides, as pieces between the two files.
    fn pieces(&self, op: Op) -> Vec<Piece> {
        let placed = |piece| match piece {
            Piece::Copy(extent) => {
                Piece::Copy(Extent { basis: self.basis, offset: self.gap.start + extent.offset, ..extent })
            }
            Piece::Literal { offset, len } => Piece::Literal { offset: self.source.start + offset, len },
        };
        let pieces = match op {
            Op::Copy(extent) => vec![Piece::Copy(extent)],
            Op::Chunk(pieces) => pieces,
        };
        pieces.into_iter().map(placed).collect()
    }
}

/// Every hole that the steps of a file leave, with the run of steps that it stands for.
#[must_use]
pub fn holes(ops: &[Op], basis_len: impl Fn(u32) -> Option<u64>) -> Vec<(Range<usize>, Hole)> {
    let mut holes = Vec::new();
    let mut start = 0;
    for run in ops.split_inclusive(|op| matches!(op, Op::Copy(_))) {
        let end = start + run.len();
        let (chunks, after) = match run.split_last() {
            Some((Op::Copy(after), chunks)) => (chunks, Some(after)),
            _ => (run, None),
        };
        let before = ops[..start].last().and_then(Op::extent);
        let hole = Hole::new(before, chunks, after, &basis_len);
        holes.extend(hole.map(|hole| (start..start + chunks.len(), hole)));
        start = end;
    }
    holes
}

/// The target's range that a chunk of nothing but literal bytes makes.
fn literal_chunk(op: &Op) -> Option<Range<u64>> {
    match op {
        Op::Chunk(pieces) => match pieces[..] {
            [Piece::Literal { offset, len }] => Some(offset..offset + len),
            _ => None,
        },
        Op::Copy(_) => None,
    }
}

/// The first pieces, as many as make `len` bytes.
fn take(pieces: &mut VecDeque<Piece>, mut len: u64) -> Vec<Piece> {
    let mut taken = Vec::<Piece>::new();
    while len > 0
        && let Some(piece) = pieces.pop_front()
    {
        let (now, later) = piece.split(len);
        len -= now.target_len();
        match taken.last_mut().and_then(|last| last.joined(now).map(|joined| (last, joined))) {
            Some((last, joined)) => *last = joined,
            None => taken.push(now),
        }
        later.into_iter().for_each(|piece| pieces.push_front(piece));
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::super::chunk::ChunkSizes;
    use super::super::list::list;
    use super::super::testing::noise;
    use super::*;

    const COARSE: ChunkSizes = ChunkSizes::BLOCKS;

    fn copy(basis: u32, offset: u64, len: u64) -> Op {
        Op::Copy(Extent { basis, offset, len })
    }

    fn chunk(offset: u64, len: u64) -> Op {
        Op::Chunk(vec![Piece::Literal { offset, len }])
    }

    fn only_hole(ops: &[Op]) -> Option<(Range<usize>, Hole)> {
        let mut holes = holes(ops, |basis| (basis == 0).then_some(1_000));
        assert!(holes.len() <= 1);
        holes.pop()
    }

    #[test]
    fn a_hole_is_what_lies_between_two_copies_on_both_sides() {
        let ops = [copy(0, 0, 100), chunk(100, 50), chunk(150, 60), copy(0, 180, 820)];
        assert_eq!(only_hole(&ops), Some((1..3, Hole { source: 100..210, basis: 0, gap: 100..180 })));
    }

    #[test]
    fn a_hole_may_be_at_either_end_or_be_all_there_is() {
        let start = [chunk(0, 50), copy(0, 40, 960)];
        assert_eq!(only_hole(&start), Some((0..1, Hole { source: 0..50, basis: 0, gap: 0..40 })));
        let end = [copy(0, 0, 900), chunk(900, 50)];
        assert_eq!(only_hole(&end), Some((1..2, Hole { source: 900..950, basis: 0, gap: 900..1_000 })));
        assert_eq!(only_hole(&[chunk(0, 7)]), Some((0..1, Hole { source: 0..7, basis: 0, gap: 0..1_000 })));
    }

    #[test]
    fn where_nothing_can_be_gained_there_is_no_hole() {
        let inserted = [copy(0, 0, 100), chunk(100, 50), copy(0, 100, 900)];
        let appended = [copy(0, 0, 1_000), chunk(1_000, 50)];
        let backwards = [copy(0, 500, 100), chunk(100, 50), copy(0, 0, 100)];
        let two_files = [copy(0, 0, 100), chunk(100, 50), copy(1, 200, 100)];
        let unknown = [copy(1, 0, 100), chunk(100, 50)];
        let grown = [Op::Chunk(vec![
            Piece::Copy(Extent { basis: 0, offset: 0, len: 5 }),
            Piece::Literal { offset: 5, len: 9 },
        ])];
        for ops in
            [&inserted[..], &appended, &backwards, &two_files, &unknown, &grown, &[copy(0, 0, 1_000)], &[]]
        {
            assert_eq!(only_hole(ops), None, "{ops:?}");
        }
    }

    #[test]
    fn what_moved_in_a_file_in_blocks_is_found_again() {
        let old = noise(2, 9_000_000);
        let new = [&old[..2_500_000], b"some bytes more", &old[2_500_000..]].concat();
        let basis = list(&old, COARSE).0.short();
        let (mut ops, root) = diff(&new, &Basis::new([&basis]).unwrap(), COARSE);
        assert_eq!(root.0, blake3::hash(&new));
        let (run, hole) = holes(&ops, |_| Some(9_000_000)).remove(0);
        assert_eq!((hole.source.clone(), hole.gap.clone()), (2 << 20..9_000_015, 2 << 20..9_000_000));
        let sizes = ChunkSizes::for_hole(hole.gap.end - hole.gap.start);
        let list = list(&old[2 << 20..], sizes).0.short();
        hole.fill(&mut ops[run], &new[2 << 20..], &list).unwrap();
        let literal = ops.iter().map(Op::literal_len).sum::<u64>();
        assert!(literal <= 2 * u64::from(sizes.max()), "{literal} bytes");
        assert_eq!(ops.iter().map(Op::target_len).sum::<u64>(), 9_000_015);
    }

    #[test]
    fn a_small_edit_in_a_large_chunk_crosses_as_a_few_small_ones() {
        let old = noise(1, 900_000);
        let mut new = old.clone();
        new[500_000..500_100].fill(0);
        let basis = list(&old, COARSE).0.short();
        let (mut ops, _) = diff(&new, &Basis::new([&basis]).unwrap(), COARSE);
        assert_eq!(ops.iter().map(Op::literal_len).sum::<u64>(), 900_000);
        let (run, hole) = holes(&ops, |_| Some(900_000)).remove(0);
        hole.fill(&mut ops[run], &new, &list(&old, ChunkSizes::FINE).0.short()).unwrap();
        let literal = ops.iter().map(Op::literal_len).sum::<u64>();
        assert!(literal <= 2 * u64::from(ChunkSizes::FINE.max()), "{literal} bytes for an edit of 100");
        let Op::Chunk(pieces) = &ops[0] else { panic!("the chunk stays one: {ops:?}") };
        assert!(matches!(pieces[..], [Piece::Copy(_), Piece::Literal { .. }, Piece::Copy(_)]), "{pieces:?}");
    }
}
