//! What each snapshot of a store takes: what it refers to, what only it refers to, and what it shares.

use std::collections::{
    HashMap,
    hash_map::Entry::{Occupied, Vacant},
};

use crate::snapshot::store::{
    ContentRef, FolderRef, Home, ObjectRef, Roots, SnapshotError, SnapshotId, Store,
};

/// What a snapshot takes, in bytes of objects of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotBytes {
    /// The snapshot.
    pub id: SnapshotId,
    /// All objects that it refers to, each once.
    pub all: u64,
    /// Those that no other snapshot refers to: about what removing it alone would free.
    pub own: u64,
}

/// What a store takes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreBytes {
    /// Each snapshot, also forgotten ones, in the order of the list.
    pub snapshots: Vec<SnapshotBytes>,
    /// All objects that any snapshot refers to, each once.
    pub all: u64,
    /// The bytes of all files that snapshots have, as if each were alone.
    pub files: u64,
}

/// The snapshots that refer to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReferredBy {
    /// Only the snapshot of this number.
    One(u32),
    Several,
}

/// An object by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ObjectKey {
    Packed(u64, u64),
    Own([u8; 16]),
}

/// Finds out what each snapshot takes. Reads each directory of the store twice at most.
///
/// # Errors
/// If a directory cannot be read.
pub fn store_stats(store: &Store, roots: &Roots) -> Result<StoreBytes, SnapshotError> {
    let mut objects = Objects::default();
    let mut all_of_each = Vec::new();
    for (number, snapshot) in (0..).zip(&roots.snapshots) {
        objects.visit(store, number, snapshot.tree)?;
        all_of_each.push(objects.all_of(store, snapshot.tree)?);
    }
    let mut own = vec![0_u64; roots.snapshots.len()];
    let mut all = 0;
    for (by, len) in objects.known.values() {
        all += len;
        if let ReferredBy::One(number) = by {
            own[*number as usize] += len;
        }
    }
    let each = roots.snapshots.iter().zip(all_of_each).zip(own);
    let snapshots = each.map(|((snapshot, all), own)| SnapshotBytes { id: snapshot.id, all, own });
    let files = roots.snapshots.iter().map(|snapshot| snapshot.bytes).fold(0, u64::saturating_add);
    Ok(StoreBytes { snapshots: snapshots.collect(), all, files })
}

#[derive(Debug, Default)]
struct Objects {
    known: HashMap<ObjectKey, (ReferredBy, u64)>,
    /// What directories and all below them take, as a tree: objects that are in several places count each time.
    below: HashMap<ObjectRef, u64>,
}

impl Objects {
    /// Marks all objects of a tree as referred to by this snapshot.
    fn visit(&mut self, store: &Store, number: u32, tree: FolderRef) -> Result<(), SnapshotError> {
        let mut stack = vec![tree];
        while let Some(at) = stack.pop() {
            if !self.mark(ObjectKey::Packed(at.place.pack, at.place.offset), at.place.len.into(), number) {
                continue;
            }
            let folder = store.folder(&at)?;
            for file in folder.files() {
                self.mark(key_of(&file.content), file.len, number);
            }
            stack.extend(&folder.children);
        }
        Ok(())
    }

    /// Marks an object. Returns whether that is news for what is below it, too.
    fn mark(&mut self, key: ObjectKey, len: u64, number: u32) -> bool {
        match self.known.entry(key) {
            Vacant(entry) => {
                entry.insert((ReferredBy::One(number), len));
                true
            }
            Occupied(mut entry) => match entry.get().0 {
                ReferredBy::One(other) if other != number => {
                    entry.get_mut().0 = ReferredBy::Several;
                    true
                }
                _ => false,
            },
        }
    }

    /// Returns the bytes of the objects of a tree.
    fn all_of(&mut self, store: &Store, tree: FolderRef) -> Result<u64, SnapshotError> {
        let mut stack = vec![(tree, None)];
        while let Some((at, read)) = stack.pop() {
            match read {
                _ if self.below.contains_key(&at.place) => {}
                None => {
                    let folder = store.folder(&at)?;
                    let children = folder.children.clone();
                    stack.push((at, Some(folder)));
                    stack.extend(children.into_iter().map(|child| (child, None)));
                }
                Some(folder) => {
                    let files = folder.files().map(|file| file.len);
                    let below =
                        folder.children.iter().filter_map(|child| self.below.get(&child.place).copied());
                    let all = files.chain(below).fold(at.place.len.into(), u64::saturating_add);
                    self.below.insert(at.place, all);
                }
            }
        }
        Ok(self.below.get(&tree.place).copied().unwrap_or_default())
    }
}

fn key_of(content: &ContentRef) -> ObjectKey {
    match content.home {
        Home::Pack { pack, offset } => ObjectKey::Packed(pack, offset),
        Home::Own => {
            let mut half = [0; 16];
            half.copy_from_slice(&content.id.0[..16]);
            ObjectKey::Own(half)
        }
    }
}
