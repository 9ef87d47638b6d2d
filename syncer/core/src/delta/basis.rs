//! A searchable list of the chunks of a basis.

use thiserror::Error;

use super::chunk_offsets::ChunkOffsets;
use super::chunk_sizes::ChunkSizes;
use super::list::ChunkList;
use super::short_name::ShortName;

/// Slots that a search visits before it gives up. Half of the slots are free, so honest names never need as many. Names
/// made to collide only make themselves unfindable.
const PROBES: usize = 64;
const FREE: u32 = u32::MAX;

/// Reports more chunks than a [`Basis`] can number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a basis of more than {} chunks", FREE)]
pub struct BasisFull;

/// The number of a chunk of a basis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ordinal(u32);

/// Finds the chunks of a file by hash. Takes about 21 bytes of memory for each.
#[derive(Debug)]
pub struct Basis {
    sizes: ChunkSizes,
    names: Vec<u64>,
    lens: Vec<u32>,
    marks: ChunkOffsets,
    /// Ordinals, each at or soon after the slot that its name selects.
    slots: Vec<u32>,
}

impl Basis {
    /// Builds the search table of a list. A chunk that occurs more than once is found at its first place.
    ///
    /// # Errors
    /// For 2^32 - 1 chunks or more.
    pub fn new(list: &ChunkList) -> Result<Self, BasisFull> {
        let mut basis = Self::empty(list.sizes());
        let mut bytes = 0;
        for chunk in list.chunks() {
            basis.names.push(chunk.name.number());
            basis.lens.push(chunk.len);
            bytes += u64::from(chunk.len);
            basis.marks.push(basis.names.len(), bytes);
        }
        basis.fill_slots()?;
        Ok(basis)
    }

    /// Makes a basis without chunks.
    #[must_use]
    pub fn empty(sizes: ChunkSizes) -> Self {
        Self { sizes, names: Vec::new(), lens: Vec::new(), marks: ChunkOffsets::new(), slots: Vec::new() }
    }

    /// Returns the sizes that the file was cut to.
    #[must_use]
    pub fn sizes(&self) -> ChunkSizes {
        self.sizes
    }

    /// Returns the chunk that the file begins with.
    #[must_use]
    pub fn first(&self) -> Option<Ordinal> {
        (!self.names.is_empty()).then_some(Ordinal(0))
    }

    /// Finds the first chunk with this hash and length.
    #[must_use]
    pub fn find(&self, hash: &blake3::Hash, len: u32) -> Option<Ordinal> {
        let name = ShortName::of(hash).number();
        self.probe(name)
            .map(|slot| self.slots[slot])
            .take_while(|&ordinal| ordinal != FREE)
            .find(|&ordinal| self.is(ordinal, name, len))
            .map(Ordinal)
    }

    /// Returns whether the chunk has this hash. The caller compares its length.
    #[must_use]
    pub fn is_named(&self, ordinal: Ordinal, hash: &blake3::Hash) -> bool {
        self.names[ordinal.index()] == ShortName::of(hash).number()
    }

    /// Returns the chunk's length in bytes.
    #[must_use]
    pub fn len_of(&self, ordinal: Ordinal) -> u32 {
        self.lens[ordinal.index()]
    }

    /// Returns the offset of the chunk's bytes in the file.
    #[must_use]
    pub fn offset(&self, ordinal: Ordinal) -> u64 {
        self.marks.before(ordinal.index(), |index| self.lens[index])
    }

    /// Returns the chunk after this one.
    #[must_use]
    pub fn next(&self, ordinal: Ordinal) -> Option<Ordinal> {
        let next = ordinal.0 + 1;
        ((next as usize) < self.names.len()).then_some(Ordinal(next))
    }

    fn is(&self, ordinal: u32, name: u64, len: u32) -> bool {
        self.names[ordinal as usize] == name && self.lens[ordinal as usize] == len
    }

