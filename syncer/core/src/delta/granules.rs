//! A file of the sink in granules: parts of equal size, compared at the offsets that they have.

use blake3::hazmat::ChainingValue;

use super::{checked::CheckedBlocks, short_name::ShortName};
use crate::{block_sizes::MAX_BLOCK_BYTES, hash::granule_value};

/// Names of all granules of a file, or of consecutive ones: the first bytes of each granule's part in the file's hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granules {
    file_len: u64,
    bytes: usize,
    start: u64,
    names: Vec<ShortName>,
    checked: Option<CheckedBlocks>,
}

impl Granules {
    /// Takes the names of a file of `file_len` bytes in granules of `bytes` bytes, a power of two up to a block, from
    /// the one at `start` on. `None` if they do not cover whole blocks, or go beyond the file.
    #[must_use]
    pub fn new(file_len: u64, bytes: u64, start: u64, names: Vec<ShortName>) -> Option<Self> {
        let fits = bytes.is_power_of_two() && (1024..=MAX_BLOCK_BYTES as u64).contains(&bytes);
        let most = file_len.checked_sub(start)?.div_ceil(bytes.max(1));
        let is_cut_right = |at: u64| at.is_multiple_of(MAX_BLOCK_BYTES as u64);
        let is_right = fits && is_cut_right(start) && names.len() as u64 <= most;
        let granules =
            is_right.then_some(Self { file_len, bytes: bytes as usize, start, names, checked: None })?;
        (is_cut_right(granules.end()) || granules.is_to_the_end()).then_some(granules)
    }

    /// Adds the blocks among these granules that were checked when they arrived, and have no names.
    #[must_use]
    pub fn with_checked(self, checked: CheckedBlocks) -> Self {
        Self { checked: Some(checked), ..self }
    }

    /// Returns the blocks that were checked when they arrived, if there are any.
    #[must_use]
    pub fn checked(&self) -> Option<&CheckedBlocks> {
        self.checked.as_ref()
    }

    /// Returns whether `more` are the next names of the same file.
    #[must_use]
    pub fn are_followed_by(&self, more: &Self) -> bool {
        let same = (more.file_len, more.bytes) == (self.file_len, self.bytes);
        same && more.start == self.end() && !self.is_to_the_end()
    }

    /// Returns the offset of the first granule.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the offset at which the last granule ends.
    #[must_use]
    pub fn end(&self) -> u64 {
        (self.start + self.names.len() as u64 * self.bytes as u64).min(self.file_len)
    }

    /// Returns whether these names reach the file's end.
    #[must_use]
    pub fn is_to_the_end(&self) -> bool {
        self.end() == self.file_len
    }

    /// Returns the file's length in bytes.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        self.file_len
    }

    /// Returns the length of a granule in bytes; the last one may be shorter.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the names, in the file's order.
    #[must_use]
    pub fn names(&self) -> &[ShortName] {
        &self.names
    }

    /// Returns the number of bytes at the start of `granule`, at `offset`, that the file has there: all, none, or the
    /// bytes before its end if it ends within the granule. `value` is the granule's own.
    #[must_use]
    pub fn kept(&self, granule: &[u8], offset: u64, value: &ChainingValue) -> usize {
        let nth = offset.checked_sub(self.start).map(|beyond| (beyond / self.bytes as u64) as usize);
        let Some(name) = nth.and_then(|nth| self.names.get(nth)) else { return 0 };
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

/// Returns the name of a granule with this value.
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
        Granules::new(file.len() as u64, BYTES as u64, 0, names.collect()).unwrap()
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
        assert!(Granules::new(BYTES as u64 + 1, BYTES as u64, 0, vec![name; 2]).is_some());
        assert!(Granules::new(0, BYTES as u64, 0, vec![]).is_some());
        for (len, bytes, start, names) in [
            (BYTES + 1, BYTES, 0, 1),
            (0, BYTES, 0, 1),
            (100, 100, 0, 1),
            (1 << 21, 1 << 21, 0, 1),
            (1, 0, 0, 1),
            (100 * BYTES, BYTES, 0, 65),
            (100 * BYTES, BYTES, BYTES, 99),
            (100 * BYTES, BYTES, 128 * BYTES, 0),
        ] {
            let granules = Granules::new(len as u64, bytes as u64, start as u64, vec![name; names]);
            assert!(granules.is_none(), "{len} {bytes} {start} {names}");
        }
    }

    #[test]
    fn names_come_in_parts_that_follow_on_each_other() {
        let file = noise(7, 2 * MAX_BLOCK_BYTES + 100);
        let all = granules(&file);
        let part = |blocks: std::ops::Range<usize>| {
            let of = |block: usize| (block * MAX_BLOCK_BYTES / BYTES).min(all.names.len());
            let names = all.names[of(blocks.start)..of(blocks.end)].to_vec();
            Granules::new(file.len() as u64, BYTES as u64, (blocks.start * MAX_BLOCK_BYTES) as u64, names)
                .unwrap()
        };
        let [first, second, last, rest] = [0..1, 1..2, 2..3, 1..3].map(part);
        assert!(
            first.are_followed_by(&second) && first.are_followed_by(&rest) && second.are_followed_by(&last)
        );
        assert!(
            !first.are_followed_by(&last) && !second.are_followed_by(&second) && !rest.are_followed_by(&last)
        );
        assert_eq!((first.end(), first.is_to_the_end()), (MAX_BLOCK_BYTES as u64, false));
        assert_eq!((last.end(), last.is_to_the_end()), (file.len() as u64, true));
        let (offset, tail) = (2 * MAX_BLOCK_BYTES as u64, &file[2 * MAX_BLOCK_BYTES..]);
        let kept = |part: &Granules| part.kept(tail, offset, &granule_value(tail, offset));
        assert_eq!([first, second, last, rest].map(|part| kept(&part)), [0, 0, 100, 100]);
    }
}
