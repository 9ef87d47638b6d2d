//! Blocks of a very large file that an earlier run received and checked, so that a run that continues need not read
//! them.

use std::ops::Range;

use crate::block_sizes::block_bytes;

/// The length, in bytes, from which files are sent with a check for each block. A shorter file is hashed again in a
/// tenth of a second.
pub const MIN_CHECKED_BYTES: u64 = 64 << 20;

/// The state of a source's file: a digest that the source makes of length, modification time and change time, so that
/// no two states share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion(pub [u8; 16]);

/// The check of one block: its value in the hash of its file, as the source has computed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCheck {
    /// The state of the file that the block was read from.
    pub version: FileVersion,
    /// The block's chaining value in the file's BLAKE3 tree.
    pub value: [u8; 32],
}

/// A block that was checked when it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedBlock {
    /// Its offset in the file.
    pub offset: u64,
    /// Its chaining value in the file's BLAKE3 tree.
    pub value: [u8; 32],
}

/// Blocks that a sink has of one version of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedBlocks {
    version: FileVersion,
    blocks: Vec<CheckedBlock>,
}

impl CheckedBlocks {
    /// Takes blocks of a file of `file_len` bytes. `None` if they are not blocks of it, not within `range`, or not
    /// ascending.
    #[must_use]
    pub fn new(
        version: FileVersion,
        file_len: u64,
        range: Range<u64>,
        blocks: Vec<CheckedBlock>,
    ) -> Option<Self> {
        let block = block_bytes(file_len) as u64;
        let is_block =
            |at: u64| at.is_multiple_of(block) && (range.start..range.end.min(file_len)).contains(&at);
        let fits = file_len >= MIN_CHECKED_BYTES && blocks.iter().all(|block| is_block(block.offset));
        let are_ascending = || blocks.is_sorted_by(|one, next| one.offset < next.offset);
        (fits && are_ascending()).then_some(Self { version, blocks })
    }

    /// Returns the version that the blocks belong to.
    #[must_use]
    pub fn version(&self) -> FileVersion {
        self.version
    }

    /// Returns the blocks, ascending by offset.
    #[must_use]
    pub fn blocks(&self) -> &[CheckedBlock] {
        &self.blocks
    }

    /// Returns the check of the block at `offset`, if it is one of these.
    #[must_use]
    pub fn check(&self, offset: u64) -> Option<BlockCheck> {
        let nth = self.blocks.binary_search_by_key(&offset, |block| block.offset).ok()?;
        Some(BlockCheck { version: self.version, value: self.blocks[nth].value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_of_a_very_large_file_in_their_order_are_taken() {
        let (len, block) = (MIN_CHECKED_BYTES + 5, block_bytes(MIN_CHECKED_BYTES + 5) as u64);
        let of = |len: u64, offsets: &[u64]| {
            let blocks = offsets.iter().map(|at| CheckedBlock { offset: *at, value: [7; 32] }).collect();
            CheckedBlocks::new(FileVersion([1; 16]), len, block..len, blocks)
        };
        let blocks = of(len, &[block, 3 * block, len - 5]).unwrap();
        assert_eq!(blocks.check(3 * block).map(|check| check.value), Some([7; 32]));
        assert_eq!(blocks.check(2 * block), None);
        for (len, offsets) in [
            (len, &[0][..]),
            (len, &[block + 1]),
            (len, &[2 * block, block]),
            (len, &[block, block]),
            (len, &[len + block - 5]),
            (MIN_CHECKED_BYTES - 1, &[block]),
        ] {
            assert_eq!(of(len, offsets), None, "{len} {offsets:?}");
        }
    }
}
