//! Hashes of content and of directories. All are BLAKE3.

use std::{collections::BTreeMap, fmt};

pub use blake3::hazmat::ChainingValue;
use blake3::hazmat::{HasherExt as _, Mode, merge_subtrees_non_root, merge_subtrees_root};

use crate::block_sizes::block_bytes;

/// BLAKE3 of a file's bytes, holes read as zeros, however the file is stored or was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentId(pub [u8; 32]);

impl ContentId {
    /// Hashes content that is in memory.
    pub fn of(content: &[u8]) -> Self {
        Self(*blake3::hash(content).as_bytes())
    }
}

impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The hash by which both ends check a file that was sent: of its blocks, in which a hole is a constant, or of its
/// chunks.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransferHash(pub [u8; 32]);

impl TransferHash {
    /// Hashes content that is in memory as a whole.
    pub fn of(content: &[u8]) -> Self {
        Self(*blake3::hash(content).as_bytes())
    }
}

impl fmt::Debug for TransferHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

/// Computes the hash of a file from the hashes of its blocks, which may come in any order.
///
/// It takes about 50 bytes of memory for each block that was added. A run of holes counts as one block.
#[derive(Debug)]
pub struct BlockHashes {
    /// Known blocks, by the first block of each run.
    runs: BTreeMap<u64, GranuleRun>,
    /// The length of a block in bytes.
    block: u64,
    blocks: u64,
    missing: u64,
    root: Option<TransferHash>,
}

/// Consecutive blocks whose part in the hash is known.
#[derive(Debug, Clone, Copy)]
enum GranuleRun {
    One(ChainingValue),
    Holes(u64),
}

impl GranuleRun {
    fn blocks(self) -> u64 {
        match self {
            Self::One(_) => 1,
            Self::Holes(blocks) => blocks,
        }
    }
}

/// The part that one block contributes to a file's hash.
#[derive(Debug, Clone, Copy)]
pub enum BlockHash {
    /// The block is the whole file.
    Whole(TransferHash),
    /// The block is a subtree.
    Part(ChainingValue),
    /// This many blocks, at least one, are entirely holes.
    Holes(u64),
}

/// Computes the part that a granule at `offset`, which is never empty, has in the hash of its block.
pub fn granule_value(bytes: &[u8], offset: u64) -> ChainingValue {
    blake3::Hasher::new().set_input_offset(offset).update(bytes).finalize_non_root()
}

/// Hashes one subtree of a content, in pieces.
#[derive(Debug)]
pub struct SubtreeHasher(blake3::Hasher);

impl SubtreeHasher {
    /// Begins with the subtree at `offset`, a multiple of its length, which is a power of two of 1 KiB leaves.
    pub fn new(offset: u64) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(offset);
        Self(hasher)
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns its value, or the hash of the content if the subtree is the `whole` of it.
    pub fn finish(self, whole: bool) -> ChainingValue {
        if whole { *self.0.finalize().as_bytes() } else { self.0.finalize_non_root() }
    }
}

/// Returns BLAKE3 of a content from the values of its subtrees, of which there is at least one.
pub fn hash_of_subtrees(values: &[ChainingValue]) -> [u8; 32] {
    match values {
        [whole] => *whole,
        _ => root(values).0,
    }
}

impl BlockHash {
    /// Hashes the block at `offset`, a multiple of [`block_bytes`], of a file of `file_len` bytes. Only the last block
    /// may be shorter than that.
    pub fn of(block: &[u8], offset: u64, file_len: u64) -> Self {
        if is_one_block(file_len) {
            return Self::Whole(TransferHash::of(block));
        }
        Self::Part(granule_value(block, offset))
    }

    /// Computes the hash of a block from those of its granules. `None` for a file of a single granule, which has
    /// another hash.
    pub fn of_granules(values: &[ChainingValue], file_len: u64) -> Option<Self> {
        match values {
            [] => None,
            _ if !is_one_block(file_len) => Some(Self::Part(subtree(values))),
            [_] => None,
            _ => Some(Self::Whole(root(values))),
        }
    }

