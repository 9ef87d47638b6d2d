//! Generates pseudo-random numbers that never change with a dependency's version, because the reference trees must be
//! identical on every machine and in every year, and a failed test must be repeatable from its message. xoshiro256++
//! seeded by splitmix64; fast, and not for secrets.

/// A stream of pseudo-random numbers, determined by its seed.
#[derive(Debug, Clone)]
pub struct Rng([u64; 4]);

impl Rng {
    /// Creates the stream of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self([(); 4].map(|()| splitmix(&mut state)))
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// Returns a number below `bound`, which must not be 0. The bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        // An f64 holds 53 bits exactly.
        ((self.next_u64() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// Returns true once in `n` calls on average.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of `items`, or `None` if there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        match items.len() {
            0 => None,
            len => Some(&items[self.below(len as u64) as usize]),
        }
    }

    /// Returns `len` bytes that do not compress.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }

    /// Fills `buffer` with random bytes.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        let mut words = buffer.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.next_u64().to_le_bytes());
        }
        let rest = words.into_remainder();
        let last = self.next_u64().to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that the generator's authors publish for the state 1, 2, 3, 4.
    #[test]
    fn the_stream_is_xoshiro256_plus_plus() {
        let mut rng = Rng([1, 2, 3, 4]);
        let first: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        assert_eq!(first, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn a_chance_comes_true_as_often_as_it_says() {
        let mut rng = Rng::new(7);
        let hits = (0..100_000).filter(|_| rng.chance(0.01)).count();
        assert!((900..1100).contains(&hits), "{hits} of 100000 at 1 %");
    }

    #[test]
    fn a_shorter_buffer_is_the_beginning_of_a_longer_one() {
        let mut whole = [0; 40];
        Rng::new(3).fill(&mut whole);
        for len in 0..whole.len() {
            let mut part = vec![0; len];
            Rng::new(3).fill(&mut part);
            assert_eq!(part, whole[..len]);
        }
    }
}
