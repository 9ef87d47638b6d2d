//! An older version of large content, by the hashes of its granules: a source sends only the granules that differ.
//!
//! Granules are compared at their places only, which is how databases and images change. What was inserted moves the
//! rest, which is then sent.

use crate::snapshot::store::{OpenContent, SizedContent, Store};

/// Shorter content is sent as a whole.
pub(crate) const MIN_BYTES: u64 = 1 << 20;

/// The shortest granule, and the most granules of one content.
const MIN_GRANULE_BYTES: u64 = 64 << 10;
pub(crate) const MAX_GRANULES: u64 = 16 << 10;

/// The bytes of a granule's hash. The whole content has to have its id all the same.
pub(crate) const HASH_BYTES: usize = 16;

/// The hash of a granule.
pub(crate) type GranuleHash = [u8; HASH_BYTES];

/// An older version of content.
#[derive(Debug)]
pub(crate) struct ContentBasis {
    /// The older version.
    pub content: OpenContent,
    /// The hashes of its granules, in their order. The last one may be short.
    pub granules: Vec<GranuleHash>,
}

impl ContentBasis {
    /// Reads what the store has as an older version of content of `len` bytes; `None` if it cannot be read.
    pub(crate) fn of(store: &Store, older: &SizedContent, len: u64) -> Option<Self> {
        let content = store.content(&older.content).ok()?;
        let granule = granule_bytes(len);
        let mut buffer = vec![0; granule as usize];
        let whole = older.len.min(len) / granule;
        let hash = |nth: u64| {
            content.slice().read_exact_at(&mut buffer, nth * granule).ok()?;
            Some(hash_of(&buffer))
        };
        let granules = (0..whole).map(hash).collect::<Option<_>>()?;
        Some(Self { content, granules })
    }
}

/// Returns the length of the granules of content of `len` bytes.
pub(crate) fn granule_bytes(len: u64) -> u64 {
    len.div_ceil(MAX_GRANULES).next_power_of_two().max(MIN_GRANULE_BYTES)
}

/// Hashes a granule.
pub(crate) fn hash_of(granule: &[u8]) -> GranuleHash {
    let mut hash = [0; HASH_BYTES];
    hash.copy_from_slice(&blake3::hash(granule).as_bytes()[..HASH_BYTES]);
    hash
}
