//! A directory stored as its differences from another one, so that a change of a few entries does not take the space of
//! all entries.
//!
//! `syncer/doc/snapshots.md` draws the bytes.

use std::cmp::Ordering::{Equal, Less};

use super::folder::{
    Folder, FolderBuilder, FolderRow, NotFolder, ObjectRef, VERSION as WHOLE, checked, with_check,
};
use crate::codec::{DecodeError, Reader, put_bytes, put_varint};

/// The version of this encoding.
pub(crate) const VERSION: u8 = 2;

/// A directory as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredFolder {
    /// As a whole.
    Whole(Folder),
    /// As the differences from another one.
    Changes(FolderChanges),
}

impl StoredFolder {
    /// Decodes a directory of any version.
    ///
    /// # Errors
    /// If the bytes are not the encoding of a directory, or of a version that is not known.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotFolder> {
        match bytes.first() {
            Some(&VERSION) => Ok(Self::Changes(FolderChanges::decode(bytes)?)),
            _ => Folder::decode(bytes).map(Self::Whole),
        }
    }
}

/// The differences of a directory from its base, another directory that is stored as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderChanges {
    /// The place of the base.
    pub base: ObjectRef,
    /// The indexes in the base's listing of the entries that are removed or replaced, in ascending order.
    pub left_out: Vec<u32>,
    /// The new entries and the replacements. Its listing is complete if that of the directory is.
    pub added: Folder,
}

impl FolderChanges {
    /// Computes the differences of `folder` from `base`, which is stored at `place`.
    pub fn between(place: ObjectRef, base: &Folder, folder: &Folder) -> Self {
        let mut left_out = Vec::new();
        let mut added = FolderBuilder::default();
        let mut old = (0..).zip(base.rows()).peekable();
        for row in folder.rows() {
            let order = |(_, old): &(u32, FolderRow<'_>)| old.entry.name.cmp(row.entry.name);
            let mut next = old.peek().map(order);
            while next == Some(Less) {
                left_out.extend(old.next().map(|(index, _)| index));
                next = old.peek().map(order);
            }
            match old.next_if(|_| next == Some(Equal)) {
                Some((_, old)) if old == row => continue,
                Some((index, _)) => left_out.push(index),
                None => {}
            }
            added.push(&row);
        }
        left_out.extend(old.map(|(index, _)| index));
        Self { base: place, left_out, added: added.finish(folder.listing.is_complete()) }
    }

    /// Applies the differences to the base, and returns the directory.
    ///
    /// # Errors
    /// If the base lacks an entry that is left out, or has one that is added.
    pub fn apply(&self, base: &Folder) -> Result<Folder, DecodeError> {
        let mut folder = FolderBuilder::default();
        let mut left_out = self.left_out.iter().peekable();
        let mut added = self.added.rows().peekable();
        for (index, row) in (0..).zip(base.rows()) {
            if left_out.next_if(|out| **out == index).is_some() {
                continue;
            }
            while let Some(new) = added.next_if(|new| new.entry.name < row.entry.name) {
                folder.push(&new);
            }
            if added.peek().is_some_and(|new| new.entry.name == row.entry.name) {
                return Err(DecodeError::Invalid("it adds an entry that its base has"));
            }
            folder.push(&row);
        }
        added.for_each(|new| folder.push(&new));
        match left_out.next() {
            None => Ok(folder.finish(self.added.listing.is_complete())),
            Some(_) => Err(DecodeError::Invalid("it leaves out an entry that its base has not")),
        }
    }

    /// Encodes the changes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.base.pack.to_le_bytes());
        put_varint(&mut out, self.base.offset);
        put_varint(&mut out, u64::from(self.base.len));
        put_varint(&mut out, self.left_out.len() as u64);
        let mut next = 0;
        for index in &self.left_out {
            put_varint(&mut out, u64::from(index - next));
            next = index + 1;
        }
        put_bytes(&mut out, &self.added.encode().bytes);
        with_check(out)
    }

