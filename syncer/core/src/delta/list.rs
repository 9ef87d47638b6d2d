//! The chunks of one file, in order, which cross the wire instead of its bytes, and from which its [`ChunkRoot`] is
//! made.
//!
//! # Encoding
//!
//! | bytes | field |
//! |---|---|
//! | 4, 4, 4 | [`ChunkSizes`]: min, normal, max; little-endian, as are all numbers |
//! | rest | one record a chunk: its name, then its length in as many bytes as max needs |
//!
//! There is one encoding of a list and no padding, so equal lists are equal bytes. The number of chunks follows from
//! the number of bytes, and the file's length from the chunks'.

use thiserror::Error;

use super::chunk_sizes::{ChunkSizes, ChunkSizesError};
use super::cut_chunks::Chunker;
use super::short_name::ShortName;

const HEADER: usize = 12;

/// Separates the root of a list from every other use of BLAKE3, including the hashes of chunks.
const ROOT_CONTEXT: &str = "volferry 2026-11-20 root of a chunk list v1";

/// Reports bytes that are not a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ListError {
    /// The header is cut off.
    #[error("a chunk list of {0} bytes has no room for its header")]
    NoHeader(usize),
    /// Sizes that data cannot be cut to.
    #[error(transparent)]
    Sizes(#[from] ChunkSizesError),
    /// The last record is cut off.
    #[error("{0} bytes left over after the last whole record of a chunk list")]
    PartialRecord(usize),
    /// A chunk that is empty, longer than the maximum, or shorter than the minimum and not the last.
    #[error("chunk {ordinal} of a list is {len} bytes long")]
    ChunkLength {
        /// Which chunk, from 0.
        ordinal: usize,
        /// Its length in bytes.
        len: u32,
    },
}

/// One chunk of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its name.
    pub name: ShortName,
    /// Its length in bytes, never 0.
    pub len: u32,
}

/// The consecutive chunks of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkList {
    sizes: ChunkSizes,
    chunks: Vec<Chunk>,
    len: u64,
}

/// The hash of a whole file over its list: equal for two files only if their bytes are.
///
/// It covers the chunks' 32-byte hashes and lengths, so that nothing is hashed twice. For a file of a single chunk it
/// is that chunk's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRoot(pub blake3::Hash);

impl ChunkList {
    /// Returns the sizes that the file was cut to.
    #[must_use]
    pub fn sizes(&self) -> ChunkSizes {
        self.sizes
    }

    /// Returns the chunks, in the file's order.
    #[must_use]
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Returns the file's length in bytes.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        self.len
    }

    /// Appends the encoding to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let width = len_width(self.sizes);
        out.reserve(HEADER + self.chunks.len() * (ShortName::LEN + width));
        for size in [self.sizes.min(), self.sizes.normal(), self.sizes.max()] {
            out.extend_from_slice(&size.to_le_bytes());
        }
        for chunk in &self.chunks {
            out.extend_from_slice(chunk.name.as_bytes());
            out.extend_from_slice(&chunk.len.to_le_bytes()[..width]);
        }
    }

    /// Decodes a list that is all of `bytes`, from an untrusted peer or disk.
    ///
    /// # Errors
    /// If `bytes` are not an encoding of [`Self::encode`]. At most twice the length of `bytes` is allocated.
    pub fn decode(bytes: &[u8]) -> Result<Self, ListError> {
        let Some((header, records)) = bytes.split_first_chunk::<HEADER>() else {
            return Err(ListError::NoHeader(bytes.len()));
        };
        let size =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let sizes = ChunkSizes::new(size(0), size(4), size(8))?;
        Self::decode_records(sizes, records)
    }

    fn decode_records(sizes: ChunkSizes, records: &[u8]) -> Result<Self, ListError> {
        let width = len_width(sizes);
        let records = records.chunks_exact(ShortName::LEN + width);
        if !records.remainder().is_empty() {
            return Err(ListError::PartialRecord(records.remainder().len()));
        }
        let count = records.len();
        let mut list = Self::empty(sizes);
        list.chunks.reserve_exact(count);
        for (ordinal, record) in records.enumerate() {
            let (name, len) = record.split_at(ShortName::LEN);
            let len = len.iter().rev().fold(0, |len, &byte| len << 8 | u32::from(byte));
            let least = if ordinal + 1 == count { 1 } else { sizes.min() };
            let name = ShortName::from_prefix(name).filter(|_| (least..=sizes.max()).contains(&len));
            list.push(Chunk { name: name.ok_or(ListError::ChunkLength { ordinal, len })?, len });
        }
        Ok(list)
    }

    fn empty(sizes: ChunkSizes) -> Self {
        Self { sizes, chunks: Vec::new(), len: 0 }
    }

    fn push(&mut self, chunk: Chunk) {
        self.len += u64::from(chunk.len);
        self.chunks.push(chunk);
    }
}

