//! Counts the entries and the bytes of directories in the store, and finds out whether all below them is whole, each
//! once: what another store says of a tree is not believed.

use std::collections::HashMap;

use crate::{
    entry::Kind,
    hash::ContentId,
    snapshot::store::{Folder, FolderRef, KnownDamage, ObjectRef, Store},
};

/// What is below a directory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TreeTotals {
    pub entries: u64,
    /// The bytes of all files.
    pub bytes: u64,
}

impl TreeTotals {
    fn and(self, other: Self) -> Self {
        let entries = self.entries.saturating_add(other.entries);
        Self { entries, bytes: self.bytes.saturating_add(other.bytes) }
    }
}

/// What directories have below them, by their places.
#[derive(Debug)]
pub(crate) struct TreeCounts<'a> {
    /// What a check found damaged.
    damage: &'a KnownDamage,
    /// `None` if anything below a directory is damaged.
    known: HashMap<ObjectRef, Option<TreeTotals>>,
}

impl<'a> TreeCounts<'a> {
    pub(crate) fn new(damage: &'a KnownDamage) -> Self {
        Self { damage, known: HashMap::new() }
    }

    /// Returns whether content with this id is known to be damaged.
    pub(crate) fn is_damaged(&self, id: &ContentId) -> bool {
        self.damage.contents.contains(id)
    }

    /// Returns what is below a directory of the store; `None` if a directory there cannot be read, or content is known
    /// to be damaged. Reads the directories that it does not know.
    pub(crate) fn of(&mut self, store: &Store, folder: &FolderRef) -> Option<TreeTotals> {
        let mut stack = vec![(*folder, None::<Folder>)];
        while let Some((at, read)) = stack.pop() {
            let read = match (self.known.get(&at.place), read) {
                (Some(Some(_)), _) => continue,
                (Some(None), _) => Err(()),
                (None, Some(read)) => {
                    self.add(&read, at.place);
                    continue;
                }
                (None, None) => self.read(store, &at),
            };
            match read {
                Ok(read) => {
                    let children = read.children.clone();
                    stack.push((at, Some(read)));
                    stack.extend(children.into_iter().map(|child| (child, None)));
                }
                Err(()) => {
                    // What was read and waits for this one is above it.
                    let above = stack.iter().filter(|(_, read)| read.is_some()).map(|(above, _)| above.place);
                    self.known.extend(above.chain([at.place, folder.place]).map(|place| (place, None)));
                    return None;
                }
            }
        }
        self.known.get(&folder.place).copied().flatten()
    }

    fn read(&self, store: &Store, folder: &FolderRef) -> Result<Folder, ()> {
        let read = store.folder(folder).map_err(drop)?;
        if read.contents.iter().any(|content| self.is_damaged(&content.id)) { Err(()) } else { Ok(read) }
    }

    /// Adds a directory that was written at `place`, after all of its subdirectories.
    pub(crate) fn add(&mut self, folder: &Folder, place: ObjectRef) {
        let own = folder.listing.iter().map(|entry| {
            let bytes = if let Kind::File { size } = entry.kind { size } else { 0 };
            TreeTotals { entries: 1, bytes }
        });
        let below =
            folder.children.iter().filter_map(|child| self.known.get(&child.place).copied().flatten());
        let all = own.chain(below).fold(TreeTotals::default(), TreeTotals::and);
        self.known.insert(place, Some(all));
    }
}
