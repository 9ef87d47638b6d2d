//! The sink's half: checking the steps of a peer that may be hostile, and that what they make is the source's file.
//!
//! An [`Assembly`] admits steps only within the files and the length that it knows, and turns them into [`Task`]s, one a
//! chunk of the target. A task knows where its bytes come from and what can be checked about them by itself, and
//! needs no other: tasks are read, hashed once and written in any order, by as many threads as there are. Their hashes
//! come back to the assembly, and all together make the [`Root`] that has to equal the source's.

use std::collections::VecDeque;
use std::ops::Range;

use thiserror::Error;

use super::chunk::ChunkSizes;
use super::diff::{Extent, Op, Piece};
use super::digest::{Part, hash_chunk};
use super::list::{ChunkList, ListBuilder, Root};
use super::name::{ChunkName, Name};

/// Steps that cannot be followed, or bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PatchError {
    /// A step before the one before it was done: a mistake of the caller, not of the peer.
    #[error("a step at offset {0} of the target, where tasks are left of the one before")]
    TooEarly(u64),
    /// A step, or a piece of one, without bytes.
    #[error("an empty step at offset {0} of the target")]
    Empty(u64),
    /// A copy from a file that was not offered.
    #[error("a copy from basis {basis} of {count}")]
    NoSuchBasis {
        /// The file asked for.
        basis: u32,
        /// How many there are.
        count: usize,
    },
    /// A copy from past the end of a file.
    #[error("a copy of {len} bytes at {offset} of basis {basis}, which has {basis_len}")]
    BeyondBasis {
        /// The file asked for.
        basis: u32,
        /// Where in it.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes there are.
        basis_len: u64,
    },
    /// A step that copies chunks, but does not start or end where one does.
    #[error("a copy of {len} bytes at {offset} of basis {basis}, which are not whole chunks")]
    NotWholeChunks {
        /// The file asked for.
        basis: u32,
        /// Where in it.
        offset: u64,
        /// Bytes asked for.
        len: u64,
    },
    /// A step that would make the target longer than it was said to be.
    #[error("a step of {len} bytes at {offset} of a target of {target_len}")]
    BeyondTarget {
        /// Where the step begins.
        offset: u64,
        /// Its length in bytes.
        len: u64,
        /// The target's length in bytes.
        target_len: u64,
    },
    /// A chunk that is longer than the maximum, or shorter than the minimum and not the last.
    #[error("a chunk of {len} bytes at {offset} of the target")]
    ChunkLength {
        /// Where the chunk begins.
        offset: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// Literal bytes for another place than the one that is next.
    #[error("literal bytes for offset {found} of the target, where {expected} is next")]
    Misplaced {
        /// Where they belong.
        found: u64,
        /// Where the target has come to.
        expected: u64,
    },
    /// The bytes read from a basis are not those that its list names: it was changed, or the disk lies.
    #[error("the chunk of basis {basis} at {offset} is no longer what its list says")]
    BasisChanged {
        /// Which file.
        basis: u32,
        /// Where the chunk starts in it.
        offset: u64,
    },
    /// The steps ended early, or a chunk was never checked.
    #[error("{made} bytes made of a target of {target_len}")]
    Incomplete {
        /// Bytes in checked chunks.
        made: u64,
        /// The target's length in bytes.
        target_len: u64,
    },
    /// The target is not the source's file.
    #[error("the root of the target is {found}, and of the source {expected}")]
    WrongRoot {
        /// Of what was made.
        found: blake3::Hash,
        /// As the source has it.
        expected: blake3::Hash,
    },
}

/// Follows the making of one target.
///
/// It holds the target's list as far as it is known, and the tasks that are under way.
#[derive(Debug)]
pub struct Assembly<'l> {
    lists: Vec<&'l ChunkList>,
    target_len: u64,
    sizes: ChunkSizes,
    /// Admitted, and not yet handed out.
    step: Option<Step>,
    /// Bytes of the target that tasks have been handed out for.
    tasked: u64,
    builder: ListBuilder,
    /// Chunks in the builder.
    built: usize,
    /// Those after them: their lengths, and their hashes once they are known.
    under_way: VecDeque<(u32, Option<blake3::Hash>)>,
}