/// Returns the number of bytes that hold any length up to the maximum.
fn len_width(sizes: ChunkSizes) -> usize {
    (u32::BITS - sizes.max().leading_zeros()).div_ceil(8) as usize
}

/// Builds a list and its root from chunks whose hashes are known.
#[derive(Debug)]
pub struct ListBuilder {
    list: ChunkList,
    root: Box<blake3::Hasher>,
    latest: blake3::Hash,
}

impl ListBuilder {
    /// Starts with an empty list.
    #[must_use]
    pub fn new(sizes: ChunkSizes) -> Self {
        let mut root = Box::new(blake3::Hasher::new_derive_key(ROOT_CONTEXT));
        for size in [sizes.min(), sizes.normal(), sizes.max()] {
            root.update(&size.to_le_bytes());
        }
        Self { list: ChunkList::empty(sizes), root, latest: blake3::hash(&[]) }
    }

    /// Appends a chunk of `len` bytes, which must not be 0.
    pub fn push(&mut self, hash: &blake3::Hash, len: u32) {
        debug_assert!(len > 0, "a chunk is never empty");
        self.root.update(hash.as_bytes()).update(&len.to_le_bytes());
        self.latest = *hash;
        self.list.push(Chunk { name: ShortName::of(hash), len });
    }

    /// Returns the root of the file.
    #[must_use]
    pub fn root(&self) -> ChunkRoot {
        ChunkRoot(if self.list.chunks.len() > 1 { self.root.finalize() } else { self.latest })
    }

    /// Returns the list.
    #[must_use]
    pub fn finish(self) -> ChunkList {
        self.list
    }
}

/// Cuts a file that arrives as a stream, and lists its chunks.
#[derive(Debug)]
pub struct Lister {
    chunker: Chunker,
    builder: ListBuilder,
}

impl Lister {
    /// Starts at the start of a file.
    #[must_use]
    pub fn new(sizes: ChunkSizes) -> Self {
        Self { chunker: Chunker::new(sizes), builder: ListBuilder::new(sizes) }
    }

    /// Adds the chunk at the start of `bytes` and returns its length. Arguments and `None` are those of
    /// [`Chunker::next_cut`].
    pub fn next(&mut self, bytes: &[u8], last: bool) -> Option<usize> {
        let cut = self.chunker.next_cut(bytes, last)?;
        self.builder.push(&blake3::hash(&bytes[..cut]), cut as u32);
        Some(cut)
    }

    /// Returns the list.
    #[must_use]
    pub fn finish(self) -> ChunkList {
        self.builder.finish()
    }
}

/// Lists a file that is in memory as a whole.
#[must_use]
pub fn list(bytes: &[u8], sizes: ChunkSizes) -> ChunkList {
    listed(bytes, sizes).finish()
}

