//! Finds the positions at which a chunk may end: those whose preceding bytes pass a hash.
//!
//! A position is judged in two steps, so that nearly all of the work is done 64 positions at a time.
//!
//! 1. The *filter* adds up twelve 16-bit words, taken at fixed distances over the [`WINDOW`] bytes before the position
//!    and weighted by odd constants, modulo 2^16. One position in [`FILTER_RATE`] passes. Unlike a Gear hash, it needs
//!    no table, and no position waits for the one before it.
//! 2. The *judgement* of those that pass is a 64-bit hash of the [`JUDGED`] bytes before the position. Comparing it
//!    with a limit sets the sizes of chunks, so any average is possible.
//!
//! Both depend on nothing but those bytes, so a position passes wherever the bytes are found. The words are
//! spread out, not adjacent: in text made from a template (logs, JSON, SQL dumps) a short run of bytes is often
//! the template's own, the same in every line, and then all lines pass or none does. `doc/delta.md` has figures.
//!
//! Both ends must cut alike, so another constant or distance needs another protocol. The tests pin all of them.

use fearless_simd::{Level, dispatch, i16x32, prelude::*, u8x64};

/// Bytes before a position that decide whether it passes the filter.
pub(super) const WINDOW: usize = 176;
/// Bytes before a position that its judgement is a hash of.
pub(super) const JUDGED: usize = 64;
/// One position in this many passes the filter, for data without repetition.
pub(super) const FILTER_RATE: u64 = 1024;

/// The positions checked in one step, and the distance between the three groups of words.
const STEP: usize = 64;
/// Where the words of a group start, in bytes from the group's start.
const WORDS: [usize; 4] = [0, 11, 26, 45];
/// Bytes that the groups of one step's positions span.
const SPAN: usize = WORDS[3] + STEP + 1;
/// Weights of: a pair's second word, a group's second pair, the second group, the third after the second.
const WEIGHTS: [i16; 4] =
    [0x9E37_u16.cast_signed(), 0x85EB_u16.cast_signed(), 0xB54D_u16.cast_signed(), 0x27D5_u16.cast_signed()];
/// A sum below this passes. It is at the negative end, so that a run of zeros, whose sum is 0, does not pass.
const BELOW: i16 = i16::MIN + 64;
/// Keys of the judgement: the first digits of pi after the point, in base 2^64.
const KEYS: [u64; 9] = [
    0x243F_6A88_85A3_08D3,
    0x1319_8A2E_0370_7344,
    0xA409_3822_299F_31D0,
    0x082E_FA98_EC4E_6C89,
    0x4528_21E6_38D0_1377,
    0xBE54_66CF_34E9_0C6C,
    0xC0AC_29B7_C97C_50DD,
    0x3F84_D5B5_B547_0917,
    0x9216_D5D9_8979_FB1B,
];

/// Finds the first position in `from..=bytes.len()` that passes the filter and that `accept` accepts.
///
/// A position is a count of bytes, judged by the bytes before it; `from` must be at least [`WINDOW`]. `accept` gets
/// positions in ascending order, each with its judgement.
pub(super) fn find(bytes: &[u8], from: usize, mut accept: impl FnMut(usize, u64) -> bool) -> Option<usize> {
    find_at(Level::new(), bytes, from, &mut accept)
}

fn find_at(
    level: Level,
    bytes: &[u8],
    from: usize,
    accept: &mut impl FnMut(usize, u64) -> bool,
) -> Option<usize> {
    debug_assert!(from >= WINDOW, "a position is judged by the {WINDOW} bytes before it");
    let mut judged = |at: usize| accept(at, judge(bytes, at));
    match dispatch!(level, simd => steps(simd, bytes, from, &mut judged)) {
        Scan::Found(at) => Some(at),
        Scan::Rest(rest) => (rest..=bytes.len()).find(|&at| passes(bytes, at) && judged(at)),
    }
}

/// The result of the vector loop.
enum Scan {
    Found(usize),
    /// The first position that was not checked: less than a whole step is left.
    Rest(usize),
}

#[inline(always)]
fn steps<S: Simd>(simd: S, bytes: &[u8], from: usize, accept: &mut impl FnMut(usize) -> bool) -> Scan {
    let mut at = from;
    loop {
        let mut hits = match next_hits(simd, bytes, at) {
            Ok(hits) => hits,
            Err(rest) => return Scan::Rest(rest),
        };
        at = hits.step + STEP;
        if let Some(found) = hits.find(|&at| accept(at)) {
            return Scan::Found(found);
        }
    }
}

