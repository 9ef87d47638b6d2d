//! Cuts bytes at positions that their content chooses, so that equal bytes are cut equally wherever they are, and an
//! insertion moves later cuts without changing them.
//!
//! Cuts follow FastCDC: none before a minimum, by a strict limit up to a normal size, by a loose one after it, and one
//! at the maximum. In the last quarter before the maximum, any position that passes the [`cut_filter`] is a cut, so
//! that data with few candidates is still cut by content.
//!
//! A cut depends only on the bytes since the cut before. So a chunk that is found again ends in a cut again, whatever
//! follows it.
//!
//! [`cut_filter`]: super::cut_filter

use super::{
    chunk_sizes::ChunkSizes,
    cut_filter::{FILTER_RATE, find},
};

/// Finds the ends of chunks, one after the other.
///
/// The caller offers the bytes since the last cut in one slice, and again with more bytes if there were too few. Cuts
/// do not depend on how the bytes arrive. Two chunkers that share one cut share all later ones.
#[derive(Clone, Debug)]
pub struct Chunker {
    sizes: ChunkSizes,
    /// Judgements below these limits are cuts before and after the normal size.
    strict: u64,
    loose: u64,
    /// Positions since the last cut that have been checked.
    looked: usize,
}

impl Chunker {
    /// Starts at the start of a file, or at any cut.
    #[must_use]
    pub fn new(sizes: ChunkSizes) -> Self {
        let strict = limit(2 * u64::from(sizes.normal()));
        let loose = limit(u64::from(sizes.normal()) / 2);
        Self { sizes, strict, loose, looked: 0 }
    }

    /// Returns the sizes that it cuts to.
    #[must_use]
    pub fn sizes(&self) -> ChunkSizes {
        self.sizes
    }

    /// Returns the length of the chunk at the start of `bytes`, and moves to its end.
    ///
    /// `bytes` begin at the last cut; with `last`, the file ends with them. `None` requests more bytes, at most
    /// [`ChunkSizes::max`]. With `last`, only an empty slice returns `None`.
    pub fn next_cut(&mut self, bytes: &[u8], last: bool) -> Option<usize> {
        let max = self.sizes.max() as usize;
        let seen = bytes.len().min(max);
        let cut = self.find_cut(&bytes[..seen]).or_else(|| (seen == max || last && seen > 0).then_some(seen));
        self.looked = if cut.is_some() { 0 } else { seen };
        cut
    }

    fn find_cut(&self, bytes: &[u8]) -> Option<usize> {
        let from = (self.looked + 1).max(self.sizes.min() as usize);
        if from > bytes.len() {
            return None;
        }
        let normal = self.sizes.normal() as usize;
        let any = normal.max((self.sizes.max() - self.sizes.max() / 4) as usize);
        find(bytes, from, |at, judgement| match at {
            at if at < normal => judgement < self.strict,
            at if at < any => judgement < self.loose,
            _ => true,
        })
    }
}