    /// Returns the part of blocks of `bytes` bytes together that are entirely holes, so that files with large holes
    /// cost only their data. Both ends must agree on the hole. Only files of several blocks have such parts.
    pub fn of_hole(bytes: u64, file_len: u64) -> Self {
        Self::Holes(bytes.div_ceil(block_bytes(file_len) as u64).max(1))
    }
}

/// Returns whether a file is a single block, whose hash is the file's.
pub fn is_one_block(file_len: u64) -> bool {
    file_len <= block_bytes(file_len) as u64
}

impl BlockHashes {
    /// Starts with a file of `len` bytes. An empty file has no blocks, and its hash is known at once.
    pub fn new(len: u64) -> Self {
        let block = block_bytes(len) as u64;
        let blocks = len.div_ceil(block);
        let root = (len == 0).then(|| TransferHash::of(&[]));
        Self { runs: BTreeMap::new(), block, blocks, missing: blocks, root }
    }

    /// Adds the hash of the block, or blocks, at `offset`. False if they are not in the file, or were added before.
    #[must_use]
    pub fn set(&mut self, offset: u64, hash: BlockHash) -> bool {
        let first = offset / self.block;
        let run = match hash {
            BlockHash::Part(value) => GranuleRun::One(value),
            BlockHash::Whole(root) => GranuleRun::One(root.0),
            BlockHash::Holes(blocks) => GranuleRun::Holes(blocks),
        };
        let Some(end) = first.checked_add(run.blocks()).filter(|end| *end <= self.blocks) else {
            return false;
        };
        let before = self.runs.range(..end).next_back();
        if before.is_some_and(|(at, run)| at + run.blocks() > first) {
            return false;
        }
        if let BlockHash::Whole(root) = hash {
            self.root = Some(root);
        }
        self.runs.insert(first, run);
        self.missing -= run.blocks();
        true
    }

    /// Returns the id of the content once every block is known. `None` if blocks are holes, which have another value
    /// there.
    pub fn content_id(&self) -> Option<ContentId> {
        let has_holes = self.runs.values().any(|run| matches!(run, GranuleRun::Holes(_)));
        self.finish().filter(|_| !has_holes).map(|hash| ContentId(hash.0))
    }

    /// Returns the file's hash once every block is known.
    pub fn finish(&self) -> Option<TransferHash> {
        if self.missing > 0 {
            return None;
        }
        if self.blocks <= 1 {
            return self.root;
        }
        let mut tree = Subtrees { runs: &self.runs, holes: vec![hole()] };
        let left = left_parts(self.blocks);
        let (left, right) = (tree.value(0, left), tree.value(left, self.blocks - left));
        Some(TransferHash(*merge_subtrees_root(&left, &right, Mode::Hash).as_bytes()))
    }
}

/// Combines the subtrees of a file whose blocks are all known. Those of holes are made once for each size, so that a
/// long hole costs little.
struct Subtrees<'a> {
    runs: &'a BTreeMap<u64, GranuleRun>,
    /// Values of 1, 2, 4, 8 ... blocks that are holes.
    holes: Vec<ChainingValue>,
}

impl Subtrees<'_> {
    /// Computes the value of `blocks` blocks, at least one, from `first` on.
    fn value(&mut self, first: u64, blocks: u64) -> ChainingValue {
        if let Some((at, run)) = self.runs.range(..=first).next_back() {
            match *run {
                GranuleRun::One(value) if blocks == 1 => return value,
                GranuleRun::Holes(many) if blocks.is_power_of_two() && first + blocks <= at + many => {
                    return self.holes(blocks.trailing_zeros() as usize);
                }
                _ => {}
            }
        }
        if blocks == 1 {
            // Cannot happen: all blocks are known.
            return hole();
        }
        let left = left_parts(blocks);
        let (left, right) = (self.value(first, left), self.value(first + left, blocks - left));
        merge_subtrees_non_root(&left, &right, Mode::Hash)
    }

    fn holes(&mut self, level: usize) -> ChainingValue {
        let mut value = self.holes[self.holes.len() - 1];
        while self.holes.len() <= level {
            value = merge_subtrees_non_root(&value, &value, Mode::Hash);
            self.holes.push(value);
        }
        self.holes[level]
    }
}

