//! Decides the lengths of a file's blocks, in which it is read and hashed, and of its granules, in which two versions
//! of it are compared.

/// The shortest block of content, in bytes. Pieces of this size stay in a core's cache from reading to sending;
/// `syncer/doc/design.md` has figures.
pub const MIN_BLOCK_BYTES: usize = 256 << 10;

/// The longest block, in bytes.
pub const MAX_BLOCK_BYTES: usize = 1 << 20;

/// Returns the block length of a file of `len` bytes: a granule, but at least [`MIN_BLOCK_BYTES`]. It is a power of two
/// of BLAKE3's 1 KiB leaves, so blocks are subtrees and can be hashed in any order.
pub fn block_bytes(len: u64) -> usize {
    granule_bytes(len).max(MIN_BLOCK_BYTES)
}

/// The smallest granule in bytes. BLAKE3 hashes 16 of its leaves side by side, so smaller granules cost more to hash.
pub const MIN_GRANULE_BYTES: usize = 16 << 10;

/// The most granules of a file, as long as they are smaller than the largest block: 2 MiB of names.
const MAX_GRANULES: u64 = 1 << 18;

/// Returns the granule length of a file of `len` bytes: the unit in which two versions are compared if nothing moved.
/// It is a power of two, and so a subtree of the file's hash.
pub fn granule_bytes(len: u64) -> usize {
    let even = len.div_ceil(MAX_GRANULES).next_power_of_two();
    even.clamp(MIN_GRANULE_BYTES as u64, MAX_BLOCK_BYTES as u64) as usize
}