#[derive(Debug)]
enum Step {
    /// Chunks of a list, by their numbers; the first starts at the offset.
    Copy {
        basis: u32,
        chunks: Range<usize>,
        offset: u64,
    },
    Chunk {
        pieces: Vec<Piece>,
        len: u64,
    },
}

/// One chunk of the target, to be put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Bytes from the target's start.
    pub offset: u64,
    /// Length in bytes, at most [`ChunkSizes::max`].
    pub len: u32,
    /// What it is made of, in order.
    pub pieces: Vec<Piece>,
    ordinal: usize,
    /// What it is called, if it is a chunk of the basis and has the same name here.
    name: Option<ChunkName>,
    sizes: ChunkSizes,
    part: Part,
}

/// A chunk whose bytes have been checked.
#[derive(Debug)]
pub struct Checked {
    ordinal: usize,
    hash: blake3::Hash,
}

impl<'l> Assembly<'l> {
    /// For a target of `target_len` bytes from files with these lists, in the order in which the source knows them.
    #[must_use]
    pub fn new(lists: impl IntoIterator<Item = &'l ChunkList>, target_len: u64, sizes: ChunkSizes) -> Self {
        Self {
            lists: lists.into_iter().collect(),
            target_len,
            sizes,
            step: None,
            tasked: 0,
            builder: ListBuilder::new(sizes),
            built: 0,
            under_way: VecDeque::new(),
        }
    }

    /// Takes the next step; its tasks are then to be had from [`Self::next_task`], all of them before the next step.
    ///
    /// # Errors
    /// When it reaches outside of the files or the target, does not go on where the one before stopped, or copies what
    /// are not whole chunks.
    pub fn admit(&mut self, op: Op) -> Result<(), PatchError> {
        if self.step.is_some() {
            return Err(PatchError::TooEarly(self.tasked));
        }
        let (step, len) = match op {
            Op::Copy(extent) => (self.copy_step(&extent)?, extent.len),
            Op::Chunk(pieces) => {
                let len = self.check_pieces(&pieces)?;
                (Step::Chunk { pieces, len }, len)
            }
        };
        self.check_room(self.tasked, len)?;
        self.step = Some(step);
        Ok(())
    }

    /// The next task of the step, or `None` if another step has to be admitted first.
    ///
    /// # Errors
    /// When the source made a chunk too long, or too short.
    pub fn next_task(&mut self) -> Result<Option<Task>, PatchError> {
        match self.step.take() {
            None => Ok(None),
            Some(Step::Chunk { pieces, len }) => self.task(len, pieces, None).map(Some),
            Some(Step::Copy { basis, mut chunks, offset }) => {
                let Some(chunk) = chunks.next().map(|index| self.lists[basis as usize].chunks()[index])
                else {
                    return Ok(None);
                };
                let extent = Extent { basis, offset, len: u64::from(chunk.len) };
                let more = Step::Copy { basis, offset: extent.end(), chunks };
                self.step = Some(more).filter(|step| !step.is_done());
                let name = self.keeps_name(&extent).then_some(chunk.name);
                self.task(extent.len, vec![Piece::Copy(extent)], name).map(Some)
            }
        }
    }

    /// Takes back what came of a task.
    pub fn accept(&mut self, checked: &Checked) {
        let index = checked.ordinal.checked_sub(self.built);
        if let Some((_, hash)) = index.and_then(|index| self.under_way.get_mut(index)) {
            *hash = Some(checked.hash);
        }
        while let Some(&(len, Some(hash))) = self.under_way.front() {
            self.builder.push(&hash, len);
            self.built += 1;
            self.under_way.pop_front();
        }
    }

