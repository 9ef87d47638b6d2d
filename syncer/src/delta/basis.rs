//! Where chunks can be had: the lists of one file or of a whole tree, to be searched by hash.

use thiserror::Error;

use super::chunk::ChunkSizes;
use super::diff::Extent;
use super::digest::Part;
use super::list::ChunkList;
use super::marks::Marks;
use super::name::{Name, ShortName};

/// Slots looked at before a name is given up. With half of the slots free, honest names never need as many; names made
/// to collide make themselves unfindable, and the search no slower.
const PROBES: usize = 64;
const FREE: u32 = u32::MAX;

/// More chunks, or more lists, than a [`Basis`] can number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a basis of more than {} chunks", FREE)]
pub struct BasisFull;

/// A chunk of a basis: its number, counted over all lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ordinal(u32);

/// Chunk lists, searchable. About 21 bytes of memory a chunk, and 24 a list.
#[derive(Debug)]
pub struct Basis {
    lists: Vec<Member>,
    names: Vec<u64>,
    lens: Vec<u32>,
    /// Over all lists, end to end.
    marks: Marks,
    /// Ordinals, each at or soon after the slot that its name points to.
    slots: Vec<u32>,
}

#[derive(Debug)]
struct Member {
    first: u32,
    sizes: ChunkSizes,
}