/// Finds the first step from `at` on in which a position passes; `Err` is the first position after the last whole step.
///
/// The loop calls nothing, because a call would move all its values from registers to memory and back at each step.
#[inline(always)]
fn next_hits<S: Simd>(simd: S, bytes: &[u8], mut at: usize) -> Result<Hits, usize> {
    if !has_step(bytes, at) {
        return Err(at);
    }
    let below = i16x32::splat(simd, BELOW);
    let mut oldest = groups(simd, bytes, at - WINDOW);
    let mut older = groups(simd, bytes, at - WINDOW + STEP);
    while has_step(bytes, at) {
        let newest = groups(simd, bytes, at - WINDOW + 2 * STEP);
        let even = newest.even + (older.even + oldest.even * WEIGHTS[2]) * WEIGHTS[3];
        let odd = newest.odd + (older.odd + oldest.odd * WEIGHTS[2]) * WEIGHTS[3];
        if even.min(odd).simd_lt(below).any_true() {
            let (even, odd) = (even.simd_lt(below).to_bitmask(), odd.simd_lt(below).to_bitmask());
            return Ok(Hits { step: at, even, odd });
        }
        (oldest, older) = (older, newest);
        at += STEP;
    }
    Err(at)
}

/// Reads words as little-endian, as vectors do on little-endian machines only.
#[inline(always)]
fn has_step(bytes: &[u8], at: usize) -> bool {
    cfg!(target_endian = "little") && at + STEP <= bytes.len() + 1
}

/// The groups that start at the 32 even, and at the 32 odd offsets of a step.
struct Groups<S: Simd> {
    even: i16x32<S>,
    odd: i16x32<S>,
}

/// Loads the groups of the step at `start`.
#[inline(always)]
fn groups<S: Simd>(simd: S, bytes: &[u8], start: usize) -> Groups<S> {
    let bytes = &bytes[start..start + SPAN];
    Groups { even: group(simd, &bytes[..SPAN - 1]), odd: group(simd, &bytes[1..]) }
}

#[inline(always)]
fn group<S: Simd>(simd: S, bytes: &[u8]) -> i16x32<S> {
    let [a, b, c, d] = WORDS.map(|offset| offset..offset + STEP);
    let first = words(simd, &bytes[a]) + words(simd, &bytes[b]) * WEIGHTS[0];
    let second = words(simd, &bytes[c]) + words(simd, &bytes[d]) * WEIGHTS[0];
    first + second * WEIGHTS[1]
}

#[inline(always)]
fn words<S: Simd>(simd: S, bytes: &[u8]) -> i16x32<S> {
    u8x64::from_slice(simd, bytes).bitcast()
}

/// Yields the positions of a step that passed, in ascending order.
struct Hits {
    /// The first position of the step.
    step: usize,
    even: u64,
    odd: u64,
}

impl Iterator for Hits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.even | self.odd == 0 {
            return None;
        }
        let (even, odd) = (2 * self.even.trailing_zeros(), 2 * self.odd.trailing_zeros() + 1);
        let lane = if even < odd { &mut self.even } else { &mut self.odd };
        *lane &= *lane - 1;
        Some(self.step + even.min(odd) as usize)
    }
}

/// Applies the filter to one position. Vectors must agree with this definition.
fn passes(bytes: &[u8], at: usize) -> bool {
    let word = |offset: usize| i16::from_le_bytes([bytes[offset], bytes[offset + 1]]);
    let pair = |a: usize, b: usize| word(a).wrapping_add(word(b).wrapping_mul(WEIGHTS[0]));
    let group = |start: usize| {
        let [a, b, c, d] = WORDS.map(|offset| start + offset);
        pair(a, b).wrapping_add(pair(c, d).wrapping_mul(WEIGHTS[1]))
    };
    let [oldest, older, newest] = [0, STEP, 2 * STEP].map(|offset| group(at - WINDOW + offset));
    newest.wrapping_add(older.wrapping_add(oldest.wrapping_mul(WEIGHTS[2])).wrapping_mul(WEIGHTS[3])) < BELOW
}