    /// The target's list, for the index.
    ///
    /// # Errors
    /// When the target is not complete, or not the file that `root` stands for.
    pub fn finish(self, root: &Root) -> Result<ChunkList, PatchError> {
        let (list, found) = self.builder.finish();
        if list.file_len() != self.target_len {
            return Err(PatchError::Incomplete { made: list.file_len(), target_len: self.target_len });
        }
        if found != *root {
            return Err(PatchError::WrongRoot { found: found.0, expected: root.0 });
        }
        Ok(list)
    }

    /// Whether a chunk of the basis is hashed in the target as it was there: a block is only at its own offset.
    fn keeps_name(&self, extent: &Extent) -> bool {
        let list = self.lists[extent.basis as usize];
        let there = (extent.offset, Part::new(extent.offset, extent.len, list.file_len()));
        let here = (self.tasked, Part::new(self.tasked, extent.len, self.target_len));
        list.sizes() == self.sizes && (!self.sizes.is_blocks() || here == there)
    }

    fn copy_step(&self, extent: &Extent) -> Result<Step, PatchError> {
        let list = self.check_extent(extent)?;
        let Extent { basis, offset, len } = *extent;
        match (list.starting_at(offset), list.starting_at(extent.end())) {
            (Some(first), Some(end)) => Ok(Step::Copy { basis, chunks: first..end, offset }),
            _ => Err(PatchError::NotWholeChunks { basis, offset, len }),
        }
    }

    /// The length of the chunk that the pieces make.
    fn check_pieces(&self, pieces: &[Piece]) -> Result<u64, PatchError> {
        let mut at = self.tasked;
        for piece in pieces {
            match piece {
                Piece::Copy(extent) => self.check_extent(extent).map(drop)?,
                Piece::Literal { len: 0, .. } => return Err(PatchError::Empty(at)),
                Piece::Literal { offset, .. } if *offset != at => {
                    return Err(PatchError::Misplaced { found: *offset, expected: at });
                }
                Piece::Literal { .. } => {}
            }
            self.check_room(at, piece.target_len())?;
            at += piece.target_len();
        }
        Ok(at - self.tasked)
    }

    fn check_extent(&self, extent: &Extent) -> Result<&'l ChunkList, PatchError> {
        let Extent { basis, offset, len } = *extent;
        let count = self.lists.len();
        let list = self.lists.get(basis as usize).ok_or(PatchError::NoSuchBasis { basis, count })?;
        let basis_len = list.file_len();
        match offset.checked_add(len) {
            _ if len == 0 => Err(PatchError::Empty(self.tasked)),
            Some(end) if end <= basis_len => Ok(list),
            _ => Err(PatchError::BeyondBasis { basis, offset, len, basis_len }),
        }
    }

    fn check_room(&self, offset: u64, len: u64) -> Result<(), PatchError> {
        let target_len = self.target_len;
        let fits = len <= target_len - offset;
        if fits { Ok(()) } else { Err(PatchError::BeyondTarget { offset, len, target_len }) }
    }

    fn task(&mut self, len: u64, pieces: Vec<Piece>, name: Option<ChunkName>) -> Result<Task, PatchError> {
        let offset = self.tasked;
        let least = if offset + len == self.target_len { 1 } else { self.sizes.min() };
        let fits = |len: &u32| (least..=self.sizes.max()).contains(len);
        let len = u32::try_from(len).ok().filter(fits).ok_or(PatchError::ChunkLength { offset, len })?;
        let ordinal = self.built + self.under_way.len();
        self.under_way.push_back((len, None));
        self.tasked += u64::from(len);
        let part = Part::new(offset, u64::from(len), self.target_len);
        Ok(Task { offset, len, pieces, ordinal, name, sizes: self.sizes, part })
    }
}

impl Step {
    fn is_done(&self) -> bool {
        matches!(self, Self::Copy { chunks, .. } if chunks.is_empty())
    }
}

