//! Where each blob is: its pack, its offset and its lengths.

use std::{collections::HashMap, sync::Arc};

use volferry_core::codec::{DecodeError, Reader, put_varint};

use super::{
    blob::{BlobId, MAX_BLOB},
    object_names::{INDEXES, PACKS},
    seal::SEAL_BYTES,
};

/// Returns the name of a pack in the bucket.
pub(crate) fn pack_path(name: ObjectName) -> String {
    format!("{PACKS}/{}", name.text())
}

/// Returns the name of an index in the bucket.
pub(crate) fn index_path(name: ObjectName) -> String {
    format!("{INDEXES}/{}", name.text())
}

/// The random name of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectName(pub [u8; 16]);

impl ObjectName {
    /// Returns the name as it is in the bucket.
    pub(crate) fn text(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads the name of an object in the bucket.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_name = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_name.then(|| u128::from_str_radix(text, 16).ok()).flatten().map(|name| Self(name.to_be_bytes()))
    }
}

/// A blob in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackedBlob {
    pub id: BlobId,
    /// The offset of its sealed bytes.
    pub offset: u64,
    /// The number of its sealed bytes.
    pub len: u64,
    /// The number of its bytes before they were compressed and sealed.
    pub plain: u64,
}

/// What a pack has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PackIndex {
    pub name: ObjectName,
    pub blobs: Vec<PackedBlob>,
}

impl PackIndex {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.name.0);
        put_varint(out, self.blobs.len() as u64);
        for blob in &self.blobs {
            blob.id.put(out);
            [blob.offset, blob.len, blob.plain].iter().for_each(|number| put_varint(out, *number));
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let name = ObjectName(reader.array()?);
        let count = reader.length()?;
        if count > reader.remaining() / 36 {
            return Err(DecodeError::Truncated);
        }
        let mut blobs = Vec::with_capacity(count);
        for _ in 0..count {
            let id = BlobId::read(reader)?;
            let (offset, len, plain) = (reader.varint()?, reader.varint()?, reader.varint()?);
            let longest = MAX_BLOB + SEAL_BYTES as u64 + 1;
            if len > longest || plain > MAX_BLOB || offset > u64::MAX - longest {
                return Err(DecodeError::Overflow);
            }
            blobs.push(PackedBlob { id, offset, len, plain });
        }
        Ok(Self { name, blobs })
    }

    /// Decodes what several packs have.
    pub(crate) fn decode_all(bytes: &[u8]) -> Result<Vec<Self>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let mut packs = Vec::new();
        while !reader.is_empty() {
            packs.push(Self::read(&mut reader)?);
        }
        Ok(packs)
    }
}

/// The place of a blob, whatever the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PackOffset {
    pub pack: ObjectName,
    pub offset: u64,
}

/// The place of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlobPlace {
    /// The number of its pack in the index.
    pub pack: u32,
    pub offset: u64,
    pub len: u32,
    pub plain: u32,
}

impl BlobPlace {
    /// Returns what an index says of a blob in this place.
    pub(crate) fn packed(self, id: BlobId) -> PackedBlob {
        PackedBlob { id, offset: self.offset, len: self.len.into(), plain: self.plain.into() }
    }
}

/// The places of all blobs that are known.
#[derive(Debug, Default)]
pub(crate) struct BlobIndex {
    packs: Vec<ObjectName>,
    numbers: HashMap<ObjectName, u32>,
    blobs: HashMap<BlobId, BlobPlace>,
}

/// The index of a list that is newer than what a caller began with.
pub(crate) struct NewerIndex {
    /// The prunes before it.
    pub collections: u64,
    pub index: Arc<BlobIndex>,
}

impl BlobIndex {
    /// Adds blobs of a pack. A blob that is known already keeps its place.
    pub(crate) fn add(&mut self, pack: &PackIndex) {
        self.put(pack, |places, id, place| {
            places.entry(id).or_insert(place);
        });
    }