/// Computes the limit below which one position in `rate` is judged, including the filter's rate.
fn limit(rate: u64) -> u64 {
    u64::MAX / rate * FILTER_RATE
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::super::testing::{noise, text};
    use super::*;

    const STEPS: [ChunkSizes; 3] =
        [ChunkSizes::FINE, ChunkSizes::with_mean(64 << 10), ChunkSizes::with_mean(256 << 10)];

    fn split(mut bytes: &[u8], sizes: ChunkSizes) -> Vec<&[u8]> {
        let mut chunker = Chunker::new(sizes);
        let mut chunks = Vec::new();
        while let Some(len) = chunker.next_cut(bytes, true) {
            let (chunk, rest) = bytes.split_at(len);
            chunks.push(chunk);
            bytes = rest;
        }
        chunks
    }

    fn lens(bytes: &[u8], sizes: ChunkSizes) -> Vec<usize> {
        split(bytes, sizes).iter().map(|chunk| chunk.len()).collect()
    }

    /// Returns the lengths of chunks when the bytes arrive in pieces.
    fn lens_in_pieces(
        bytes: &[u8],
        sizes: ChunkSizes,
        pieces: impl IntoIterator<Item = usize>,
    ) -> Vec<usize> {
        let (mut chunker, mut lens) = (Chunker::new(sizes), Vec::new());
        let (mut start, mut end) = (0, 0);
        for piece in pieces.into_iter().chain([bytes.len()]) {
            end = bytes.len().min(end + piece);
            while let Some(len) = chunker.next_cut(&bytes[start..end], end == bytes.len()) {
                lens.push(len);
                start += len;
            }
        }
        lens
    }

    /// Counts the bytes in chunks of `new` that are not among those of `old`.
    fn unknown(old: &[u8], new: &[u8], sizes: ChunkSizes) -> usize {
        let old = split(old, sizes).into_iter().collect::<HashSet<_>>();
        split(new, sizes).into_iter().filter(|chunk| !old.contains(chunk)).map(<[u8]>::len).sum()
    }

    #[test]
    fn the_cuts_of_known_bytes_never_change() {
        let bytes = [noise(1, 3 << 20), text(2, 3 << 20), vec![0; 1 << 20]].concat();
        let golden = STEPS.map(|sizes| {
            let lens = lens(&bytes, sizes);
            let digest =
                blake3::hash(&lens.iter().flat_map(|&len| (len as u32).to_le_bytes()).collect::<Vec<_>>());
            (lens.len(), lens[0], lens[1], digest.to_hex().to_string())
        });
        assert_eq!(
            golden,
            GOLDEN.map(|(chunks, first, second, digest)| (chunks, first, second, digest.to_owned()))
        );
    }

    const GOLDEN: [(usize, usize, usize, &str); 3] = [
        (1645, 5577, 8014, "5e041b185085a9bb0e1699dfc04e0fdd0762b165d43f6c874acdffc00e13bea5"),
        (110, 49469, 78069, "8326c231da8d518994b7c8f0ac2d503731f6c0d0515710a76f97e23b04b21525"),
        (26, 301102, 183956, "92a94ed79923874787895721e5c5219cc4c4e4c9902f2f6b2229aacdb7891f19"),
    ];

    #[test]
    fn chunks_are_as_long_as_asked_for() {
        for (sizes, mean) in STEPS.into_iter().zip([4 << 10, 64 << 10, 256 << 10]) {
            for bytes in [noise(3, 96 * mean), text(4, 48 * mean)] {
                let lens = lens(&bytes, sizes);
                let found = bytes.len() / lens.len();
                assert!(found.abs_diff(mean) < mean / 5, "chunks of {found} bytes for {mean}");
                let (last, others) = lens.split_last().unwrap();
                assert!(others.iter().all(|&len| (sizes.min()..=sizes.max()).contains(&(len as u32))));
                assert!(*last <= sizes.max() as usize);
                assert_eq!(lens.iter().sum::<usize>(), bytes.len());
            }
        }
    }

    #[test]
    fn bytes_without_any_place_to_cut_are_cut_at_the_maximum() {
        let sizes = ChunkSizes::FINE;
        let max = sizes.max() as usize;
        assert_eq!(lens(&vec![0; 2 * max + 5], sizes), [max, max, 5]);
    }

    #[test]
    fn an_insertion_costs_about_a_chunk_and_what_was_inserted() {
        let old = noise(6, 4 << 20);
        let sizes = ChunkSizes::with_mean(64 << 10);
        let new =
            old.chunks(500_000).zip(100..).flat_map(|(part, seed)| [part, &noise(seed, 10_000)].concat());
        let cost = unknown(&old, &new.collect::<Vec<_>>(), sizes) / old.len().div_ceil(500_000);
        assert!(cost < 10_000 + (128 << 10), "{cost} bytes for an insertion of 10,000");
    }

    #[test]
    fn repeated_records_are_cut_by_content_too() {
        let record = noise(8, 3_000);
        let old = record.repeat(2_000);
        let new = [b"one line more", &old[..]].concat();
        for sizes in STEPS {
            let cost = unknown(&old, &new, sizes);
            assert!(cost <= 4 * sizes.max() as usize, "{cost} bytes with {sizes:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn the_cuts_are_the_same_however_the_bytes_arrive(
            seed in 0_u64..8,
            len in 0_usize..200_000,
            pieces in prop::collection::vec(1_usize..20_000, 0..60),
        ) {
            let bytes = if seed % 2 == 0 { noise(seed, len) } else { text(seed, len) };
            let sizes = ChunkSizes::FINE;
            prop_assert_eq!(lens_in_pieces(&bytes, sizes, pieces), lens(&bytes, sizes));
        }

        #[test]
        fn a_chunker_that_starts_at_a_cut_finds_the_later_ones(seed in 0_u64..1_000, skipped in 0_usize..40) {
            let bytes = noise(seed, 200_000);
            let all = lens(&bytes, ChunkSizes::FINE);
            let skipped = skipped.min(all.len());
            let start = all[..skipped].iter().sum::<usize>();
            prop_assert_eq!(&lens(&bytes[start..], ChunkSizes::FINE), &all[skipped..]);
        }
    }
}
