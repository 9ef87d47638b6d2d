//! A damaged object of a store, and every snapshot and path that needs it.

use std::collections::{HashMap, HashSet};

use crate::{
    path::RelPath,
    snapshot::store::{ContentRef, Folder, FolderRef, ObjectRef, Roots, SnapshotError, SnapshotId, Store},
};
use contract::chain;

/// A damaged object.
#[derive(Debug)]
pub struct Damage {
    /// The object and its place.
    pub object: String,
    /// The error.
    pub error: String,
    /// The number of files and directories that need it, counted in each snapshot.
    pub count: u64,
    /// Their paths.
    pub files: Vec<DamagedPath>,
    /// The origin of the bytes that healed it.
    pub healed_from: Option<String>,
    pub(crate) what: Damaged,
}

/// A path that needs a damaged object, in snapshots that follow one another in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedPath {
    /// The path.
    pub path: RelPath,
    /// The first of these snapshots.
    pub first: SnapshotId,
    /// The last of them.
    pub last: SnapshotId,
    /// Their number.
    pub snapshots: u64,
}

/// The kind of a damaged object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damaged {
    /// The content of a file, and its length in bytes.
    Content(ContentRef, u64),
    /// A directory.
    Folder(FolderRef),
    /// The record of a snapshot at the end of its pack.
    Record(SnapshotId),
    /// An object of a store that is on no volume.
    Elsewhere,
}

/// Adds the paths that need each damaged object, of each snapshot in the order of the list.
pub(crate) fn name_damage(store: &Store, roots: &Roots, damaged: &mut [Damage]) {
    if damaged.is_empty() {
        return;
    }
    let mut naming =
        Naming { store, folders: HashMap::new(), contents: HashMap::new(), whole: HashSet::new() };
    for (nth, damage) in damaged.iter().enumerate() {
        match damage.what {
            Damaged::Content(content, _) => drop(naming.contents.insert(content, nth)),
            Damaged::Folder(folder) => drop(naming.folders.insert(folder.place, nth)),
            Damaged::Record(_) | Damaged::Elsewhere => {}
        }
    }
    let mut names = DamageNames::default();
    for snapshot in &roots.snapshots {
        names.begin(snapshot.id);
        naming.visit(&snapshot.tree, &RelPath::root(), &mut |nth, path| names.add(damaged, nth, path));
    }
}

impl Damage {
    pub(crate) fn new(what: Damaged, object: String, error: &SnapshotError) -> Self {
        Self { object, error: chain(error), count: 0, files: Vec::new(), healed_from: None, what }
    }

    /// Describes an object of a store that is on no volume.
    pub fn elsewhere(object: String, error: String) -> Self {
        let what = Damaged::Elsewhere;
        Self { object, error, count: 0, files: Vec::new(), healed_from: None, what }
    }
}

/// Adds paths to damaged objects, snapshot by snapshot in the order of the list.
#[derive(Debug, Default)]
pub struct DamageNames {
    /// The snapshot whose paths are added, and the one before it.
    snapshots: [Option<SnapshotId>; 2],
    /// The last entries of paths, by the numbers of the objects.
    last: HashMap<(usize, RelPath), usize>,
    /// The largest number of paths that are added to one object; further ones are counted. `None` adds all.
    most: Option<usize>,
}

impl DamageNames {
    /// Adds at most this many paths to each object.
    #[must_use]
    pub fn at_most(most: usize) -> Self {
        Self { most: Some(most), ..Self::default() }
    }

    /// Begins with the paths of the next snapshot.
    pub fn begin(&mut self, id: SnapshotId) {
        self.snapshots = [Some(id), self.snapshots[0]];
    }

    /// Adds a path to the object of this number: to the last entry of the path if the snapshot before has it, else as a
    /// new one.
    pub fn add(&mut self, damaged: &mut [Damage], nth: usize, path: &RelPath) {
        let ([Some(id), before], Some(damage)) = (self.snapshots, damaged.get_mut(nth)) else { return };
        damage.count += 1;
        let last = (nth, path.clone());
        let is_full = self.most.is_some_and(|most| damage.files.len() >= most);
        match self.last.get(&last).and_then(|last| damage.files.get_mut(*last)) {
            Some(known) if Some(known.last) == before => {
                known.last = id;
                known.snapshots += 1;
            }
            _ if is_full => {}
            _ => {
                self.last.insert(last, damage.files.len());
                damage.files.push(DamagedPath { path: path.clone(), first: id, last: id, snapshots: 1 });
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
    /// Passes the number of each damaged object that a directory needs to `note`, with the path. Returns whether there
    /// are any.
    fn visit(&mut self, folder: &FolderRef, path: &RelPath, note: &mut dyn FnMut(usize, &RelPath)) -> bool {
        if self.whole.contains(&folder.place) {
            return false;
        }
        if let Some(nth) = self.folders.get(&folder.place) {
            note(*nth, path);
            return true;
        }
        let Ok(read) = self.store.folder(folder) else { return true };
        let mut is_damaged = self.name_files(&read, path, note);
        for (name, child) in read.subfolders() {
            let below = path.join(name).unwrap_or_else(|_| path.clone());
            is_damaged |= self.visit(&child, &below, note);
        }
        if !is_damaged {
            self.whole.insert(folder.place);
        }
        is_damaged
    }

    fn name_files(&self, folder: &Folder, path: &RelPath, note: &mut dyn FnMut(usize, &RelPath)) -> bool {
        let mut is_damaged = false;
        for file in folder.files() {
            if let Some(nth) = self.contents.get(&file.content) {
                note(*nth, &path.join(file.entry.name).unwrap_or_else(|_| path.clone()));
                is_damaged = true;
            }
        }
        is_damaged
    }
}
