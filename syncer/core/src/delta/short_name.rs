//! The name of a chunk or a granule on the wire: the first bytes of the BLAKE3 hash of its bytes.
//!
//! Names only ever *propose* that two chunks are equal. The file that a sink builds is compared with the source's
//! [`ChunkRoot`](super::list::ChunkRoot), which is made from whole 32-byte hashes, so a collision of names costs a
//! second transfer of one file and never a wrong byte. Hence 8 bytes are enough: they and the chunk's length are the
//! whole cost of an unchanged chunk. A source that looks up n chunks among m errs with a probability below n·m / 2^64,
//! and lengths are compared too: 1 in 10^10 for two lists of a file of 10 GiB. A user who can write to both versions of
//! a file can make a pair with 2^32 hashes, and only slows down the transfer of that file.

use std::fmt;

/// The first 8 bytes of a BLAKE3 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortName([u8; 8]);

impl ShortName {
    /// Length in bytes.
    pub const LEN: usize = 8;

    /// Returns the name of a chunk with this hash.
    #[must_use]
    pub fn of(hash: &blake3::Hash) -> Self {
        Self(std::array::from_fn(|at| hash.as_bytes()[at]))
    }

    /// Takes the first [`Self::LEN`] bytes of `bytes`. `None` if there are fewer.
    #[must_use]
    pub fn from_prefix(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(|bytes| Self(*bytes))
    }

    /// Returns its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns it as a number, which is as evenly spread as the hash.
    pub(super) fn number(self) -> u64 {
        u64::from_be_bytes(self.0)
    }
}

impl fmt::Debug for ShortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
