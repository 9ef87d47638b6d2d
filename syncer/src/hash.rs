//! Hashes of content and of directories. All are BLAKE3.

use std::fmt;

use blake3::hazmat::{ChainingValue, HasherExt as _, Mode, merge_subtrees_non_root, merge_subtrees_root};

/// Content is hashed, and sent, in blocks of this many bytes. A power of two of BLAKE3's 1 KiB leaves, so a block is a
/// whole subtree of the file's hash and blocks can be hashed in any order, by any core.
pub const BLOCK_BYTES: usize = 1 << 20;

/// BLAKE3 of a file's content.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentHash(pub [u8; 32]);

impl ContentHash {
    /// The hash of content that is at hand as a whole.
    pub fn of(content: &[u8]) -> Self {
        Self(*blake3::hash(content).as_bytes())
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

/// The hash of a file from the hashes of its blocks, which may come in any order.
///
/// Memory: 32 bytes for each [`BLOCK_BYTES`] of the file.
#[derive(Debug)]
pub struct BlockHashes {
    values: Vec<Option<ChainingValue>>,
    missing: usize,
    root: Option<ContentHash>,
}

/// The part of a file's hash that one block contributes.
#[derive(Debug, Clone, Copy)]
pub enum BlockHash {
    /// The block is the whole file.
    Whole(ContentHash),
    /// The block is a subtree.
    Part(ChainingValue),
}

impl BlockHash {
    /// The hash of the block at `offset`, a multiple of [`BLOCK_BYTES`], of a file of `file_len` bytes. Every block but the last has
    /// exactly [`BLOCK_BYTES`].
    pub fn of(block: &[u8], offset: u64, file_len: u64) -> Self {
        if file_len <= BLOCK_BYTES as u64 {
            return Self::Whole(ContentHash::of(block));
        }
        let mut hasher = blake3::Hasher::new();
        Self::Part(hasher.set_input_offset(offset).update(block).finalize_non_root())
    }
}

impl BlockHashes {
    /// For a file of `len` bytes.
    pub fn new(len: u64) -> Self {
        let blocks = len.div_ceil(BLOCK_BYTES as u64).max(1) as usize;
        Self { values: vec![None; blocks], missing: blocks, root: None }
    }

    /// Takes the hash of the block at `offset`. A block that was taken already is replaced.
    pub fn set(&mut self, offset: u64, hash: BlockHash) {
        let Some(slot) = self.values.get_mut((offset / BLOCK_BYTES as u64) as usize) else { return };
        let value = match hash {
            BlockHash::Part(value) => value,
            BlockHash::Whole(root) => {
                self.root = Some(root);
                root.0
            }
        };
        if slot.replace(value).is_none() {
            self.missing -= 1;
        }
    }

    /// The file's hash, once every block is there.
    pub fn finish(&self) -> Option<ContentHash> {
        if self.missing > 0 {
            return None;
        }
        if self.values.len() == 1 {
            return self.root;
        }
        let values: Vec<ChainingValue> = self.values.iter().copied().flatten().collect();
        let (left, right) = values.split_at(left_blocks(values.len()));
        let root = merge_subtrees_root(&subtree(left), &subtree(right), Mode::Hash);
        Some(ContentHash(*root.as_bytes()))
    }
}

/// BLAKE3 gives the left subtree the largest power of two of leaves that leaves at least one for the right.
fn left_blocks(blocks: usize) -> usize {
    1 << (usize::BITS - 1 - (blocks - 1).leading_zeros())
}

fn subtree(values: &[ChainingValue]) -> ChainingValue {
    match values {
        [one] => *one,
        _ => {
            let (left, right) = values.split_at(left_blocks(values.len()));
            merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
        }
    }
}

/// What a directory and all below it look like. Owners have a digest of their own: a sink that may not set them compares
/// without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeDigest {
    /// Names, kinds, sizes, times, modes, link targets.
    pub entries: [u8; 16],
    /// Users and groups.
    pub owners: [u8; 16],
}

/// The first 16 bytes of BLAKE3: no accident, and no peer without 2^64 work, makes two directories look the same.
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

    #[test]
    fn blocks_in_any_order_give_the_hash_of_the_whole() {
        let content: Vec<u8> = (0..7 * BLOCK_BYTES + 12345).map(|i| ((i * 31) >> 7) as u8).collect();
        for len in [0, 1, 1024, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES, 5 * BLOCK_BYTES, content.len()]
        {
            let content = &content[..len];
            let mut hashes = BlockHashes::new(len as u64);
            let mut blocks: Vec<_> = content.chunks(BLOCK_BYTES).enumerate().collect();
            if blocks.is_empty() {
                blocks.push((0, &[]));
            }
            for (i, block) in blocks.into_iter().rev() {
                assert_eq!(hashes.finish(), None);
                let offset = (i * BLOCK_BYTES) as u64;
                hashes.set(offset, BlockHash::of(block, offset, len as u64));
            }
            assert_eq!(hashes.finish(), Some(ContentHash::of(content)), "{len} bytes");
        }
    }
}
