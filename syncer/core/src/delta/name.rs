//! What a chunk is called: the first bytes of the BLAKE3 hash of its bytes.
//!
//! Names only ever *propose* that two chunks are equal. What a sink builds is compared with the source's
//! [`ChunkRoot`](super::list::ChunkRoot), which is made from whole 32-byte hashes, so a collision of names costs a
//! second transfer of one file and never a wrong byte. Hence how short they may be:
//!
//! - [`ChunkName`], 16 bytes, is kept. Two different chunks share one with a probability of 2^-128, and making such a
//!   pair on purpose takes 2^64 hashes.
//! - [`ShortName`], 8 bytes, crosses the wire, where it and the chunk's length are all that an unchanged chunk costs. A
//!   source that looks up n chunks among m errs with a probability below n·m / 2^64, and lengths are compared too: 1
//!   in 10^10 for two lists of a file of 10 GiB. Who can write to both versions of a file can make a pair with 2^32
//!   hashes, and has then slowed down the transfer of that file.

use std::fmt;

/// The first 16 bytes of a chunk's BLAKE3 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkName([u8; 16]);

/// The first 8 bytes of a chunk's BLAKE3 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortName([u8; 8]);

/// A prefix of a BLAKE3 hash.
pub trait Name: Copy + Eq + fmt::Debug {
    /// Length in bytes.
    const LEN: usize;

    /// Returns the name of a chunk with this hash.
    fn of(hash: &blake3::Hash) -> Self;

    /// Takes the first [`Self::LEN`] bytes of `bytes`. `None` if there are fewer.
    fn from_prefix(bytes: &[u8]) -> Option<Self>;

    /// Returns its bytes.
    fn as_bytes(&self) -> &[u8];
}

impl Name for ChunkName {
    const LEN: usize = 16;

    fn of(hash: &blake3::Hash) -> Self {
        Self(first(hash.as_bytes()))
    }

    fn from_prefix(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(|bytes| Self(*bytes))
    }

    fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Name for ShortName {
    const LEN: usize = 8;

    fn of(hash: &blake3::Hash) -> Self {
        Self(first(hash.as_bytes()))
    }

    fn from_prefix(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(|bytes| Self(*bytes))
    }

    fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<ChunkName> for ShortName {
    fn from(name: ChunkName) -> Self {
        Self(first(&name.0))
    }
}

impl ShortName {
    /// Returns it as a number, which is as evenly spread as the hash.
    pub(super) fn number(self) -> u64 {
        u64::from_be_bytes(self.0)
    }
}

impl fmt::Debug for ChunkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for ShortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

fn first<const N: usize, const M: usize>(bytes: &[u8; M]) -> [u8; N] {
    const { assert!(N <= M) };
    std::array::from_fn(|i| bytes[i])
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}
