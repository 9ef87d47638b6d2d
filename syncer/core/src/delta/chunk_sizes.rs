//! Decides how large the chunks of a file are, by its length: 4 KiB on average up to 16 MiB, and more in larger files.

use thiserror::Error;

use super::cut_filter::{FILTER_RATE, WINDOW};

const KIB: u32 = 1024;
const MIB: u32 = 1024 * KIB;

/// The longest possible chunk, in bytes. Each end must be able to hold it, and one frame to carry it.
pub const MAX_CHUNK: u32 = 3 * MIB;
/// Below this normal size the loose limit would be below the filter's own rate.
const LEAST_NORMAL: u32 = 2 * FILTER_RATE as u32;

/// Reports sizes that data cannot be cut to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("nothing is cut to chunks of {min}, {normal}, {max} bytes")]
pub struct ChunkSizesError {
    min: u32,
    normal: u32,
    max: u32,
}

/// The sizes that decide the cuts, in bytes: `min <= normal <= max`.
///
/// Other sizes cut the same bytes into other chunks, so lists are comparable only if their sizes are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkSizes {
    min: u32,
    normal: u32,
    max: u32,
}

impl ChunkSizes {
    /// The smallest chunks that are worth their names.
    pub const FINE: Self = Self::with_mean(4 * KIB);

    /// Checks sizes from outside.
    ///
    /// # Errors
    /// If they are out of order, or outside the limits of chunks.
    pub const fn new(min: u32, normal: u32, max: u32) -> Result<Self, ChunkSizesError> {
        let ordered = min < normal && normal < max;
        if ordered && min as usize >= WINDOW && normal >= LEAST_NORMAL && max <= MAX_CHUNK {
            Ok(Self { min, normal, max })
        } else {
            Err(ChunkSizesError { min, normal, max })
        }
    }

    /// Makes sizes whose chunks of random bytes have `mean` bytes on average.
    ///
    /// The three ratios are the best of those simulated in `doc/delta.md`. A lower minimum or a stricter first limit
    /// delays the return into step after an edit.
    pub(super) const fn with_mean(mean: u32) -> Self {
        Self { min: mean / 8 * 3, normal: mean / 4 * 3, max: mean * 3 }
    }

    /// Chooses the sizes for a file of `len` bytes.
    ///
    /// Larger files have larger chunks: the list stays below 1/400 of a file up to 16 MiB, below 1/5,000 of a larger
    /// one, and below 1 million names up to 1 TiB. There are few steps, because only files on the same step share
    /// chunks. `doc/delta.md` has what the fine step saves on real trees.
    #[must_use]
    pub const fn for_len(len: u64) -> Self {
        match len.saturating_sub(1) >> 20 {
            0..16 => Self::FINE,
            16..1_024 => Self::with_mean(64 * KIB),
            1_024..65_536 => Self::with_mean(256 * KIB),
            _ => Self::with_mean(MIB),
        }
    }

    /// Returns the minimum. Only a file's last chunk may be shorter.
    #[must_use]
    pub const fn min(self) -> u32 {
        self.min
    }

    /// Returns the length at which the limit changes from strict to loose.
    #[must_use]
    pub const fn normal(self) -> u32 {
        self.normal
    }

    /// Returns the maximum.
    #[must_use]
    pub const fn max(self) -> u32 {
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_files_have_larger_chunks_and_bounded_lists() {
        for (len, max, larger) in
            [(16_u64 << 20, 3 << 12, 3 << 16), (1 << 30, 3 << 16, 3 << 18), (64 << 30, 3 << 18, 3 << 20)]
        {
            assert_eq!(ChunkSizes::for_len(len).max(), max, "a file of {len} bytes");
            assert_eq!(ChunkSizes::for_len(len + 1).max(), larger, "a file of {len} bytes and one");
        }
        for len in (21..=40).map(|bits| 1_u64 << bits) {
            let mean = u64::from(ChunkSizes::for_len(len).normal()) * 4 / 3;
            assert!(len / mean <= 1 << 20, "a file of {len} bytes has {} names", len / mean);
        }
        assert!([0, 1, u64::MAX].map(ChunkSizes::for_len).iter().all(|sizes| sizes.max() <= MAX_CHUNK));
    }

    #[test]
    fn sizes_that_cannot_be_cut_to_are_refused() {
        for (min, normal, max) in [
            (0, 4096, 8192),
            (175, 4096, 8192),
            (5000, 4096, 8192),
            (1024, 9000, 8192),
            (1024, 2047, 8192),
            (5000, 5000, 5000),
        ] {
            assert_eq!(ChunkSizes::new(min, normal, max), Err(ChunkSizesError { min, normal, max }));
        }
        assert!(ChunkSizes::new(1024, 4096, MAX_CHUNK).is_ok());
        assert!(ChunkSizes::new(1024, 4096, MAX_CHUNK + 1).is_err());
    }
}
