//! Memory that is used again: what is given back to the system for each frame and got anew for the next costs page faults.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::wire::frame::{BLOCK_FRAME_BYTES, PACK_FRAME_BYTES};

/// What the allocator shall keep rather than give back to the system, at most.
const KEPT_BY_ALLOCATOR_BYTES: usize = 31 << 20;

/// Has the allocator keep freed memory for what is allocated next, such as the datagrams that the transport receives. glibc takes the
/// size of a mapping that is freed as the one to map from, up to 32 MiB, and twice that as what it keeps (`mallopt(3)`,
/// `M_MMAP_THRESHOLD`). With this and [`give_back`] the sink of one large file takes a tenth less CPU time, measured on loopback. To be
/// called once, at the start; another allocator makes nothing of it.
pub fn keep_freed_memory() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(KEPT_BY_ALLOCATOR_BYTES)));
}

/// How many of each size are kept: what both ends of a run in one process have in their hands at once.
const KEPT: usize = 16;

/// Of the sizes that frames have; others are the allocator's.
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

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Vec<u8> {
        self.lock().pop().unwrap_or_else(|| Vec::with_capacity(self.capacity))
    }

    fn keep(&self, buffer: Vec<u8>) {
        let mut spare = self.lock();
        if spare.len() < KEPT {
            spare.push(buffer);
        }
    }
}

/// The size that a buffer for `len` bytes has; `None` for one that is not worth keeping.
fn spare_for(len: usize) -> Option<&'static Spare> {
    match len {
        0..4096 => None,
        _ if len <= PACKS.capacity => Some(&PACKS),
        _ if len <= BLOCKS.capacity => Some(&BLOCKS),
        _ => None,
    }
}

/// An empty buffer with room for `len` bytes.
pub fn empty(len: usize) -> Vec<u8> {
    let mut buffer = spare_for(len).map_or_else(|| Vec::with_capacity(len), Spare::take);
    buffer.clear();
    buffer
}

/// A buffer of `len` bytes that may be anything which this process had in a frame: the caller overwrites each.
pub fn dirty(len: usize) -> Vec<u8> {
    let mut buffer = spare_for(len).map_or_else(Vec::new, Spare::take);
    buffer.resize(len, 0);
    buffer
}

/// Keeps the memory of a buffer that is done with.
pub fn give_back(buffer: Vec<u8>) {
    if let Some(spare) = [&PACKS, &BLOCKS].into_iter().find(|spare| spare.capacity == buffer.capacity()) {
        spare.keep(buffer);
    }
}

/// A frame whose memory is given back when nobody holds it any more.
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
        assert_eq!(spare.lock().len(), KEPT);
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