impl Task {
    /// Whether it is a chunk of the first basis, at the offset that it has there: what began as a clone of that file
    /// has it already, once it was checked.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        let kept = Extent { basis: 0, offset: self.offset, len: u64::from(self.len) };
        self.pieces == [Piece::Copy(kept)]
    }

    /// Fills `into` piece by piece and checks it: what there is to check of one chunk.
    ///
    /// `fetch` is called with each piece and the place for its bytes.
    ///
    /// # Errors
    /// What `fetch` fails with, and [`PatchError::BasisChanged`].
    pub fn make<E: From<PatchError>>(
        &self,
        into: &mut Vec<u8>,
        mut fetch: impl FnMut(&Piece, &mut [u8]) -> Result<(), E>,
    ) -> Result<Checked, E> {
        into.resize(self.len as usize, 0);
        let mut rest = &mut into[..];
        for piece in &self.pieces {
            let (place, behind) = rest.split_at_mut(piece.target_len() as usize);
            fetch(piece, place)?;
            rest = behind;
        }
        Ok(self.check(into)?)
    }

    /// Hashes the chunk's bytes.
    ///
    /// # Errors
    /// [`PatchError::BasisChanged`] when they were copied as a whole chunk and are not what its list names, and
    /// [`PatchError::ChunkLength`] when they are too many or too few.
    pub fn check(&self, bytes: &[u8]) -> Result<Checked, PatchError> {
        let (offset, len) = (self.offset, bytes.len() as u64);
        if len != u64::from(self.len) {
            return Err(PatchError::ChunkLength { offset, len });
        }
        let hash = hash_chunk(self.sizes, offset, bytes, self.part);
        match (self.name, &self.pieces[..]) {
            (Some(name), [Piece::Copy(extent), ..]) if name != ChunkName::of(&hash) => {
                Err(PatchError::BasisChanged { basis: extent.basis, offset: extent.offset })
            }
            _ => Ok(Checked { ordinal: self.ordinal, hash }),
        }
    }
}

