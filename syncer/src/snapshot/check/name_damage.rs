//! Names every snapshot and path that needs a damaged object.

use std::collections::{HashMap, HashSet};

use super::{
    content::ContentRef,
    damage::{Damage, Damaged, DamagedPath},
    folder::{Folder, FolderRef, ObjectRef},
    id::SnapshotId,
    roots::Roots,
    store::Store,
};
use crate::{entry::Kind, path::RelPath};

/// Adds the paths that need each damaged object, of each snapshot in the order of the list.
pub(super) fn name_damage(store: &Store, roots: &Roots, damaged: &mut [Damage]) {
    if damaged.is_empty() {
        return;
    }
    let mut naming =
        Naming { store, folders: HashMap::new(), contents: HashMap::new(), whole: HashSet::new() };
    for (nth, damage) in damaged.iter().enumerate() {
        match damage.what {
            Damaged::Content(content, _) => drop(naming.contents.insert(content, nth)),
            Damaged::Folder(folder) => drop(naming.folders.insert(folder.place, nth)),
            Damaged::Record(_) => {}
        }
    }
    let mut named: HashMap<(usize, RelPath), usize> = HashMap::new();
    let mut before = None;
    for snapshot in &roots.snapshots {
        naming.visit(&snapshot.tree, &RelPath::root(), &mut |nth, path| {
            let damage = &mut damaged[nth];
            let last = named.entry((nth, path.clone())).or_insert(damage.files.len());
            *last = damage.name((before, snapshot.id), path, *last);
        });
        before = Some(snapshot.id);
    }
}

impl Damage {
    /// Adds a path of a snapshot: to the entry `last` if that is of this path and of the snapshot `before`, else as a
    /// new one. Returns the number of the entry.
    fn name(&mut self, (before, id): (Option<SnapshotId>, SnapshotId), path: &RelPath, last: usize) -> usize {
        self.count += 1;
        match self.files.get_mut(last) {
            Some(known) if Some(known.last) == before => {
                known.last = id;
                known.snapshots += 1;
                last
            }
            _ => {
                self.files.push(DamagedPath { path: path.clone(), first: id, last: id, snapshots: 1 });
                self.files.len() - 1
            }
        }
    }
}

struct Naming<'a> {
    store: &'a Store,
    folders: HashMap<ObjectRef, usize>,
    contents: HashMap<ContentRef, usize>,
    /// Directories that need no damaged object, nor does anything below.
    whole: HashSet<ObjectRef>,
}

impl Naming<'_> {
    /// Passes the number of each damaged object that a directory needs to `tell`, with the path. Returns whether there
    /// are any.
    fn visit(&mut self, folder: &FolderRef, path: &RelPath, tell: &mut dyn FnMut(usize, &RelPath)) -> bool {
        if self.whole.contains(&folder.place) {
            return false;
        }
        if let Some(nth) = self.folders.get(&folder.place) {
            tell(*nth, path);
            return true;
        }
        let Ok(read) = self.store.folder(folder) else { return true };
        let mut is_damaged = self.name_files(&read, path, tell);
        let names = read.listing.iter().filter(|entry| entry.kind == Kind::Dir).map(|entry| entry.name);
        for (name, child) in names.zip(&read.children) {
            let below = path.join(name).unwrap_or_else(|_| path.clone());
            is_damaged |= self.visit(child, &below, tell);
        }
        if !is_damaged {
            self.whole.insert(folder.place);
        }
        is_damaged
    }

    fn name_files(&self, folder: &Folder, path: &RelPath, tell: &mut dyn FnMut(usize, &RelPath)) -> bool {
        let mut is_damaged = false;
        for (entry, content, _) in folder.files() {
            if let Some(nth) = self.contents.get(&content) {
                tell(*nth, &path.join(entry.name).unwrap_or_else(|_| path.clone()));
                is_damaged = true;
            }
        }
        is_damaged
    }
}