/// Returns the constant for a block that is entirely a hole.
fn hole() -> ChainingValue {
    blake3::derive_key("volferry 2026-11-21 a block that is a hole v1", &[])
}

/// Combines the hashes of two or more parts into the file's hash.
fn root(values: &[ChainingValue]) -> TransferHash {
    let (left, right) = values.split_at(left_parts(values.len() as u64) as usize);
    TransferHash(*merge_subtrees_root(&subtree(left), &subtree(right), Mode::Hash).as_bytes())
}

/// Returns the number of parts of the left subtree: in BLAKE3, the largest power of two that leaves one for the right.
fn left_parts(parts: u64) -> u64 {
    1 << (u64::BITS - 1 - (parts - 1).leading_zeros())
}

fn subtree(values: &[ChainingValue]) -> ChainingValue {
    match values {
        [one] => *one,
        _ => {
            let (left, right) = values.split_at(left_parts(values.len() as u64) as usize);
            merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
        }
    }
}

/// A digest of a directory and everything below it. Owners and attributes have digests of their own: a sink that may
/// not set them compares without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeDigest {
    /// Names, kinds, sizes, times, modes, link targets.
    pub entries: [u8; 16],
    /// Users and groups.
    pub owners: [u8; 16],
    /// Extended attributes; [`Self::NO_ATTRS`] if no entry has any.
    pub attrs: [u8; 16],
}

impl TreeDigest {
    /// The digest of a tree in which no entry has extended attributes.
    pub const NO_ATTRS: [u8; 16] = [0; 16];

    /// Combines a directory's own digest with those of its subdirectories, in order.
    #[must_use]
    pub fn with_children(&self, children: &[Self]) -> Self {
        let fold = |own: [u8; 16], part: fn(&Self) -> [u8; 16]| {
            let below: Vec<u8> = children.iter().flat_map(part).collect();
            digest(&[&own, &below])
        };
        let bare = self.attrs == Self::NO_ATTRS && children.iter().all(|child| child.attrs == Self::NO_ATTRS);
        Self {
            entries: fold(self.entries, |child| child.entries),
            owners: fold(self.owners, |child| child.owners),
            attrs: if bare { Self::NO_ATTRS } else { fold(self.attrs, |child| child.attrs) },
        }
    }
}

