//! *Features* show that files have bytes in common, wherever those are: hashes of a few bytes at positions that the
//! content chooses.
//!
//! A sample of short spans is enough to get some of a file's features. If two files share a few MiB, samples of a
//! sixteenth of each have features in common. Files of the same length are sampled at the same offsets, so far smaller
//! samples find copies.

use super::cut_filter::{FILTER_RATE, WINDOW, find};

/// Data has one feature in this many bytes, on average.
pub const RATE: u64 = 16 << 10;

/// Bytes that are read at one place: some eight features.
pub const SPAN_BYTES: u64 = 128 << 10;

/// Features that are kept of one span. Repetitive data may have many more.
pub const MAX_SPAN_FEATURES: usize = 64;

/// Appends the features of a span.
pub fn add_features(span: &[u8], features: &mut Vec<u64>) {
    const LIMIT: u64 = u64::MAX / RATE * FILTER_RATE;
    let most = features.len() + MAX_SPAN_FEATURES;
    if span.len() >= WINDOW {
        find(span, WINDOW, |_, judgement| {
            if judgement < LIMIT {
                features.push(judgement);
            }
            features.len() == most
        });
    }
}

/// How densely files are sampled: one span for every `every` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    every: u64,
}

impl Sampling {
    /// Samples one span for every `every` bytes. `None` below the length of a span, where bytes would be read twice.
    #[must_use]
    pub fn new(every: u64) -> Option<Self> {
        (every >= SPAN_BYTES).then_some(Self { every })
    }

    /// Samples as many spans of `total` bytes as `budget` bytes allow.
    #[must_use]
    pub fn within(budget: u64, total: u64) -> Self {
        Self { every: SPAN_BYTES.saturating_mul(total.div_ceil(budget.max(1)).max(1)) }
    }

    /// Returns the number of bytes for each span.
    #[must_use]
    pub fn every(self) -> u64 {
        self.every
    }

    /// Returns the ratio of all bytes to sampled bytes.
    #[must_use]
    pub fn thinning(self) -> u64 {
        self.every / SPAN_BYTES
    }

    /// Returns the largest number of spans of a file of `len` bytes.
    #[must_use]
    pub fn spans(self, len: u64) -> u64 {
        len.div_ceil(self.every)
    }

    /// Yields the offsets of a file's spans, each at random within its own `every` bytes; a short file may have none.
    /// Spans at equal distances would meet in all places of two files or in none.
    pub fn starts(self, len: u64) -> impl Iterator<Item = u64> {
        let room = self.every - SPAN_BYTES + 1;
        let start = move |nth: u64| (nth * self.every).saturating_add(scatter(len, nth) % room);
        (0..self.spans(len)).map(start).filter(move |start| *start < len)
    }
}

/// Computes the `nth` output of SplitMix64 (Steele, Lea and Flood, 2014) with this seed.
fn scatter(seed: u64, nth: u64) -> u64 {
    let mut z = seed.wrapping_add(nth.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::testing::{noise, text};
    use super::*;

    fn features(bytes: &[u8]) -> Vec<u64> {
        let mut features = Vec::new();
        add_features(bytes, &mut features);
        features
    }

    fn sampled(bytes: &[u8], sampling: Sampling) -> HashSet<u64> {
        let starts = sampling.starts(bytes.len() as u64).map(|start| start as usize);
        starts.flat_map(|at| features(&bytes[at..bytes.len().min(at + SPAN_BYTES as usize)])).collect()
    }

    #[test]
    fn data_has_about_as_many_features_as_the_rate_says() {
        for bytes in [noise(3, 8 << 20), text(3, 8 << 20)] {
            let count: usize = bytes.chunks(SPAN_BYTES as usize).map(|span| features(span).len()).sum();
            let expected = bytes.len() / RATE as usize;
            assert!((expected * 3 / 4..expected * 5 / 4).contains(&count), "{count} of {expected}");
        }
    }

    #[test]
    fn what_repeats_itself_has_few_features_and_what_is_short_or_zeros_none() {
        let again: Vec<u8> = noise(1, 700).into_iter().cycle().take(SPAN_BYTES as usize).collect();
        assert!(features(&again).len() <= MAX_SPAN_FEATURES);
        assert_eq!(features(&vec![0; SPAN_BYTES as usize]), [0; 0]);
        for len in [0, 1, WINDOW - 1, WINDOW] {
            assert_eq!(features(&vec![0; len]), [0; 0]);
        }
    }

    #[test]
    fn samples_of_files_that_share_bytes_share_features_and_others_none() {
        let shared = noise(7, 24 << 20);
        let one = [&noise(1, 5_000_001)[..], &shared, &noise(2, 9_000_000)].concat();
        let other = [&noise(3, 11_111_111)[..], &shared].concat();
        let stranger = noise(4, 30 << 20);
        for thinning in [1, 4] {
            let sampling = Sampling::within(1 << 20, thinning << 20);
            let [one, other, stranger] = [&one, &other, &stranger].map(|bytes| sampled(bytes, sampling));
            let expected = (shared.len() as u64 / RATE / thinning / thinning) as usize;
            let common = one.intersection(&other).count();
            assert!(common > expected / 3, "{common} of {expected}");
            assert_eq!(stranger.intersection(&one).count(), 0);
        }
    }

    #[test]
    fn samples_of_copies_are_the_same() {
        let (one, thin) = (noise(7, 24 << 20), Sampling::within(1 << 20, 24 << 20));
        let features = sampled(&one, thin);
        assert!((32..128).contains(&features.len()), "{}", features.len());
        assert_eq!(sampled(&one.clone(), thin), features);
    }

    #[test]
    fn spans_do_not_overlap_and_are_no_more_than_the_budget() {
        for (budget, total) in [(1 << 20, 1 << 20), (1 << 20, 100 << 20), (64 << 20, 3), (0, 10 << 20)] {
            let sampling = Sampling::within(budget, total);
            assert!(sampling.thinning() >= 1 && sampling.every() == sampling.thinning() * SPAN_BYTES);
            assert!(sampling.spans(total) * SPAN_BYTES <= budget + SPAN_BYTES);
            let starts: Vec<_> = sampling.starts(total).collect();
            assert!(
                starts.len() as u64 <= sampling.spans(total) && starts.iter().all(|start| *start < total)
            );
            assert!(starts.windows(2).all(|pair| pair[0] + SPAN_BYTES <= pair[1]), "{starts:?}");
        }
        assert_eq!(Sampling::new(SPAN_BYTES - 1), None);
        assert_eq!(Sampling::within(1 << 30, 1 << 30).starts(1 << 30).nth(3), Some(3 * SPAN_BYTES));
        assert_eq!(Sampling::new(u64::MAX).map(|all| all.spans(u64::MAX)), Some(1));
    }
}