    /// Adds blobs of a pack. A blob that is known already gets this place.
    pub(crate) fn replace(&mut self, pack: &PackIndex) {
        self.put(pack, |places, id, place| {
            places.insert(id, place);
        });
    }

    fn put(&mut self, pack: &PackIndex, put: impl Fn(&mut HashMap<BlobId, BlobPlace>, BlobId, BlobPlace)) {
        let number = *self.numbers.entry(pack.name).or_insert(self.packs.len() as u32);
        if number as usize == self.packs.len() {
            self.packs.push(pack.name);
        }
        for PackedBlob { id, offset, len, plain } in &pack.blobs {
            let place = BlobPlace { pack: number, offset: *offset, len: *len as u32, plain: *plain as u32 };
            put(&mut self.blobs, *id, place);
        }
    }

    pub(crate) fn get(&self, id: &BlobId) -> Option<BlobPlace> {
        self.blobs.get(id).copied()
    }

    pub(crate) fn pack(&self, place: &BlobPlace) -> ObjectName {
        self.packs[place.pack as usize]
    }

    pub(crate) fn offset(&self, place: &BlobPlace) -> PackOffset {
        PackOffset { pack: self.pack(place), offset: place.offset }
    }

    pub(crate) fn packs(&self) -> &[ObjectName] {
        &self.packs
    }

    /// Removes some blobs; returns whether there were any.
    pub(crate) fn drop_blobs(&mut self, is_it: impl Fn(&BlobId, ObjectName, &BlobPlace) -> bool) -> bool {
        let (before, packs) = (self.blobs.len(), &self.packs);
        self.blobs.retain(|id, place| !is_it(id, packs[place.pack as usize], place));
        self.blobs.len() < before
    }

    /// Returns some blobs in the order of their places, which is the quickest to read them in.
    pub(crate) fn in_order(&self, is_of: impl Fn(&BlobId) -> bool) -> Vec<(BlobId, BlobPlace)> {
        let some = self.blobs.iter().filter(|(id, _)| is_of(id)).map(|(id, place)| (*id, *place));
        let mut some: Vec<_> = some.collect();
        some.sort_unstable_by_key(|(_, place)| (place.pack, place.offset));
        some
    }

    /// Yields all blobs with their places.
    pub(crate) fn blobs(&self) -> impl Iterator<Item = (&BlobId, &BlobPlace)> {
        self.blobs.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::BlobKind;

    #[test]
    fn an_index_survives_the_trip_and_no_cut_is_one() {
        let blob = |kind, byte| PackedBlob {
            id: BlobId { kind, hash: [byte; 32] },
            offset: 8,
            len: 300,
            plain: 1000,
        };
        let one = PackIndex { name: ObjectName([9; 16]), blobs: vec![blob(BlobKind::Data, 1)] };
        let other = PackIndex {
            name: ObjectName([8; 16]),
            blobs: vec![blob(BlobKind::Folder, 1), blob(BlobKind::Data, 1), blob(BlobKind::Pieces, 2)],
        };
        let mut bytes = Vec::new();
        one.encode(&mut bytes);
        let first = bytes.len();
        other.encode(&mut bytes);
        assert_eq!(PackIndex::decode_all(&bytes).unwrap(), [one.clone(), other.clone()]);
        for end in (1..bytes.len()).filter(|end| *end != first) {
            assert!(PackIndex::decode_all(&bytes[..end]).is_err(), "cut at {end}");
        }
        let mut index = BlobIndex::default();
        index.add(&one);
        index.add(&other);
        let data = BlobId { kind: BlobKind::Data, hash: [1; 32] };
        assert_eq!(index.get(&data).map(|place| index.pack(&place)), Some(one.name));
        assert_eq!(index.packs(), [one.name, other.name]);
    }

    #[test]
    fn a_name_is_what_it_is_written_as() {
        let name = ObjectName([0xab; 16]);
        assert_eq!(ObjectName::parse(&name.text()), Some(name));
        for text in ["", "ab", &"AB".repeat(16), &"zz".repeat(16), &"+b".repeat(16)] {
            assert_eq!(ObjectName::parse(text), None);
        }
    }
}