/// Returns the first 16 bytes of BLAKE3, enough to exclude accidental collisions. A peer needs 2^64 work to make two
/// directories look equal.
pub fn digest(parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    let mut short = [0; 16];
    short.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_sizes::{MAX_BLOCK_BYTES, MIN_BLOCK_BYTES, MIN_GRANULE_BYTES, granule_bytes};

    #[test]
    fn blocks_in_any_order_give_the_hash_of_the_whole() {
        let content: Vec<u8> = (0..7 * MIN_BLOCK_BYTES + 12345).map(|i| ((i * 31) >> 7) as u8).collect();
        for len in [
            0,
            1,
            1024,
            MIN_BLOCK_BYTES,
            MIN_BLOCK_BYTES + 1,
            2 * MIN_BLOCK_BYTES,
            5 * MIN_BLOCK_BYTES,
            content.len(),
        ] {
            let content = &content[..len];
            let mut hashes = BlockHashes::new(len as u64);
            let blocks: Vec<_> = content.chunks(MIN_BLOCK_BYTES).enumerate().collect();
            for (i, block) in blocks.into_iter().rev() {
                assert_eq!(hashes.finish(), None);
                let offset = (i * MIN_BLOCK_BYTES) as u64;
                assert!(hashes.set(offset, BlockHash::of(block, offset, len as u64)));
            }
            assert_eq!(hashes.finish(), Some(TransferHash::of(content)), "{len} bytes");
            assert_eq!(hashes.content_id(), Some(ContentId::of(content)), "{len} bytes");
        }
    }

    const BLOCK: u64 = MIN_BLOCK_BYTES as u64;

    fn part(byte: u8) -> BlockHash {
        BlockHash::Part([byte; 32])
    }

    #[test]
    fn a_hole_of_many_blocks_is_as_many_holes_of_one() {
        for (holes, blocks) in [(0..1, 2), (1..2, 3), (0..5, 9), (3..12, 13), (2..40, 41), (0..64, 64)] {
            let [mut run, mut single] = [(); 2].map(|()| BlockHashes::new(blocks * BLOCK));
            let len = (holes.end - holes.start) * BLOCK;
            assert!(run.set(holes.start * BLOCK, BlockHash::of_hole(len, blocks * BLOCK)));
            assert_eq!(run.content_id(), None);
            for block in 0..blocks {
                let hash = if holes.contains(&block) { BlockHash::Part(hole()) } else { part(block as u8) };
                assert!(single.set(block * BLOCK, hash));
                assert!(holes.contains(&block) || run.set(block * BLOCK, hash));
            }
            assert_eq!(
                (run.finish(), run.finish().is_some()),
                (single.finish(), true),
                "{holes:?} of {blocks}"
            );
        }
    }

    #[test]
    fn a_file_takes_no_more_memory_or_time_than_what_came_of_it() {
        let len = i64::MAX as u64;
        let mut hashes = BlockHashes::new(len);
        let block = MAX_BLOCK_BYTES as u64;
        assert!(hashes.set(0, part(1)) && hashes.set(block, BlockHash::of_hole(len - block, len)));
        assert!(hashes.finish().is_some());
    }

    #[test]
    fn a_block_is_taken_once_and_only_in_the_file() {
        let mut hashes = BlockHashes::new(9 * BLOCK);
        let hole = |blocks: u64| BlockHash::of_hole(blocks * BLOCK, 9 * BLOCK);
        assert!(hashes.set(4 * BLOCK, hole(2)));
        for (offset, hash) in [
            (4, part(1)),
            (5, part(1)),
            (3, hole(2)),
            (0, hole(9)),
            (5, hole(2)),
            (8, hole(2)),
            (9, part(1)),
            (1 << 40, part(1)),
        ] {
            assert!(!hashes.set(offset * BLOCK, hash), "at {offset}");
        }
        assert!(hashes.set(0, hole(4)) && hashes.set(6 * BLOCK, hole(3)));
        assert!(hashes.finish().is_some());
    }

    #[test]
    fn blocks_grow_with_granules_and_a_granule_is_never_more_than_one() {
        let gib = 1 << 30;
        for (len, block) in [
            (0, 256),
            (gib, 256),
            (64 * gib, 256),
            (64 * gib + 1, 512),
            (128 * gib, 512),
            (128 * gib + 1, 1024),
            (i64::MAX as u64, 1024),
        ] {
            assert_eq!(block_bytes(len), block << 10, "{len}");
            assert!(granule_bytes(len) <= block_bytes(len) && block_bytes(len) <= MAX_BLOCK_BYTES);
        }
    }

    #[test]
    fn granules_give_the_hash_of_their_block() {
        let content: Vec<u8> = (0..2 * MIN_BLOCK_BYTES + 54_321).map(|i| ((i * 37) >> 5) as u8).collect();
        for len in [MIN_GRANULE_BYTES + 1, 100_000, MIN_BLOCK_BYTES, MIN_BLOCK_BYTES + 1, content.len()] {
            let content = &content[..len];
            let mut hashes = BlockHashes::new(len as u64);
            for (i, block) in content.chunks(MIN_BLOCK_BYTES).enumerate() {
                let offset = i * MIN_BLOCK_BYTES;
                let granules = block.chunks(MIN_GRANULE_BYTES).enumerate();
                let values: Vec<_> = granules
                    .map(|(j, granule)| granule_value(granule, (offset + j * MIN_GRANULE_BYTES) as u64))
                    .collect();
                assert!(hashes.set(offset as u64, BlockHash::of_granules(&values, len as u64).unwrap()));
            }
            assert_eq!(hashes.finish(), Some(TransferHash::of(content)), "{len} bytes");
        }
        assert!(BlockHash::of_granules(&[granule_value(b"one", 0)], 3).is_none());
    }

    #[test]
    fn larger_files_have_larger_granules() {
        for (len, bytes) in [
            (0, 16 << 10),
            (4 << 30, 16 << 10),
            ((4 << 30) + 1, 32 << 10),
            (1 << 40, 1 << 20),
            (1 << 50, 1 << 20),
        ] {
            assert_eq!(granule_bytes(len), bytes, "{len} bytes");
        }
    }
}
