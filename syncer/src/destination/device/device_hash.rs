//! The hash of a device's content, with the values of its subtrees, so that after some changes only those are read
//! again that the changes touch.

use std::{io, ops::Range, os::fd::AsFd as _};

use contract::ContentHash;

use crate::{
    hash::{ChainingValue, SubtreeHasher, hash_of_subtrees},
    measure::monitor::Monitor,
    sys::{block_device::Opened, cores::on_cores, file_part::Slice},
};

/// The shortest subtree, in bytes. A change reads one again.
const MIN_SUBTREE_BYTES: u64 = 256 << 10;

/// The most subtrees of a device, whose values take 32 MiB of memory.
const MAX_SUBTREES: u64 = 1 << 20;

/// The number of bytes that are read at once.
const BUFFER_BYTES: u64 = 1 << 20;

/// The hash of the content of a device, as far as a run syncs it.
#[derive(Debug)]
pub(crate) struct DeviceHash {
    len: u64,
    /// The length of every subtree but the last, in bytes.
    subtree: u64,
    values: Vec<ChainingValue>,
}

impl DeviceHash {
    /// Reads and hashes all of a device.
    ///
    /// # Errors
    /// `ECANCELED` when the monitor was told to stop.
    pub(crate) fn read(device: &Opened, monitor: &Monitor) -> io::Result<Self> {
        let len = device.len();
        let subtree = len.div_ceil(MAX_SUBTREES).next_power_of_two().max(MIN_SUBTREE_BYTES);
        let mut hash =
            Self { len, subtree, values: vec![Default::default(); len.div_ceil(subtree) as usize] };
        hash.read_again(device, std::slice::from_ref(&(0..len)), monitor)?;
        Ok(hash)
    }

    /// Reads the subtrees again that have a byte of `changed`, which are ranges in order.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn read_again(
        &mut self,
        device: &Opened,
        changed: &[Range<u64>],
        monitor: &Monitor,
    ) -> io::Result<()> {
        let subtrees = |range: &Range<u64>| range.start / self.subtree..range.end.div_ceil(self.subtree);
        let mut nths: Vec<u64> = changed.iter().flat_map(subtrees).collect();
        nths.dedup();
        let values = on_cores(nths.len(), 2, |nth| self.value(nths[nth], device, monitor));
        for (nth, value) in nths.into_iter().zip(values) {
            self.values[nth as usize] = value?;
        }
        Ok(())
    }

    fn value(&self, nth: u64, device: &Opened, monitor: &Monitor) -> io::Result<ChainingValue> {
        let start = nth * self.subtree;
        let end = (start + self.subtree).min(self.len);
        let mut hasher = SubtreeHasher::new(start);
        let mut buffer = vec![0; (end - start).min(BUFFER_BYTES) as usize];
        for at in (start..end).step_by(BUFFER_BYTES as usize) {
            monitor.check()?;
            let piece = &mut buffer[..(end - at).min(BUFFER_BYTES) as usize];
            Slice::all_of(device.as_fd()).read_exact_at(piece, at)?;
            hasher.update(piece);
        }
        Ok(hasher.finish(self.values.len() == 1))
    }

    /// Returns the hash of the content.
    pub(crate) fn hash(&self) -> ContentHash {
        ContentHash(hash_of_subtrees(&self.values))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::FileExt as _};

    use super::*;
    use crate::sys::root::TreeLocation;

    #[test]
    fn the_hash_is_that_of_all_bytes_and_changes_with_the_subtrees_that_are_read_again() {
        const SUBTREE: usize = MIN_SUBTREE_BYTES as usize;
        let monitor = Monitor::default();
        for len in [1, SUBTREE, SUBTREE + 1, 5 * SUBTREE - 7, 8 * SUBTREE] {
            let file = tempfile::NamedTempFile::new().unwrap();
            let mut content: Vec<u8> = (0..len).map(|at| ((at * 31) >> 7) as u8).collect();
            fs::write(file.path(), &content).unwrap();
            let opened = Opened::to_read(&TreeLocation::from(file.path())).unwrap();
            let mut hash = DeviceHash::read(&opened, &monitor).unwrap();
            assert_eq!(hash.hash().0, *blake3::hash(&content).as_bytes(), "{len}");
            content[len - 1] ^= 1;
            file.as_file().write_all_at(&content[len - 1..], len as u64 - 1).unwrap();
            let last = len as u64 - 1..len as u64;
            hash.read_again(&opened, std::slice::from_ref(&last), &monitor).unwrap();
            assert_eq!(hash.hash().0, *blake3::hash(&content).as_bytes(), "{len}");
            assert!(DeviceHash::read(&opened, &Monitor::canceled_at(1)).is_err());
        }
    }
}
