//! Offsets of chunks of which only the lengths are kept: one in so many is noted, the others are added up.

/// Chunks between two noted offsets: what finding an offset costs, against a fourth of a byte a chunk.
const STRIDE: usize = 32;

/// The noted offsets of a sequence of chunks, whose lengths the caller has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    noted: Vec<u64>,
}

impl Marks {
    pub(super) fn new() -> Self {
        Self { noted: vec![0] }
    }

    /// To be called after every chunk: there are `count` of them by now, of `bytes` in all.
    pub(super) fn push(&mut self, count: usize, bytes: u64) {
        if count.is_multiple_of(STRIDE) {
            self.noted.push(bytes);
        }
    }

    /// Bytes before chunk `index`, which may be the one after the last.
    pub(super) fn before(&self, index: usize, len: impl Fn(usize) -> u32) -> u64 {
        let noted = index / STRIDE;
        self.noted[noted] + (noted * STRIDE..index).map(|index| u64::from(len(index))).sum::<u64>()
    }
}
