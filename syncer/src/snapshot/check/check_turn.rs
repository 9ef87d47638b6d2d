//! The part of a store that one check reads, together with the damage that earlier checks found and could not heal.

use std::fmt;

use crate::{
    hash::ContentId,
    snapshot::store::{KnownDamage, SnapshotError, Store, read_text_file, replace_file},
};

/// The file with the last part that was checked in turn.
const CHECKED: &str = "checked";
/// The longest content of this file, in bytes.
const MAX_CHECKED_BYTES: u64 = 64;

/// The nth of several parts of a store, counted from 1. All parts together cover everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreShare {
    /// The number of the part.
    pub nth: u64,
    /// The number of parts.
    pub of: u64,
}

impl Default for StoreShare {
    fn default() -> Self {
        Self { nth: 1, of: 1 }
    }
}

impl fmt::Display for StoreShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.nth, self.of)
    }
}

impl StoreShare {
    /// Reads `N/M`; `None` unless N is from 1 to M.
    pub fn parse(text: &str) -> Option<Self> {
        let (nth, of) = text.split_once('/')?;
        let share = Self { nth: nth.parse().ok()?, of: of.parse().ok()? };
        (1..=share.of).contains(&share.nth).then_some(share)
    }

    /// Returns the part of `of` that follows the last one that was checked in turn.
    pub fn after(last: Option<Self>, of: u64) -> Self {
        let before = last.filter(|last| last.of == of && last.nth < of);
        Self { nth: before.map_or(1, |last| last.nth + 1), of }
    }

    /// Returns whether the content belongs to this part.
    pub fn has(self, id: &ContentId) -> bool {
        let word = id.0.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
        word % self.of.max(1) == self.nth.saturating_sub(1)
    }
}

/// The selection of a store's contents that one check reads.
#[derive(Debug, Default)]
pub struct Turn {
    /// The part.
    pub part: StoreShare,
    is_in_turn: bool,
    known: KnownDamage,
}

impl Turn {
    /// Returns the turn of a part that the caller chose. Damage that is known from other parts is read again.
    ///
    /// # Errors
    /// If the file with the known damage cannot be read.
    pub fn of(store: &Store, part: StoreShare) -> Result<Self, SnapshotError> {
        Ok(Self { part, is_in_turn: false, known: KnownDamage::read(store)? })
    }

    /// Returns the turn of the next part of `of`: the one after the last that [`Self::note`] wrote down. Damage that is
    /// known from other parts is read again.
    ///
    /// # Errors
    /// If the records of the last part or of the known damage cannot be read. A damaged record counts as empty.
    pub fn next(store: &Store, of: u64) -> Result<Self, SnapshotError> {
        let last = read_text_file(store, CHECKED, MAX_CHECKED_BYTES)?;
        let last = last.strip_suffix('\n').and_then(StoreShare::parse);
        Ok(Self { is_in_turn: true, ..Self::of(store, StoreShare::after(last, of))? })
    }

    /// Returns whether this check reads the content.
    pub(crate) fn has(&self, id: &ContentId) -> bool {
        self.part.has(id) || self.known.contents.contains(id)
    }

    /// Records which objects are still damaged (`None` for a directory), so that publications do not reuse them, and
    /// that this part was checked, if it was its turn.
    ///
    /// # Errors
    /// If the store cannot be written to.
    pub fn note(
        &self,
        store: &Store,
        unhealed: impl Iterator<Item = Option<ContentId>>,
    ) -> Result<(), SnapshotError> {
        let mut damage = KnownDamage::default();
        for object in unhealed {
            match object {
                Some(content) => drop(damage.contents.insert(content)),
                // Contents of a directory that cannot be read were not reached.
                None => {
                    damage.in_directories = true;
                    damage.contents.extend(&self.known.contents);
                }
            }
        }
        // Another check may have found more meanwhile, in what this one did not read.
        let now = KnownDamage::read(store)?;
        damage.contents.extend(now.contents.iter().filter(|id| !self.has(id)));
        damage.in_directories |= now.in_directories && !self.known.in_directories;
        damage.write(store)?;
        if self.is_in_turn {
            replace_file(store, CHECKED, format!("{}\n", self.part).as_bytes())
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_one_of_several() {
        assert_eq!(StoreShare::parse("2/3"), Some(StoreShare { nth: 2, of: 3 }));
        for text in ["", "2", "0/3", "4/3", "0/0", "a/b", "1/3\n", "-1/3"] {
            assert_eq!(StoreShare::parse(text), None, "{text}");
        }
    }
}
