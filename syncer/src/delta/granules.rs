//! A file that the sink has, in parts of equal size end to end: what is compared where bytes are expected at the place that they had.

use blake3::hazmat::ChainingValue;

use super::name::{Name as _, ShortName};
use crate::hash::{BLOCK_BYTES, granule_value};

/// The names of a file's granules: the first bytes of what each contributes to the file's hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granules {
    file_len: u64,
    bytes: usize,
    names: Vec<ShortName>,
}

impl Granules {
    /// Takes the names of a file of `file_len` bytes in granules of `bytes` bytes, a power of two up to a block. `None` if there are not as
    /// many names as the file has granules.
    #[must_use]
    pub fn new(file_len: u64, bytes: u64, names: Vec<ShortName>) -> Option<Self> {
        let fits = bytes.is_power_of_two() && (1024..=BLOCK_BYTES as u64).contains(&bytes);
        let complete = fits && file_len.div_ceil(bytes) == names.len() as u64;
        complete.then_some(Self { file_len, bytes: bytes as usize, names })
    }

    /// The file's length in bytes.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        self.file_len
    }

    /// The length of a granule in bytes; the last one may be shorter.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The names, in the file's order.
    #[must_use]
    pub fn names(&self) -> &[ShortName] {
        &self.names
    }

    /// How many of the first bytes of `granule`, which is at `offset`, the file has there: all, none, or, where it ends within the granule,
    /// those before its end. `value` is the granule's own.
    #[must_use]
    pub fn kept(&self, granule: &[u8], offset: u64, value: &ChainingValue) -> usize {
        let Some(name) = self.names.get((offset / self.bytes as u64) as usize) else { return 0 };
        let there = usize::try_from(self.file_len - offset).map_or(self.bytes, |rest| rest.min(self.bytes));
        match granule.get(..there) {
            Some(all) if all.len() == granule.len() && *name == named(value) => there,
            Some(first) if first.len() < granule.len() && *name == named(&granule_value(first, offset)) => {
                there
            }
            _ => 0,
        }
    }
}

/// The name of a granule with this value.
#[must_use]
pub fn named(value: &ChainingValue) -> ShortName {
    ShortName::of(&blake3::Hash::from_bytes(*value))
}

#[cfg(test)]
mod tests {
    use super::super::testing::noise;
    use super::*;

    const BYTES: usize = 16 << 10;

    fn granules(file: &[u8]) -> Granules {
        let names = file
            .chunks(BYTES)
            .enumerate()
            .map(|(i, granule)| named(&granule_value(granule, (i * BYTES) as u64)));
        Granules::new(file.len() as u64, BYTES as u64, names.collect()).unwrap()
    }

    fn kept(old: &[u8], new: &[u8]) -> Vec<usize> {
        let granules = granules(old);
        let each = new.chunks(BYTES).enumerate().map(|(i, granule)| {
            let offset = (i * BYTES) as u64;
            granules.kept(granule, offset, &granule_value(granule, offset))
        });
        each.collect()
    }

    #[test]
    fn a_changed_byte_costs_its_granule() {
        let old = noise(1, 3 * BYTES + 100);
        let mut new = old.clone();
        assert_eq!(kept(&old, &new), [BYTES, BYTES, BYTES, 100]);
        new[BYTES + 5] ^= 1;
        new[3 * BYTES + 99] ^= 1;
        assert_eq!(kept(&old, &new), [BYTES, 0, BYTES, 0]);
    }

    #[test]
    fn what_was_appended_costs_itself() {
        let new = noise(2, 3 * BYTES + 100);
        assert_eq!(kept(&new[..BYTES + 7], &new), [BYTES, 7, 0, 0]);
        assert_eq!(kept(&new[..BYTES], &new), [BYTES, 0, 0, 0]);
        assert_eq!(kept(&[], &new), [0, 0, 0, 0]);
    }

    #[test]
    fn a_file_that_was_cut_keeps_whole_granules() {
        let old = noise(3, 2 * BYTES + 100);
        assert_eq!(kept(&old, &old[..BYTES + 50]), [BYTES, 0]);
    }

    #[test]
    fn the_same_bytes_at_another_place_are_not_kept() {
        let granule = noise(4, BYTES);
        assert_eq!(
            kept(&[granule.clone(), noise(5, BYTES)].concat(), &[noise(6, BYTES), granule].concat()),
            [0, 0]
        );
    }

    #[test]
    fn names_that_do_not_fit_their_file_are_refused() {
        let name = named(&[0; 32]);
        assert!(Granules::new(BYTES as u64 + 1, BYTES as u64, vec![name; 2]).is_some());
        for (len, bytes, names) in
            [(BYTES + 1, BYTES, 1), (0, BYTES, 1), (100, 100, 1), (1 << 21, 1 << 21, 1), (1, 0, 1)]
        {
            assert!(
                Granules::new(len as u64, bytes as u64, vec![name; names]).is_none(),
                "{len} {bytes} {names}"
            );
        }
    }
}
