//! Finds the offsets of chunks of which only lengths are stored: notes one offset in [`STRIDE`] chunks and adds up
//! lengths from there.

/// Chunks between two noted offsets. Finding an offset adds up at most this many lengths; notes take a fourth of a byte
/// a chunk.
const STRIDE: usize = 32;

/// The noted offsets of a sequence of chunks. The caller has their lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChunkOffsets {
    noted: Vec<u64>,
}

impl ChunkOffsets {
    pub(super) fn new() -> Self {
        Self { noted: vec![0] }
    }

    /// Notes the end of a chunk. Call it after every chunk: there are `count` chunks now, with `bytes` bytes in all.
    pub(super) fn push(&mut self, count: usize, bytes: u64) {
        if count.is_multiple_of(STRIDE) {
            self.noted.push(bytes);
        }
    }

    /// Returns the bytes before chunk `index`, which may be the one after the last.
    pub(super) fn before(&self, index: usize, len: impl Fn(usize) -> u32) -> u64 {
        let noted = index / STRIDE;
        self.noted[noted] + (noted * STRIDE..index).map(|index| u64::from(len(index))).sum::<u64>()
    }
}
