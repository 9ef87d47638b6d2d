//! Reuses the memory of frames. Returning it to the system and getting it back for each frame costs page faults.

use crate::wire::frame::{BLOCK_FRAME_BYTES, PACK_FRAME_BYTES};
use parking_lot::Mutex;

/// The largest number of bytes that the allocator keeps instead of returning them to the system.
const KEPT_BY_ALLOCATOR_BYTES: usize = 31 << 20;

/// Makes the allocator keep freed memory, so that the sink takes a tenth less CPU time for one large file. glibc takes
/// the size of a freed mapping as its new threshold, up to 32 MiB (`mallopt(3)`, `M_MMAP_THRESHOLD`). Call it once, at
/// the start; it does nothing for other allocators.
pub fn keep_freed_memory() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(KEPT_BY_ALLOCATOR_BYTES)));
}

/// Buffers that are kept of each size: as many as both ends of a run in one process use at once.
const KEPT: usize = 16;

/// Buffers of the sizes of frames; the allocator serves others.
static PACKS: Spare = Spare::new(PACK_FRAME_BYTES);
static BLOCKS: Spare = Spare::new(BLOCK_FRAME_BYTES);

/// Buffers of one capacity.
struct Spare {
    capacity: usize,
    spare: Mutex<Vec<Vec<u8>>>,
}

impl Spare {
    const fn new(capacity: usize) -> Self {
        Self { capacity, spare: Mutex::new(Vec::new()) }
    }

    fn take(&self) -> Vec<u8> {
        self.spare.lock().pop().unwrap_or_else(|| Vec::with_capacity(self.capacity))
    }

    fn keep(&self, buffer: Vec<u8>) {
        let mut spare = self.spare.lock();
        if spare.len() < KEPT {
            spare.push(buffer);
        }
    }
}

/// Returns the pool for buffers of `len` bytes; `None` for sizes that are not kept.
fn spare_for(len: usize) -> Option<&'static Spare> {
    match len {
        0..4096 => None,
        _ if len <= PACKS.capacity => Some(&PACKS),
        _ if len <= BLOCKS.capacity => Some(&BLOCKS),
        _ => None,
    }
}

/// Returns an empty buffer with room for `len` bytes.
pub fn empty(len: usize) -> Vec<u8> {
    let mut buffer = spare_for(len).map_or_else(|| Vec::with_capacity(len), Spare::take);
    buffer.clear();
    buffer
}

/// Returns a buffer of `len` bytes with old content of any frame of this process. The caller must overwrite every byte.
pub fn dirty(len: usize) -> Vec<u8> {
    let mut buffer = spare_for(len).map_or_else(Vec::new, Spare::take);
    buffer.resize(len, 0);
    buffer
}

/// Keeps the memory of a buffer that is no longer used.
pub fn give_back(buffer: Vec<u8>) {
    if let Some(spare) = [&PACKS, &BLOCKS].into_iter().find(|spare| spare.capacity == buffer.capacity()) {
        spare.keep(buffer);
    }
}

/// A frame whose memory is reused when its last owner drops it.
#[derive(Debug)]
pub struct Returning(Vec<u8>);

impl From<Vec<u8>> for Returning {
    fn from(buffer: Vec<u8>) -> Self {
        Self(buffer)
    }
}

impl AsRef<[u8]> for Returning {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        give_back(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_used_again_and_no_more_than_a_few_are_kept() {
        let spare = Spare::new(5000);
        (0..KEPT + 5).for_each(|n| spare.keep(vec![n as u8; 5000]));
        assert_eq!(spare.spare.lock().len(), KEPT);
        assert_eq!(spare.take()[0], KEPT as u8 - 1);
    }

    #[test]
    fn buffers_have_the_length_or_the_room_that_was_asked_for() {
        for len in
            [0, 1, 4096, PACK_FRAME_BYTES, PACK_FRAME_BYTES + 1, BLOCK_FRAME_BYTES, BLOCK_FRAME_BYTES + 1]
        {
            for _ in 0..2 {
                let (dirty, empty) = (dirty(len), empty(len));
                assert_eq!((dirty.len(), empty.len()), (len, 0));
                assert!(empty.capacity() >= len);
                [dirty, empty].into_iter().for_each(give_back);
            }
        }
    }
}