/// Makes a target that fits in memory from files that do.
///
/// # Errors
/// When the steps do not make the file that `root` stands for. `literal` gives the bytes for a range of the target.
pub fn patch<'s>(
    bases: &[(&[u8], &ChunkList)],
    ops: &[Op],
    literal: impl Fn(u64, u64) -> &'s [u8],
    target_len: u64,
    sizes: ChunkSizes,
    root: &Root,
) -> Result<(Vec<u8>, ChunkList), PatchError> {
    let mut assembly = Assembly::new(bases.iter().map(|(_, list)| *list), target_len, sizes);
    let (mut target, mut chunk) = (Vec::new(), Vec::new());
    for op in ops {
        assembly.admit(op.clone())?;
        while let Some(task) = assembly.next_task()? {
            let checked = task.make::<PatchError>(&mut chunk, |piece, place| {
                match piece {
                    Piece::Copy(Extent { basis, offset, len }) => {
                        let (bytes, _) = bases[*basis as usize];
                        place.copy_from_slice(&bytes[*offset as usize..(offset + len) as usize]);
                    }
                    Piece::Literal { offset, len } => place.copy_from_slice(literal(*offset, *len)),
                }
                Ok(())
            })?;
            assembly.accept(&checked);
            target.extend_from_slice(&chunk);
        }
    }
    Ok((target, assembly.finish(root)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::basis::Basis;
    use super::super::diff::diff;
    use super::super::list::list;
    use super::super::refine::holes;
    use super::super::testing::{edited, edits, noise, text};
    use super::*;

    const FINE: ChunkSizes = ChunkSizes::FINE;
    const LEN: u64 = 100_000;
    const SMALL_BLOCKS: ChunkSizes = match ChunkSizes::new(8192, 8192, 8192) {
        Ok(sizes) => sizes,
        Err(_) => panic!("sizes of blocks"),
    };

    fn copy(basis: u32, offset: u64, len: u64) -> Extent {
        Extent { basis, offset, len }
    }

    fn literal(offset: u64, len: u64) -> Piece {
        Piece::Literal { offset, len }
    }

    /// What an assembly of a target of 100,000 bytes from one file of as many says to the steps, up to its first no.
    fn fault(ops: &[Op]) -> Option<PatchError> {
        let (list, _) = list(&noise(1, LEN as usize), FINE);
        let mut assembly = Assembly::new([&list], LEN, FINE);
        let mut all = ops.iter().map(|op| {
            assembly.admit(op.clone())?;
            while assembly.next_task()?.is_some() {}
            Ok(())
        });
        all.find_map(Result::err)
    }

    fn first_chunk() -> u64 {
        u64::from(list(&noise(1, LEN as usize), FINE).0.chunks()[0].len)
    }

    #[test]
    fn a_step_outside_of_the_files_is_refused() {
        let beyond = |extent: Extent| PatchError::BeyondBasis {
            basis: 0,
            offset: extent.offset,
            len: extent.len,
            basis_len: LEN,
        };
        for extent in [copy(0, 0, LEN + 1), copy(0, LEN, 1), copy(0, u64::MAX, 1), copy(0, 1, u64::MAX)] {
            assert_eq!(fault(&[Op::Copy(extent)]), Some(beyond(extent)));
            assert_eq!(fault(&[Op::Chunk(vec![Piece::Copy(extent)])]), Some(beyond(extent)));
        }
        let missing = Some(PatchError::NoSuchBasis { basis: 1, count: 1 });
        assert_eq!(fault(&[Op::Copy(copy(1, 0, 1))]), missing);
        assert_eq!(fault(&[Op::Chunk(vec![Piece::Copy(copy(1, 0, 1))])]), missing);
    }

    #[test]
    fn a_step_beyond_the_target_is_refused() {
        let beyond = |offset, len| Some(PatchError::BeyondTarget { offset, len, target_len: LEN });
        let all = Op::Copy(copy(0, 0, LEN));
        let first = first_chunk();
        assert_eq!(fault(std::slice::from_ref(&all)), None);
        assert_eq!(fault(&[all.clone(), Op::Copy(copy(0, 0, first))]), beyond(LEN, first));
        assert_eq!(fault(&[all, Op::Chunk(vec![literal(LEN, 1)])]), beyond(LEN, 1));
        assert_eq!(fault(&[Op::Chunk(vec![literal(0, u64::MAX)])]), beyond(0, u64::MAX));
        let sum = Op::Chunk(vec![literal(0, LEN), literal(LEN, u64::MAX - 5)]);
        assert_eq!(fault(&[sum]), beyond(LEN, u64::MAX - 5));
    }

    #[test]
    fn a_step_without_bytes_is_refused() {
        assert_eq!(fault(&[Op::Copy(copy(0, 0, 0))]), Some(PatchError::Empty(0)));
        assert_eq!(fault(&[Op::Chunk(vec![literal(0, 0)])]), Some(PatchError::Empty(0)));
        assert_eq!(
            fault(&[Op::Chunk(vec![literal(0, 9), Piece::Copy(copy(0, 0, 0))])]),
            Some(PatchError::Empty(0))
        );
        assert_eq!(fault(&[Op::Chunk(vec![])]), Some(PatchError::ChunkLength { offset: 0, len: 0 }));
    }

    #[test]
    fn a_copy_of_parts_of_chunks_is_refused_unless_it_is_a_piece() {
        for (offset, len) in [(1, first_chunk()), (0, first_chunk() - 1), (first_chunk(), 1)] {
            let part = PatchError::NotWholeChunks { basis: 0, offset, len };
            assert_eq!(fault(&[Op::Copy(copy(0, offset, len))]), Some(part));
        }
        assert_eq!(fault(&[Op::Chunk(vec![Piece::Copy(copy(0, 1, 5_000))])]), None);
    }

    #[test]
    fn chunks_too_long_or_too_short_are_refused() {
        for len in [u64::from(FINE.min()) - 1, u64::from(FINE.max()) + 1] {
            let wrong = Some(PatchError::ChunkLength { offset: 0, len });
            assert_eq!(fault(&[Op::Chunk(vec![literal(0, len)])]), wrong);
        }
        let first = first_chunk();
        let rest = Op::Copy(copy(0, first, LEN - first));
        let last = Op::Chunk(vec![literal(LEN - first, first)]);
        assert_eq!(fault(&[rest, last]), None);
    }

    #[test]
    fn literal_bytes_for_another_place_are_refused() {
        let misplaced = |found, expected| Some(PatchError::Misplaced { found, expected });
        assert_eq!(fault(&[Op::Chunk(vec![literal(1, 5_000)])]), misplaced(1, 0));
        let pieces = vec![literal(0, 5_000), literal(4_999, 10)];
        assert_eq!(fault(&[Op::Chunk(pieces)]), misplaced(4_999, 5_000));
    }

    #[test]
    fn a_step_before_the_one_before_it_is_done_is_refused() {
        let (list, _) = list(&noise(1, LEN as usize), FINE);
        let mut assembly = Assembly::new([&list], LEN, FINE);
        assembly.admit(Op::Copy(copy(0, 0, LEN))).unwrap();
        let first = assembly.next_task().unwrap().unwrap();
        let early = assembly.admit(Op::Chunk(vec![literal(0, 5_000)]));
        assert_eq!(early, Err(PatchError::TooEarly(u64::from(first.len))));
    }

    #[test]
    fn a_basis_that_was_changed_since_it_was_listed_is_noticed_in_the_chunk_that_changed() {
        let old = noise(2, 50_000);
        let (listed, root) = list(&old, FINE);
        let (ops, _) = diff(&old, &Basis::new([&listed.short()]).unwrap(), FINE);
        let third = listed.chunks()[..2].iter().map(|chunk| u64::from(chunk.len)).sum::<u64>();
        let mut changed = old.clone();
        changed[third as usize + 5] ^= 1;
        let made = patch(&[(&changed, &listed)], &ops, |_, _| &[], 50_000, FINE, &root);
        assert_eq!(made, Err(PatchError::BasisChanged { basis: 0, offset: third }));
    }

    #[test]
    fn a_target_that_is_not_the_source_s_file_is_not_finished() {
        let new = noise(3, 50_000);
        let (ops, root) = diff(&new, &Basis::empty(), FINE);
        let mut other = new.clone();
        other[40_000] ^= 1;
        let cut = |bytes: &'static [u8]| move |at: u64, len: u64| &bytes[at as usize..(at + len) as usize];
        let (new, other): (&'static [u8], &'static [u8]) = (new.leak(), other.leak());
        assert!(matches!(
            patch(&[], &ops, cut(other), 50_000, FINE, &root),
            Err(PatchError::WrongRoot { .. })
        ));
        let early = patch(&[], &ops[..ops.len() - 1], cut(new), 50_000, FINE, &root);
        assert!(matches!(early, Err(PatchError::Incomplete { target_len: 50_000, .. })));
        assert_eq!(patch(&[], &ops, cut(new), 50_000, FINE, &root).unwrap().0, new);
    }

    #[test]
    fn tasks_may_be_done_in_any_order_but_none_may_be_missing() {
        let bytes = noise(4, 60_000);
        let (listed, root) = list(&bytes, FINE);
        for missing in [None, Some(3)] {
            let mut assembly = Assembly::new([&listed], 60_000, FINE);
            assembly.admit(Op::Copy(copy(0, 0, 60_000))).unwrap();
            let mut tasks = std::iter::from_fn(|| assembly.next_task().unwrap()).collect::<Vec<_>>();
            assert!(tasks.iter().all(Task::is_in_place));
            missing.map(|nth| tasks.remove(nth));
            for task in tasks.iter().rev() {
                let range = task.offset as usize..task.offset as usize + task.len as usize;
                assembly.accept(&task.check(&bytes[range]).unwrap());
            }
            let finished = assembly.finish(&root);
            assert_eq!(finished.is_ok(), missing.is_none(), "{finished:?}");
        }
    }

    #[test]
    fn only_a_chunk_at_its_old_offset_is_in_place() {
        let (listed, _) = list(&noise(1, LEN as usize), FINE);
        let first = first_chunk();
        let mut assembly = Assembly::new([&listed], LEN, FINE);
        assembly.admit(Op::Copy(copy(0, first, LEN - first))).unwrap();
        while let Some(task) = assembly.next_task().unwrap() {
            assert!(!task.is_in_place());
        }
    }

    #[test]
    fn a_block_is_compared_with_its_name_only_at_its_own_offset() {
        let old = noise(5, 3 * 8192);
        let (listed, _) = list(&old, SMALL_BLOCKS);
        for (block, changed, refused) in
            [(0, false, false), (0, true, true), (1, false, false), (1, true, false)]
        {
            let mut assembly = Assembly::new([&listed], 3 * 8192, SMALL_BLOCKS);
            assembly.admit(Op::Copy(copy(0, block * 8192, 8192))).unwrap();
            let task = assembly.next_task().unwrap().unwrap();
            let mut bytes = old[block as usize * 8192..][..8192].to_vec();
            bytes[9] ^= u8::from(changed);
            assert_eq!(task.check(&bytes).is_err(), refused, "block {block}, changed: {changed}");
        }
    }

    #[test]
    fn a_file_of_one_block_and_one_of_several_are_made_from_each_other() {
        let bytes = noise(6, (2 << 20) + 5);
        let lens = [0, 1, 5_000, 1 << 20, (1 << 20) + 1, bytes.len()];
        for (old, new) in lens.into_iter().flat_map(|old| lens.map(|new| (&bytes[..old], &bytes[..new]))) {
            let sizes = ChunkSizes::BLOCKS;
            let (listed, _) = list(old, sizes);
            let (ops, root) = diff(new, &Basis::new([&listed.short()]).unwrap(), sizes);
            let cut = |at: u64, len: u64| &new[at as usize..(at + len) as usize];
            let made = patch(&[(old, &listed)], &ops, cut, new.len() as u64, sizes, &root).unwrap();
            assert!(made.0 == new && root.0 == blake3::hash(new), "{} bytes from {}", new.len(), old.len());
        }
    }

    #[test]
    fn a_chunk_of_another_length_than_its_task_is_refused() {
        let (listed, _) = list(&noise(1, LEN as usize), FINE);
        let mut assembly = Assembly::new([&listed], LEN, FINE);
        assembly.admit(Op::Chunk(vec![literal(0, 5_000)])).unwrap();
        let task = assembly.next_task().unwrap().unwrap();
        for len in [0, 4_999, 5_001] {
            let found = task.check(&vec![0; len]).map(drop);
            assert_eq!(found, Err(PatchError::ChunkLength { offset: 0, len: len as u64 }));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn what_is_made_is_the_source_s_file(
            seed in 0_u64..20,
            len in 0_usize..300_000,
            edits in edits(60_000),
            sizes in prop_oneof![Just(FINE), Just(ChunkSizes::for_len(2 << 20)), Just(SMALL_BLOCKS)],
            refine in any::<bool>(),
        ) {
            let old = if seed % 2 == 0 { noise(seed, len) } else { text(seed, len) };
            let new = edited(&old, &edits);
            let (listed, _) = list(&old, sizes);
            let (mut ops, root) = diff(&new, &Basis::new([&listed.short()]).unwrap(), sizes);
            prop_assert_eq!(ops.iter().map(Op::target_len).sum::<u64>(), new.len() as u64);
            let before = ops.iter().map(Op::literal_len).sum::<u64>();
            if refine {
                for (run, hole) in holes(&ops, |_| Some(old.len() as u64)) {
                    let (source, gap) = (hole.source.clone(), hole.gap.clone());
                    let fine = list(&old[gap.start as usize..gap.end as usize], FINE).0.short();
                    hole.fill(&mut ops[run], &new[source.start as usize..source.end as usize], &fine).unwrap();
                }
            }
            prop_assert!(ops.iter().map(Op::literal_len).sum::<u64>() <= before);
            let cut = |at: u64, len: u64| &new[at as usize..(at + len) as usize];
            let (made, relisted) = patch(&[(&old, &listed)], &ops, cut, new.len() as u64, sizes, &root).unwrap();
            prop_assert!(made == new);
            prop_assert_eq!((relisted, root), list(&new, sizes));
        }
    }
}
