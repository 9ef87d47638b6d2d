//! Reads what packs have from their ends, where no index says it.

use bytes::Bytes;
use volferry_core::codec::{DecodeError, Reader};

use super::{
    bucket_error::BucketError,
    bucket_store::{BucketStore, NOT_SEALED},
    pack_index::{ObjectName, PackIndex, pack_path},
};

/// The end of a pack that nearly always has its index.
const FEW_END_BYTES: u64 = 64 << 10;

/// The longest end of a pack that is read, in bytes.
const MAX_END_BYTES: u64 = 64 << 20;

/// The bytes of the length at the very end.
const LENGTH_BYTES: u64 = 4;

/// A pack, and its length in bytes.
pub(crate) type PackLength = (ObjectName, u64);

impl BucketStore {
    /// Reads what these packs have, in their order.
    pub(crate) fn pack_indexes(&self, packs: &[PackLength]) -> Vec<Result<PackIndex, BucketError>> {
        // Some servers refuse a range beyond an object, and all an empty one.
        let end =
            |(name, bytes): &PackLength| (pack_path(*name), bytes.saturating_sub(FEW_END_BYTES)..*bytes);
        let (short, long): (Vec<&PackLength>, _) =
            packs.iter().partition(|(_, bytes)| *bytes <= LENGTH_BYTES);
        let mut read: Vec<_> = short.into_iter().map(|(name, _)| Err(self.cut_off(*name))).collect();
        let ends: Vec<_> = long.iter().copied().map(end).collect();
        let passed = self.objects.get_ranges(&ends, &mut |nth, end| {
            read.push(end.and_then(|end| self.read_end(*long[nth], end)));
            Ok(())
        });
        read.extend(passed.err().map(Err));
        read
    }

    fn read_end(&self, (name, bytes): PackLength, mut end: Bytes) -> Result<PackIndex, BucketError> {
        let path = pack_path(name);
        let damaged = |what| self.objects.damaged(&path, what);
        let len = end.last_chunk().map_or(0, |len| u64::from(u32::from_le_bytes(*len)));
        if len + LENGTH_BYTES > MAX_END_BYTES {
            return Err(damaged("its index is longer than any that this program writes"));
        }
        if len + LENGTH_BYTES > end.len() as u64 {
            end = self.objects.get_range(&path, bytes.saturating_sub(len + LENGTH_BYTES)..bytes)?;
        }
        let from = (end.len() as u64).checked_sub(len + LENGTH_BYTES).ok_or_else(|| self.cut_off(name))?;
        let sealed = &end[from as usize..end.len() - LENGTH_BYTES as usize];
        let opened = self.seal.open(path.as_bytes(), sealed).ok_or_else(|| damaged(NOT_SEALED))?;
        let mut reader = Reader::new(&opened);
        let read = PackIndex::read(&mut reader).and_then(|index| {
            reader.finish()?;
            Ok::<_, DecodeError>(index)
        });
        read.ok().filter(|index| index.name == name).ok_or_else(|| damaged("its index is of another pack"))
    }

    fn cut_off(&self, name: ObjectName) -> BucketError {
        self.objects.damaged(&pack_path(name), "it is cut off")
    }
}
