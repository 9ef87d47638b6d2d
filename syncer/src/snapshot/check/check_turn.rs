//! The part of a store that one check reads, together with the damage that earlier checks found and could not heal.

use super::{
    known_damage::{KnownDamage, read_text, replace_text},
    scrub::StoreShare,
    snapshot_error::SnapshotError,
    store::Store,
};
use crate::hash::ContentId;

/// The file with the last part that was checked in turn.
const CHECKED: &str = "checked";
/// The longest content of this file, in bytes.
const MAX_CHECKED_BYTES: u64 = 64;

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
        let last = read_text(store, CHECKED, MAX_CHECKED_BYTES)?;
        let last = last.strip_suffix('\n').and_then(StoreShare::parse);
        let before = last.filter(|last| last.of == of && last.nth < of);
        let part = StoreShare { nth: before.map_or(1, |last| last.nth + 1), of };
        Ok(Self { is_in_turn: true, ..Self::of(store, part)? })
    }

    /// Returns whether this check reads the content.
    pub(super) fn has(&self, id: &ContentId) -> bool {
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
        damage.write(store)?;
        match self.is_in_turn {
            true => replace_text(store, CHECKED, &format!("{}\n", self.part)),
            false => Ok(()),
        }
    }
}
