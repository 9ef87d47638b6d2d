//! The list of a store: its snapshots, its indexes, and what a prune has dropped. Each change writes the next list,
//! under a name that nobody else can have taken.

use std::collections::BTreeSet;

use syncer::snapshot::{Roots, SnapshotId};
use volferry_core::codec::{DecodeError, Reader, put_varint};

use super::{
    object_names::LISTS,
    pack_index::{ObjectName, PackOffset},
};

/// The versions of the encoding: without damaged blobs, which older programs read as well, and with some.
const VERSION: u8 = 1;
const WITH_DAMAGED: u8 = 2;

/// A list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StoreList {
    /// The objects that say where blobs are.
    pub indexes: Vec<ObjectName>,
    /// The packs that a prune removes or has removed: nothing may refer to them any more.
    pub dropped: BTreeSet<ObjectName>,
    /// The snapshots that a prune has removed.
    pub gone: BTreeSet<SnapshotId>,
    /// The blobs that a verify has found damaged where they are.
    pub damaged: BTreeSet<PackOffset>,
    /// The snapshots, without the places of their root directories.
    pub roots: Roots,
}

impl StoreList {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![if self.damaged.is_empty() { VERSION } else { WITH_DAMAGED }];
        put_varint(&mut out, self.indexes.len() as u64);
        self.indexes.iter().for_each(|name| out.extend_from_slice(&name.0));
        put_varint(&mut out, self.dropped.len() as u64);
        self.dropped.iter().for_each(|name| out.extend_from_slice(&name.0));
        put_varint(&mut out, self.gone.len() as u64);
        self.gone.iter().for_each(|id| out.extend_from_slice(&id.0.to_le_bytes()));
        if !self.damaged.is_empty() {
            put_varint(&mut out, self.damaged.len() as u64);
            for PackOffset { pack, offset } in &self.damaged {
                out.extend_from_slice(&pack.0);
                put_varint(&mut out, *offset);
            }
        }
        out.extend_from_slice(&self.roots.encode());
        out
    }

    /// Decodes a list. `Err(Ok(version))` is one of another version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Result<u32, DecodeError>> {
        let mut reader = Reader::new(bytes);
        let version = reader.byte().map_err(Err)?;
        if ![VERSION, WITH_DAMAGED].contains(&version) {
            return Err(Ok(version.into()));
        }
        let mut read = || {
            let indexes =
                (0..count(&mut reader, 16)?).map(|_| name(&mut reader)).collect::<Result<_, _>>()?;
            let dropped =
                (0..count(&mut reader, 16)?).map(|_| name(&mut reader)).collect::<Result<_, _>>()?;
            let gone = (0..count(&mut reader, 8)?)
                .map(|_| Ok(SnapshotId(u64::from_le_bytes(reader.array()?))))
                .collect::<Result<_, DecodeError>>()?;
            let damaged = if version == VERSION { 0 } else { count(&mut reader, 17)? };
            let damaged = (0..damaged).map(|_| place(&mut reader)).collect::<Result<_, _>>()?;
            let rest = reader.take(reader.remaining())?;
            let roots =
                Roots::decode(rest).map_err(|_| DecodeError::Invalid("it has no list of snapshots"))?;
            match roots.damages() {
                0 => Ok(Self { indexes, dropped, gone, damaged, roots }),
                _ => Err(DecodeError::Invalid("its list of snapshots is of another version")),
            }
        };
        read().map_err(Err)
    }
}

fn count(reader: &mut Reader<'_>, bytes: usize) -> Result<usize, DecodeError> {
    let count = reader.length()?;
    if count > reader.remaining() / bytes { Err(DecodeError::Truncated) } else { Ok(count) }
}

fn name(reader: &mut Reader<'_>) -> Result<ObjectName, DecodeError> {
    Ok(ObjectName(reader.array()?))
}

fn place(reader: &mut Reader<'_>) -> Result<PackOffset, DecodeError> {
    Ok(PackOffset { pack: name(reader)?, offset: reader.varint()? })
}

/// Returns the name of the list after so many changes. Newer ones come first in the order of names.
pub(crate) fn list_name(changes: u64) -> String {
    format!("{:016x}", u64::MAX - changes)
}

/// Returns the name of that list in the bucket.
pub(crate) fn list_path(changes: u64) -> String {
    format!("{LISTS}/{}", list_name(changes))
}

/// Returns the number of changes of the list of this name; `None` also for the last number, which none can follow.
pub(crate) fn changes_of(name: &str) -> Option<u64> {
    let changes = u64::MAX - u64::from_str_radix(name, 16).ok()?;
    (list_name(changes) == name && changes < u64::MAX).then_some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a list as the first programs wrote it.
    fn sample() -> StoreList {
        StoreList {
            indexes: vec![ObjectName([1; 16]), ObjectName([2; 16])],
            dropped: [ObjectName([3; 16])].into(),
            gone: [SnapshotId(4)].into(),
            damaged: BTreeSet::new(),
            roots: Roots { changes: 5, collections: 6, ..Roots::default() },
        }
    }

    #[test]
    fn a_list_survives_the_trip_and_no_cut_is_one() {
        let damaged = [7, 300].map(|offset| PackOffset { pack: ObjectName([8; 16]), offset }).into();
        for list in [sample(), StoreList { damaged, ..sample() }] {
            let bytes = list.encode();
            assert_eq!(StoreList::decode(&bytes), Ok(list));
            for end in 0..bytes.len() {
                assert!(StoreList::decode(&bytes[..end]).is_err(), "cut at {end}");
            }
            let newer = [&[9], &bytes[1..]].concat();
            assert_eq!(StoreList::decode(&newer), Err(Ok(9)));
        }
    }

    #[test]
    fn the_bytes_of_a_list_stay_as_they_are() {
        let (one, two, three, four) = ([1; 16], [2; 16], [3; 16], 4_u64.to_le_bytes());
        // The version, two indexes, a pack that was dropped, and a snapshot that was.
        let before = [&[1, 2][..], &one, &two, &[1], &three, &[1], &four].concat();
        let roots = sample().roots.encode();
        assert_eq!(sample().encode(), [&before[..], &roots].concat());
        let damaged = [PackOffset { pack: ObjectName([8; 16]), offset: 300 }].into();
        // Another version, and a blob at 300 in a pack.
        let with = [&[2][..], &before[1..], &[1], &[8; 16], &[0xac, 0x02], &roots].concat();
        assert_eq!(StoreList { damaged, ..sample() }.encode(), with);
    }

    #[test]
    fn newer_lists_come_first() {
        for changes in [1, 2, 300, u64::MAX - 1] {
            assert_eq!(changes_of(&list_name(changes)), Some(changes));
            assert!(list_name(changes) < list_name(changes - 1));
        }
        for name in ["", "12", "FFFFFFFFFFFFFFFF", "+fffffffffffffff", "0000000000000000"] {
            assert_eq!(changes_of(name), None, "{name}");
        }
    }
}
