//! Hashes of chunks, and of a file from those of its chunks.
//!
//! Chunks that the content cuts are hashed by themselves, so that they are known wherever they are. Blocks are hashed as
//! the parts of the file's own BLAKE3 tree that they are: the hash of a block is good for its offset only, and
//! costs nothing beyond the hash of the file, which is made from them. The one block of a file that has only one is
//! hashed as the file that it is, which makes small files known wherever they are, too.

use blake3::Hash;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

use super::chunk::ChunkSizes;

/// Keeps the root of a list apart from every other use of BLAKE3, the hashes of chunks included.
const CONTEXT: &str = "volferry 2026-11-20 root of a chunk list v1";

/// What a chunk is in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it.
    Whole,
    /// One of several.
    OneOfSeveral,
}

impl Part {
    pub(super) fn new(offset: u64, len: u64, file_len: u64) -> Self {
        if offset == 0 && len == file_len { Self::Whole } else { Self::OneOfSeveral }
    }

    /// Of the first `cut` of `bytes`, which begin at `offset` and are the `last` of a file, or not.
    pub(super) fn of_stream(offset: u64, cut: usize, bytes: &[u8], last: bool) -> Self {
        if offset == 0 && last && cut == bytes.len() { Self::Whole } else { Self::OneOfSeveral }
    }
}

/// Hashes one chunk.
#[derive(Debug)]
pub(super) struct ChunkHasher {
    hasher: blake3::Hasher,
    is_block: bool,
    offset: u64,
}

impl ChunkHasher {
    /// For the chunk at `offset` of a file cut to `sizes`.
    pub(super) fn new(sizes: ChunkSizes, offset: u64) -> Self {
        let is_block = sizes.is_blocks() && offset.is_multiple_of(u64::from(sizes.max()));
        let mut hasher = blake3::Hasher::new();
        if is_block {
            hasher.set_input_offset(offset);
        }
        Self { hasher, is_block, offset }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) -> &mut Self {
        self.hasher.update(bytes);
        self
    }

    /// The hash, if the chunk ends here.
    pub(super) fn finish(&self, part: Part) -> Hash {
        if self.is_block && (part == Part::OneOfSeveral || self.offset > 0) {
            Hash::from_bytes(self.hasher.finalize_non_root())
        } else {
            self.hasher.finalize()
        }
    }
}

/// The hash of a chunk that is at hand as a whole.
pub(super) fn hash_chunk(sizes: ChunkSizes, offset: u64, bytes: &[u8], part: Part) -> Hash {
    if sizes.is_blocks() {
        ChunkHasher::new(sizes, offset).update(bytes).finish(part)
    } else {
        blake3::hash(bytes)
    }
}

/// Makes a file's root from the hashes of its chunks, in their order.
#[derive(Debug)]
pub(super) enum RootHasher {
    /// Of chunks: a hash of their hashes and lengths.
    Chunks { hasher: Box<blake3::Hasher>, count: u64, latest: Option<Hash> },
    /// Of blocks: the upper part of the file's BLAKE3 tree. A subtree waits here until its neighbour is complete.
    Blocks { subtrees: Vec<ChainingValue>, count: u64 },
}

impl RootHasher {
    pub(super) fn new(sizes: ChunkSizes) -> Self {
        if sizes.is_blocks() {
            return Self::Blocks { subtrees: Vec::new(), count: 0 };
        }
        let mut hasher = Box::new(blake3::Hasher::new_derive_key(CONTEXT));
        for size in [sizes.min(), sizes.normal(), sizes.max()] {
            hasher.update(&size.to_le_bytes());
        }
        Self::Chunks { hasher, count: 0, latest: None }
    }

    pub(super) fn push(&mut self, hash: &Hash, len: u32) {
        match self {
            Self::Chunks { hasher, count, latest } => {
                hasher.update(hash.as_bytes()).update(&len.to_le_bytes());
                *latest = Some(*hash);
                *count += 1;
            }
            Self::Blocks { subtrees, count } => {
                // As many subtrees are complete as the number of blocks before this one has bits.
                while subtrees.len() > count.count_ones() as usize {
                    merge(subtrees);
                }
                subtrees.push(*hash.as_bytes());
                *count += 1;
            }
        }
    }

    pub(super) fn finish(self) -> Hash {
        match self {
            Self::Chunks { count: 1, latest: Some(only), .. } => only,
            Self::Chunks { count: 0, .. } => blake3::hash(&[]),
            Self::Chunks { hasher, .. } => hasher.finalize(),
            Self::Blocks { mut subtrees, .. } => {
                while subtrees.len() > 2 {
                    merge(&mut subtrees);
                }
                match subtrees[..] {
                    [left, right] => merge_subtrees_root(&left, &right, Mode::Hash),
                    [only] => Hash::from_bytes(only),
                    _ => blake3::hash(&[]),
                }
            }
        }
    }
}

/// Makes the last two subtrees one.
fn merge(subtrees: &mut Vec<ChainingValue>) {
    if let (Some(right), Some(left)) = (subtrees.pop(), subtrees.pop()) {
        subtrees.push(merge_subtrees_non_root(&left, &right, Mode::Hash));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::noise;
    use super::*;

    #[test]
    fn the_root_of_blocks_is_the_hash_of_the_file() {
        let sizes = ChunkSizes::BLOCKS;
        let bytes = noise(1, 9 << 20 | 12_345);
        for len in [0, 1, 1 << 20, (1 << 20) + 1, 2 << 20, 3 << 20, 5 << 20 | 1, 8 << 20, bytes.len()] {
            let mut root = RootHasher::new(sizes);
            for (block, offset) in bytes[..len].chunks(1 << 20).zip((0..).step_by(1 << 20)) {
                let part = Part::new(offset, block.len() as u64, len as u64);
                root.push(&hash_chunk(sizes, offset, block, part), block.len() as u32);
            }
            assert_eq!(root.finish(), blake3::hash(&bytes[..len]), "{len} bytes");
        }
    }

    #[test]
    fn a_hash_made_in_steps_is_that_of_the_whole_chunk() {
        let bytes = noise(2, 700_000);
        for sizes in [ChunkSizes::BLOCKS, ChunkSizes::FINE] {
            for offset in [0, 3 << 20] {
                for part in [Part::Whole, Part::OneOfSeveral] {
                    let mut hasher = ChunkHasher::new(sizes, offset);
                    hasher.update(&bytes[..123_456]).finish(part);
                    hasher.update(&bytes[123_456..]);
                    assert_eq!(hasher.finish(part), hash_chunk(sizes, offset, &bytes, part));
                }
            }
        }
    }

    #[test]
    fn blocks_differ_by_offset_and_chunks_do_not() {
        let bytes = noise(3, 5_000);
        let hash = |sizes, offset| hash_chunk(sizes, offset, &bytes, Part::OneOfSeveral);
        assert_ne!(hash(ChunkSizes::BLOCKS, 0), hash(ChunkSizes::BLOCKS, 1 << 20));
        assert_eq!(hash(ChunkSizes::FINE, 0), hash(ChunkSizes::FINE, 1 << 20));
        assert_eq!(hash(ChunkSizes::BLOCKS, 77), hash(ChunkSizes::FINE, 0), "no block starts there");
    }
}
