//! The list of a store: its snapshots, its indexes, and what a prune has dropped. Each change writes the next list,
//! under a name that nobody else can have taken.

use std::collections::BTreeSet;

use syncer::snapshot::{Roots, SnapshotId};
use volferry_core::codec::{DecodeError, Reader, put_varint};

use super::index::ObjectName;

/// The version of the encoding.
const VERSION: u8 = 1;

/// The folder of the lists.
pub(crate) const LISTS: &str = "lists";

/// A list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StoreList {
    /// The objects that say where blobs are.
    pub indexes: Vec<ObjectName>,
    /// The packs that a prune removes or has removed: nothing may refer to them any more.
    pub dropped: BTreeSet<ObjectName>,
    /// The snapshots that a prune has removed.
    pub gone: BTreeSet<SnapshotId>,
    /// The snapshots, without the places of their root directories.
    pub roots: Roots,
}

impl StoreList {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_varint(&mut out, self.indexes.len() as u64);
        self.indexes.iter().for_each(|name| out.extend_from_slice(&name.0));
        put_varint(&mut out, self.dropped.len() as u64);
        self.dropped.iter().for_each(|name| out.extend_from_slice(&name.0));
        put_varint(&mut out, self.gone.len() as u64);
        self.gone.iter().for_each(|id| out.extend_from_slice(&id.0.to_le_bytes()));
        out.extend_from_slice(&self.roots.encode());
        out
    }

    /// Decodes a list. `Err(Ok(version))` is one of another version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Result<u32, DecodeError>> {
        let mut reader = Reader::new(bytes);
        match reader.byte().map_err(Err)? {
            VERSION => {}
            version => return Err(Ok(version.into())),
        }
        let mut read = || {
            let indexes =
                (0..count(&mut reader, 16)?).map(|_| name(&mut reader)).collect::<Result<_, _>>()?;
            let dropped =
                (0..count(&mut reader, 16)?).map(|_| name(&mut reader)).collect::<Result<_, _>>()?;
            let gone = (0..count(&mut reader, 8)?)
                .map(|_| Ok(SnapshotId(u64::from_le_bytes(reader.array()?))))
                .collect::<Result<_, DecodeError>>()?;
            let rest = reader.take(reader.remaining())?;
            let roots =
                Roots::decode(rest).map_err(|_| DecodeError::Invalid("it has no list of snapshots"))?;
            match roots.damages() {
                0 => Ok(Self { indexes, dropped, gone, roots }),
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

/// Returns the name of the list after so many changes. Newer ones come first in the order of names.
pub(crate) fn list_name(changes: u64) -> String {
    format!("{:016x}", u64::MAX - changes)
}

/// Returns the number of changes of the list of this name.
pub(crate) fn changes_of(name: &str) -> Option<u64> {
    let changes = u64::MAX - u64::from_str_radix(name, 16).ok()?;
    (list_name(changes) == name).then_some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_survives_the_trip_and_no_cut_is_one() {
        let list = StoreList {
            indexes: vec![ObjectName([1; 16]), ObjectName([2; 16])],
            dropped: [ObjectName([3; 16])].into(),
            gone: [SnapshotId(4)].into(),
            roots: Roots { changes: 5, collections: 6, ..Roots::default() },
        };
        let bytes = list.encode();
        assert_eq!(StoreList::decode(&bytes), Ok(list));
        for end in 0..bytes.len() {
            assert!(StoreList::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        let newer = [&[9], &bytes[1..]].concat();
        assert_eq!(StoreList::decode(&newer), Err(Ok(9)));
    }

    #[test]
    fn newer_lists_come_first() {
        for changes in [1, 2, 300, u64::MAX - 1] {
            assert_eq!(changes_of(&list_name(changes)), Some(changes));
            assert!(list_name(changes) < list_name(changes - 1));
        }
        for name in ["", "12", "FFFFFFFFFFFFFFFF", "+fffffffffffffff"] {
            assert_eq!(changes_of(name), None, "{name}");
        }
    }
}