fn listed(mut bytes: &[u8], sizes: ChunkSizes) -> Lister {
    let mut lister = Lister::new(sizes);
    while let Some(len) = lister.next(bytes, true) {
        bytes = &bytes[len..];
    }
    lister
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{noise, text};
    use super::*;

    const SIZES: ChunkSizes = ChunkSizes::FINE;

    fn encoded(list: &ChunkList) -> Vec<u8> {
        let mut bytes = Vec::new();
        list.encode(&mut bytes);
        bytes
    }

    #[test]
    fn a_list_names_the_bytes_between_the_cuts() {
        let bytes = text(1, 300_000);
        let list = list(&bytes, SIZES);
        let mut rest = &bytes[..];
        for chunk in list.chunks() {
            let (bytes, behind) = rest.split_at(chunk.len as usize);
            assert_eq!(chunk.name, ShortName::of(&blake3::hash(bytes)));
            rest = behind;
        }
        assert_eq!((rest.len(), list.file_len()), (0, 300_000));
    }

    #[test]
    fn a_single_chunk_is_its_own_root() {
        for len in [0, 1, 500] {
            let bytes = noise(2, len);
            assert_eq!(listed(&bytes, SIZES).builder.root(), ChunkRoot(blake3::hash(&bytes)));
        }
    }

    #[test]
    fn the_root_changes_with_every_byte_with_the_cuts_and_with_the_sizes() {
        let bytes = noise(3, 50_000);
        let root = listed(&bytes, SIZES).builder.root();
        for at in (0..bytes.len()).step_by(97) {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_ne!(listed(&other, SIZES).builder.root(), root, "byte {at}");
        }
        assert_ne!(listed(&bytes[..49_999], SIZES).builder.root(), root);
        assert_ne!(listed(&bytes, ChunkSizes::for_len(1 << 30)).builder.root(), root);
        let (mut one, mut two) = (ListBuilder::new(SIZES), ListBuilder::new(SIZES));
        let hash = blake3::hash(b"chunk");
        [3, 4].into_iter().for_each(|len| one.push(&hash, len));
        [4, 3].into_iter().for_each(|len| two.push(&hash, len));
        assert_ne!(one.root(), two.root());
    }

    /// Frozen: header, two records, and the root of the list.
    #[test]
    fn the_encoding_and_the_root_never_change() {
        let mut builder = ListBuilder::new(SIZES);
        builder.push(&blake3::hash(b"abc"), 0x1234);
        builder.push(&blake3::hash(b""), 3);
        let root = builder.root();
        let list = builder.finish();
        let records = [
            "00060000",
            "000c0000",
            "00300000", // 1536, 3072, 12288
            "6437b3ac38465133",
            "3412", // the first 8 bytes of BLAKE3("abc")
            "af1349b9f5f9a1a6",
            "0300", // and of BLAKE3("")
        ];
        assert_eq!(hex(&encoded(&list)), records.concat());
        assert_eq!(
            root.0.to_hex().as_str(),
            "19eb27206c03b13439b79954139a6f76f5ca896c5c8a68a0452f62ece1e6881e"
        );
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn a_list_that_is_not_well_formed_is_refused_by_its_first_fault() {
        let list = list(&noise(4, 20_000), SIZES);
        let good = encoded(&list);
        let decode = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = good.clone();
            change(&mut bytes);
            ChunkList::decode(&bytes).map(drop)
        };
        assert_eq!(decode(&|_| ()), Ok(()));
        assert_eq!(decode(&|bytes| bytes.truncate(11)), Err(ListError::NoHeader(11)));
        assert!(matches!(decode(&|bytes| bytes[11] = 0xff), Err(ListError::Sizes(_))));
        assert_eq!(decode(&|bytes| bytes.truncate(good.len() - 1)), Err(ListError::PartialRecord(9)));
        let len = |len: u16| move |bytes: &mut Vec<u8>| bytes[20..22].copy_from_slice(&len.to_le_bytes());
        assert_eq!(decode(&len(0)), Err(ListError::ChunkLength { ordinal: 0, len: 0 }));
        assert_eq!(decode(&len(1535)), Err(ListError::ChunkLength { ordinal: 0, len: 1535 }));
        assert_eq!(decode(&len(12_289)), Err(ListError::ChunkLength { ordinal: 0, len: 12_289 }));
        assert_eq!(decode(&len(1536)), Ok(()));
    }

    #[test]
    fn only_the_last_chunk_may_be_short() {
        let list = list(&noise(5, 20_000), SIZES);
        let mut bytes = encoded(&list);
        let last = bytes.len() - 2;
        bytes[last..].copy_from_slice(&1_u16.to_le_bytes());
        assert!(ChunkList::decode(&bytes).is_ok());
        bytes.extend_from_within(bytes.len() - 10..);
        assert!(matches!(ChunkList::decode(&bytes), Err(ListError::ChunkLength { len: 1, .. })));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(len in 0_usize..200_000, seed in 0_u64..50) {
            let list = list(&noise(seed, len), SIZES);
            prop_assert_eq!(&ChunkList::decode(&encoded(&list)).unwrap(), &list);
        }

        #[test]
        fn whatever_is_decoded_is_encoded_to_the_same_bytes(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            lens in prop::collection::vec(0_u16..13_000, 0..20),
        ) {
            let mut forged = encoded(&ListBuilder::new(SIZES).finish());
            for len in lens {
                forged.extend_from_slice(&[7; 8]);
                forged.extend_from_slice(&len.to_le_bytes());
            }
            for bytes in [&bytes, &forged, &[&forged, &bytes[..]].concat()] {
                if let Ok(list) = ChunkList::decode(bytes) {
                    prop_assert_eq!(&encoded(&list), bytes);
                }
            }
        }
    }
}