/// Hashes the [`JUDGED`] bytes before `at`, evenly over 0..2^64.
fn judge(bytes: &[u8], at: usize) -> u64 {
    let (words, _) = bytes[at - JUDGED..at].as_chunks::<8>();
    let keyed = |i: usize| u64::from_le_bytes(words[i]) ^ KEYS[i];
    let [a, b, c, d] = [0, 2, 4, 6].map(|i| fold(keyed(i), keyed(i + 1)));
    fold(a.wrapping_add(b), c.wrapping_add(d) ^ KEYS[8])
}

/// Combines both halves of the 128-bit product.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::super::testing::{noise, text};
    use super::*;

    /// Returns every position that passes, with its judgement, as this level of vectors computes it.
    fn all(level: Level, bytes: &[u8], from: usize) -> Vec<(usize, u64)> {
        let mut all = Vec::new();
        let found = find_at(level, bytes, from, &mut |at, judgement| {
            all.push((at, judgement));
            false
        });
        assert_eq!(found, None, "nothing was accepted");
        all
    }

    fn by_definition(bytes: &[u8], from: usize) -> Vec<(usize, u64)> {
        (from..=bytes.len()).filter(|&at| passes(bytes, at)).map(|at| (at, judge(bytes, at))).collect()
    }

    fn levels() -> Vec<Level> {
        let best = Level::new();
        #[cfg(target_arch = "x86_64")]
        let others = [
            best.as_avx2().map(Level::Avx2),
            best.as_sse4_2().map(Level::Sse4_2),
            best.as_sse2().map(Level::Sse2),
        ];
        #[cfg(not(target_arch = "x86_64"))]
        let others = [];
        [Some(best)].into_iter().chain(others).flatten().collect()
    }

    #[test]
    fn every_vector_width_agrees_with_the_definition() {
        let template = b"{\"level\":\"info\",\"status\":200}\n".repeat(900);
        for bytes in [noise(1, 40_000), text(2, 40_000), template, vec![7; 5_000]] {
            for len in
                [WINDOW, WINDOW + 1, WINDOW + STEP - 2, WINDOW + STEP - 1, WINDOW + STEP, 3_333, bytes.len()]
            {
                for from in [WINDOW, WINDOW + 1, WINDOW + 63].into_iter().filter(|&from| from <= len) {
                    let expected = by_definition(&bytes[..len], from);
                    for level in levels() {
                        assert_eq!(all(level, &bytes[..len], from), expected, "{level:?}, {from}..={len}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_first_accepted_position_is_returned_and_none_is_offered_after_it() {
        let bytes = noise(3, 30_000);
        let positions = by_definition(&bytes, WINDOW);
        for (nth, &(at, _)) in positions.iter().enumerate() {
            let mut offered = 0;
            let found = find(&bytes, WINDOW, |position, _| {
                offered += 1;
                position == at
            });
            assert_eq!((found, offered), (Some(at), nth + 1));
        }
    }

    #[test]
    fn one_position_in_1024_passes_and_its_judgement_is_even() {
        let bytes = noise(4, 8 << 20);
        let found = all(Level::new(), &bytes, WINDOW);
        let expected = bytes.len() as u64 / FILTER_RATE;
        assert!(found.len().abs_diff(expected as usize) < 400, "{} of {expected}", found.len());
        let low = found.iter().filter(|(_, judgement)| *judgement < u64::MAX / 4).count();
        assert!((4 * low).abs_diff(found.len()) < 400, "{low} of {} in the lowest quarter", found.len());
    }

    #[test]
    fn a_position_passes_wherever_its_window_is_found() {
        let bytes = noise(5, 20_000);
        for (at, judgement) in by_definition(&bytes, WINDOW) {
            for before in [0, 1, 13, 64, 100] {
                let moved = [&noise(6, before)[..], &bytes[at - WINDOW..at]].concat();
                let (last, again) = *all(Level::new(), &moved, WINDOW).last().unwrap();
                assert_eq!((last, again), (moved.len(), judgement));
            }
        }
    }

    #[test]
    fn runs_of_one_byte_do_not_pass() {
        for byte in 0..=255 {
            assert_eq!(all(Level::new(), &[byte; 1024], WINDOW), [], "byte {byte}");
        }
    }

    /// Frozen: both ends must cut alike.
    #[test]
    fn the_positions_of_known_bytes_never_change() {
        let found = all(Level::new(), &noise(7, 5_000), WINDOW);
        assert_eq!(found, GOLDEN);
    }

    const GOLDEN: [(usize, u64); 3] =
        [(294, 7624385307484085852), (2595, 4989088699154765233), (4785, 4261286651043522148)];
}
