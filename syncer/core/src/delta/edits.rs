//! Changes files in tests of this module.

use proptest::prelude::*;

use super::testing::noise;

/// A change to a file. Places are shares of its length, in 1/65536.
#[derive(Clone, Debug)]
pub(super) enum Edit {
    Overwrite(u16, usize),
    Insert(u16, usize),
    Remove(u16, usize),
    Append(usize),
    /// Repeats a range at another place.
    Repeat(u16, usize, u16),
}

impl Edit {
    pub(super) fn apply(&self, bytes: &mut Vec<u8>, seed: u64) {
        let place = |share: u16| bytes.len() * usize::from(share) / 65_536;
        let range = |share: u16, len: usize| place(share)..bytes.len().min(place(share) + len);
        match *self {
            Self::Overwrite(at, len) => {
                let range = range(at, len);
                let new = noise(seed, range.len());
                bytes[range].copy_from_slice(&new);
            }
            Self::Insert(at, len) => drop(bytes.splice(place(at)..place(at), noise(seed, len))),
            Self::Remove(at, len) => drop(bytes.drain(range(at, len))),
            Self::Append(len) => bytes.extend(noise(seed, len)),
            Self::Repeat(from, len, to) => {
                let repeated = bytes[range(from, len)].to_vec();
                let to = place(to);
                drop(bytes.splice(to..to, repeated));
            }
        }
    }
}

/// Generates edits of up to `most` bytes each.
pub(super) fn edits(most: usize) -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        (any::<u16>(), 1..most).prop_map(|(at, len)| Edit::Overwrite(at, len)),
        (any::<u16>(), 1..most).prop_map(|(at, len)| Edit::Insert(at, len)),
        (any::<u16>(), 1..most).prop_map(|(at, len)| Edit::Remove(at, len)),
        (1..most).prop_map(Edit::Append),
        (any::<u16>(), 1..most, any::<u16>()).prop_map(|(from, len, to)| Edit::Repeat(from, len, to)),
    ];
    prop::collection::vec(edit, 0..6)
}

pub(super) fn edited(old: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut new = old.to_vec();
    for (edit, seed) in edits.iter().zip(1_000..) {
        edit.apply(&mut new, seed);
    }
    new
}