impl Basis {
    /// Takes the lists in; a chunk that occurs more than once is found where it comes first.
    ///
    /// # Errors
    /// When there are 2^32 - 1 chunks or more.
    pub fn new<'l>(lists: impl IntoIterator<Item = &'l ChunkList<ShortName>>) -> Result<Self, BasisFull> {
        let mut basis = Self::empty();
        let mut bytes = 0;
        for list in lists {
            let first = u32::try_from(basis.names.len()).map_err(|_| BasisFull)?;
            basis.lists.push(Member { first, sizes: list.sizes() });
            for chunk in list.chunks() {
                basis.names.push(chunk.name.number());
                basis.lens.push(chunk.len);
                bytes += u64::from(chunk.len);
                basis.marks.push(basis.names.len(), bytes);
            }
        }
        basis.fill_slots()?;
        Ok(basis)
    }

    /// A basis with nothing in it.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            lists: Vec::new(),
            names: Vec::new(),
            lens: Vec::new(),
            marks: Marks::new(),
            slots: Vec::new(),
        }
    }

    /// The first chunk with this hash and length.
    #[must_use]
    pub fn find(&self, hash: &blake3::Hash, len: u32) -> Option<Ordinal> {
        let name = ShortName::of(hash).number();
        self.probe(name)
            .map(|slot| self.slots[slot])
            .take_while(|&ordinal| ordinal != FREE)
            .find(|&ordinal| self.is(ordinal, name, len))
            .map(Ordinal)
    }

    /// Whether the chunk has this hash; its length is for the caller to compare.
    #[must_use]
    pub fn is_named(&self, ordinal: Ordinal, hash: &blake3::Hash) -> bool {
        self.names[ordinal.index()] == ShortName::of(hash).number()
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len_of(&self, ordinal: Ordinal) -> u32 {
        self.lens[ordinal.index()]
    }

    /// Where its bytes are.
    #[must_use]
    pub fn extent(&self, ordinal: Ordinal) -> Extent {
        let basis = self.list_of(ordinal);
        let start = self.bytes_before(self.lists[basis].first as usize);
        let offset = self.bytes_before(ordinal.index()) - start;
        Extent { basis: basis as u32, offset, len: u64::from(self.len_of(ordinal)) }
    }

    /// The chunk after it in the same file.
    #[must_use]
    pub fn next(&self, ordinal: Ordinal) -> Option<Ordinal> {
        let next = ordinal.0 + 1;
        (next < self.end(self.list_of(ordinal))).then_some(Ordinal(next))
    }

    /// The chunk that starts exactly `offset` bytes into a file.
    #[must_use]
    pub fn starting_at(&self, basis: u32, offset: u64) -> Option<Ordinal> {
        let list = usize::try_from(basis).ok().filter(|&list| list < self.lists.len())?;
        let chunks = self.lists[list].first as usize..self.end(list) as usize;
        let bytes = self.bytes_before(chunks.start).checked_add(offset)?;
        let index = self.marks.after(bytes, chunks.end, |index| self.lens[index])?;
        chunks.contains(&index).then_some(Ordinal(index as u32))
    }

    /// Whether it is all of its file.
    pub(super) fn part(&self, ordinal: Ordinal) -> Part {
        let list = self.list_of(ordinal);
        if self.end(list) - self.lists[list].first == 1 { Part::Whole } else { Part::OneOfSeveral }
    }

    /// The sizes that its file was cut to.
    #[must_use]
    pub fn sizes_of(&self, ordinal: Ordinal) -> ChunkSizes {
        self.lists[self.list_of(ordinal)].sizes
    }

    fn list_of(&self, ordinal: Ordinal) -> usize {
        self.lists.partition_point(|list| list.first <= ordinal.0) - 1
    }

    fn end(&self, list: usize) -> u32 {
        self.lists.get(list + 1).map_or(self.names.len() as u32, |next| next.first)
    }

    fn bytes_before(&self, index: usize) -> u64 {
        self.marks.before(index, |index| self.lens[index])
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

    /// The slots where a name may be, in the order to look.
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

    fn lists(files: &[Vec<u8>]) -> Vec<ChunkList<ShortName>> {
        files.iter().map(|bytes| list(bytes, ChunkSizes::FINE).0.short()).collect()
    }

    #[test]
    fn every_chunk_is_found_where_it_lies() {
        let files = [noise(1, 700_000), vec![], noise(2, 3), noise(3, 300_000)];
        let lists = lists(&files);
        let basis = Basis::new(&lists).unwrap();
        for (number, (bytes, list)) in files.iter().zip(&lists).enumerate() {
            let (mut offset, mut previous) = (0, None::<Ordinal>);
            for chunk in list.chunks() {
                let end = offset + chunk.len as usize;
                let found = basis.find(&blake3::hash(&bytes[offset..end]), chunk.len).unwrap();
                let len = u64::from(chunk.len);
                assert_eq!(basis.extent(found), Extent { basis: number as u32, offset: offset as u64, len });
                assert_eq!(basis.starting_at(number as u32, offset as u64), Some(found));
                assert_eq!(basis.starting_at(number as u32, offset as u64 + 1), None);
                assert_eq!(previous.map(|previous| basis.next(previous)), previous.map(|_| Some(found)));
                (offset, previous) = (end, Some(found));
            }
            assert_eq!(previous.and_then(|last| basis.next(last)), None);
            assert_eq!(basis.starting_at(number as u32, offset as u64), None);
        }
        assert_eq!(basis.starting_at(4, 0), None);
        assert_eq!(basis.starting_at(0, u64::MAX), None);
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        let lists = lists(&[noise(1, 700_000)]);
        let basis = Basis::new(&lists).unwrap();
        let hash = blake3::hash(&noise(1, 700_000)[..lists[0].chunks()[0].len as usize]);
        assert!(basis.find(&hash, lists[0].chunks()[0].len).is_some());
        assert_eq!(basis.find(&hash, lists[0].chunks()[0].len + 1), None);
        assert_eq!(basis.find(&blake3::hash(b"other"), 5), None);
        assert_eq!(Basis::empty().find(&hash, 5), None);
        assert_eq!(Basis::empty().starting_at(0, 0), None);
    }

    #[test]
    fn a_chunk_that_occurs_often_is_found_where_it_comes_first() {
        let bytes = noise(4, 50_000);
        let lists = lists(&[bytes.clone(), bytes.clone()]);
        let basis = Basis::new(&lists).unwrap();
        let len = lists[0].chunks()[0].len;
        let found = basis.find(&blake3::hash(&bytes[..len as usize]), len).unwrap();
        assert_eq!(basis.extent(found).basis, 0);
    }

    /// A list of `count` chunks with names as a hostile sink would choose them: all bound for the same slot.
    fn colliding(count: u32) -> ChunkList<ShortName> {
        let mut bytes = vec![8];
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
        let basis = Basis::new([&list]).unwrap();
        let taken = basis.slots.iter().filter(|&&slot| slot != FREE).count();
        assert_eq!(taken, PROBES, "the others are given up, not searched for");
    }

    #[test]
    fn a_chunk_takes_at_most_24_bytes_of_memory() {
        let list = list(&noise(5, 4 << 20), ChunkSizes::FINE).0.short();
        let basis = Basis::new([&list]).unwrap();
        let bytes = 8 * basis.names.len() + 4 * basis.lens.len() + 4 * basis.slots.len();
        assert!(bytes <= 24 * list.chunks().len(), "{bytes} bytes for {} chunks", list.chunks().len());
    }
}