    fn fill_slots(&mut self) -> Result<(), BasisFull> {
        let count = u32::try_from(self.names.len()).ok().filter(|&count| count < FREE).ok_or(BasisFull)?;
        self.slots = vec![FREE; 2 * self.names.len()];
        for ordinal in 0..count {
            let (name, len) = (self.names[ordinal as usize], self.lens[ordinal as usize]);
            let slot = self.probe(name).find(|&slot| {
                let taken = self.slots[slot];
                taken == FREE || self.is(taken, name, len)
            });
            if let Some(slot) = slot.filter(|&slot| self.slots[slot] == FREE) {
                self.slots[slot] = ordinal;
            }
        }
        Ok(())
    }

    /// Yields the slots where a name may be, in search order.
    fn probe(&self, name: u64) -> impl Iterator<Item = usize> + use<> {
        let count = self.slots.len();
        let first = ((u128::from(name) * count as u128) >> 64) as usize;
        (first..first + PROBES.min(count)).map(move |slot| if slot < count { slot } else { slot - count })
    }
}

impl Ordinal {
    fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::list;
    use super::super::testing::noise;
    use super::*;

    fn listed(bytes: &[u8]) -> ChunkList {
        list(bytes, ChunkSizes::FINE)
    }

    #[test]
    fn every_chunk_is_found_where_it_lies() {
        let bytes = noise(1, 700_000);
        let list = listed(&bytes);
        let basis = Basis::new(&list).unwrap();
        let (mut offset, mut expected) = (0, basis.first());
        for chunk in list.chunks() {
            let end = offset + chunk.len as usize;
            let found = basis.find(&blake3::hash(&bytes[offset..end]), chunk.len);
            assert_eq!(found, expected);
            assert_eq!(
                found.map(|found| (basis.offset(found), basis.len_of(found))),
                Some((offset as u64, chunk.len))
            );
            (offset, expected) = (end, found.and_then(|found| basis.next(found)));
        }
        assert_eq!(expected, None);
        assert_eq!(Basis::new(&listed(&[])).unwrap().first(), None);
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        let bytes = noise(1, 700_000);
        let list = listed(&bytes);
        let basis = Basis::new(&list).unwrap();
        let len = list.chunks()[0].len;
        let hash = blake3::hash(&bytes[..len as usize]);
        assert!(basis.find(&hash, len).is_some());
        assert_eq!(basis.find(&hash, len + 1), None);
        assert_eq!(basis.find(&blake3::hash(b"other"), 5), None);
        assert_eq!(Basis::empty(ChunkSizes::FINE).find(&hash, 5), None);
    }

    #[test]
    fn a_chunk_that_occurs_often_is_found_where_it_comes_first() {
        let list = listed(&[0; 50_000]);
        let len = list.chunks()[0].len;
        let found = Basis::new(&list).unwrap().find(&blake3::hash(&vec![0; len as usize]), len);
        assert_eq!(found, Some(Ordinal(0)));
    }

    /// Makes a list of `count` chunks with names that a hostile sink would choose: all select the same slot.
    fn colliding(count: u32) -> ChunkList {
        let mut bytes = Vec::new();
        for size in [1536_u32, 3072, 12_288] {
            bytes.extend_from_slice(&size.to_le_bytes());
        }
        for number in 0..count {
            bytes.extend_from_slice(&[&[0; 4], &number.to_be_bytes()[..], &1536_u16.to_le_bytes()].concat());
        }
        ChunkList::decode(&bytes).unwrap()
    }

    #[test]
    fn names_made_to_collide_take_no_more_than_a_few_looks_each() {
        let list = colliding(1 << 17);
        let basis = Basis::new(&list).unwrap();
        let taken = basis.slots.iter().filter(|&&slot| slot != FREE).count();
        assert_eq!(taken, PROBES, "the others are given up, not searched for");
    }

    #[test]
    fn a_chunk_takes_at_most_24_bytes_of_memory() {
        let list = list(&noise(5, 4 << 20), ChunkSizes::FINE);
        let basis = Basis::new(&list).unwrap();
        let bytes = 8 * basis.names.len() + 4 * basis.lens.len() + 4 * basis.slots.len();
        assert!(bytes <= 24 * list.chunks().len(), "{bytes} bytes for {} chunks", list.chunks().len());
    }
}