    fn decode(bytes: &[u8]) -> Result<Self, NotFolder> {
        let mut reader = Reader::new(checked(bytes)?);
        match reader.byte()? {
            VERSION => {}
            version => return Err(NotFolder::Version(version)),
        }
        let pack = u64::from_le_bytes(reader.array()?);
        let base = ObjectRef { pack, offset: reader.varint()?, len: reader.varint32()? };
        let count = reader.length()?;
        if count > reader.remaining() {
            return Err(DecodeError::Truncated.into());
        }
        let (mut left_out, mut next) = (Vec::with_capacity(count), 0_u32);
        for _ in 0..count {
            let index = next.checked_add(reader.varint32()?).ok_or(DecodeError::Overflow)?;
            left_out.push(index);
            next = index.checked_add(1).ok_or(DecodeError::Overflow)?;
        }
        let added = reader.bytes(usize::MAX)?;
        reader.finish()?;
        match added.first() {
            Some(&WHOLE) => Ok(Self { base, left_out, added: Folder::decode(added)? }),
            _ => Err(DecodeError::Invalid("what it adds is not of version 1").into()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{
        entry::{Entry, Kind},
        snapshot::store::folder::tests::sample,
    };

    /// Returns the sample with one entry changed, one removed and one added; and the changes.
    pub(crate) fn changed_sample() -> (Folder, FolderChanges) {
        let base = sample();
        let mut changed = FolderBuilder::default();
        for mut row in base.rows() {
            match row.entry.name {
                b"empty" => continue,
                b"pipe" => {
                    let name = b"new";
                    changed.push(&FolderRow { entry: Entry { name, ..row.entry }, ..row.clone() });
                }
                b"small" => row.entry.kind = Kind::File { size: 8 },
                _ => {}
            }
            changed.push(&row);
        }
        let changed = changed.finish(true);
        let place = ObjectRef { pack: 9, offset: 1000, len: 270 };
        let changes = FolderChanges::between(place, &base, &changed);
        (changed, changes)
    }

    #[test]
    fn a_directory_comes_back_from_its_base_and_what_differs() {
        let (changed, changes) = changed_sample();
        assert_eq!(changes.left_out, [1, 4]);
        let names: Vec<_> = changes.added.rows().map(|row| row.entry.name.to_vec()).collect();
        assert_eq!(names, [b"new".to_vec(), b"small".to_vec()]);
        let bytes = changes.encode();
        assert_eq!(StoredFolder::decode(&bytes), Ok(StoredFolder::Changes(changes.clone())));
        let again = changes.apply(&sample()).unwrap();
        assert_eq!((again.id(), &again), (changed.id(), &changed));
        let nothing = FolderChanges::between(changes.base, &changed, &changed);
        assert_eq!((nothing.left_out.len(), nothing.added.listing.len()), (0, 0));
        assert_eq!(nothing.apply(&changed), Ok(changed));
    }

    #[test]
    fn a_directory_that_lists_not_all_stays_one() {
        let mut incomplete = FolderBuilder::default();
        sample().rows().for_each(|row| incomplete.push(&row));
        let incomplete = incomplete.finish(false);
        let changes =
            FolderChanges::between(ObjectRef { pack: 1, offset: 8, len: 1 }, &sample(), &incomplete);
        assert_eq!(changes.apply(&sample()), Ok(incomplete.clone()));
        let back = FolderChanges::between(changes.base, &incomplete, &sample());
        assert_eq!(back.apply(&incomplete), Ok(sample()));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let bytes = changed_sample().1.encode();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(StoredFolder::decode(&damaged).is_err(), "bit {bit}");
        }
        for end in 0..bytes.len() {
            assert!(StoredFolder::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    /// Gives damaged bytes a correct checksum, as a hostile volume would.
    #[test]
    fn hostile_changes_never_panic() {
        let bytes = changed_sample().1.encode();
        let body = checked(&bytes).unwrap();
        for bit in 0..body.len() * 8 {
            let mut damaged = body.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if let Ok(StoredFolder::Changes(changes)) = StoredFolder::decode(&with_check(damaged))
                && let Ok(folder) = changes.apply(&sample())
            {
                assert_eq!(folder.contents.len(), folder.stamps.len());
                assert_eq!(folder.children.len(), folder.listing.dirs() as usize);
            }
        }
    }

    #[test]
    fn a_base_with_other_entries_is_refused() {
        let (changed, changes) = changed_sample();
        assert!(changes.apply(&changed).is_err(), "it has what is added");
        assert!(changes.apply(&Folder::default()).is_err(), "it has not what is left out");
    }
}
