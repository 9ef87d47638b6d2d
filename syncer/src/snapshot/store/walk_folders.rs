//! Visits every directory of several snapshots once.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use super::{
    content_id::ContentRef,
    folder::{Folder, FolderRef, FolderRow, ObjectRef},
    folder_changes::{FolderChanges, StoredFolder},
    read_store::Store,
    snapshot_error::SnapshotError,
    snapshot_list::Snapshot,
};
use crate::{entry::Kind, sys::cores::cores};

/// One more thread is started for about this many directories.
const FOLDERS_PER_THREAD: u64 = 32;

/// The largest number of references of base directories that are kept in memory, at some 70 bytes each.
const MAX_REFERENCES_OF_BASES: usize = 1 << 19;

/// The approximate number of entries of a directory.
const ENTRIES_PER_FOLDER: u64 = 64;

/// Receives a directory as its parent refers to it, and its content or the reason why it cannot be read.
pub(crate) type VisitFolder<'a> =
    dyn FnMut(&FolderRef, Result<&Folder, SnapshotError>) -> Result<(), SnapshotError> + 'a;

/// Reads every directory of these snapshots. A directory that several of them share is visited once.
pub(crate) fn walk<'s>(
    store: &Store,
    snapshots: impl Iterator<Item = &'s Snapshot>,
    visit: &mut VisitFolder<'_>,
) -> Result<(), SnapshotError> {
    let mut seen: HashSet<ObjectRef> = HashSet::new();
    for snapshot in snapshots {
        let mut stack = vec![snapshot.tree];
        while let Some(folder) = stack.pop() {
            if !seen.insert(folder.place) {
                continue;
            }
            let read = store.folder(&folder);
            if let Ok(read) = &read {
                stack.extend(&read.children);
            }
            match read {
                Ok(read) => visit(&folder, Ok(&read))?,
                Err(error) => visit(&folder, Err(error))?,
            }
        }
    }
    Ok(())
}

/// An object that a directory refers to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Referred {
    /// A directory, or the base of one.
    Folder(ObjectRef),
    /// The content of a file, and its length in bytes.
    Content(ContentRef, u64),
}

/// Finds the objects that the directories of these snapshots refer to, in no particular order, on several threads if
/// there are many directories. Each thread gathers what `add` finds into a `T` of its own. Leaves out contents that do
/// not `matter`. Checks the checksums of directories, but not their ids.
pub(crate) fn gather<T: Default + Send>(
    store: &Store,
    snapshots: &[&Snapshot],
    matter: &(dyn Fn(&ContentRef) -> bool + Sync),
    add: impl Fn(&mut T, Referred) + Sync,
) -> Result<Vec<T>, SnapshotError> {
    let gathering = Gathering {
        store,
        snapshots,
        matter,
        next: AtomicUsize::new(0),
        seen: Mutex::default(),
        bases: Mutex::default(),
        failed: OnceLock::new(),
    };
    let entries = snapshots.last().map_or(0, |last| last.entries);
    let folders = snapshots.len() as u64 + entries / ENTRIES_PER_FOLDER;
    let threads = cores().min(folders.div_ceil(FOLDERS_PER_THREAD) as usize).max(1);
    let gathered = Mutex::new(Vec::new());
    let work = || {
        let part = gathering.work(&add);
        gathered.lock().push(part);
    };
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    match gathering.failed.into_inner() {
        Some(error) => Err(error),
        None => Ok(gathered.into_inner()),
    }
}

/// The objects that a directory refers to, each with the index of its entry in the listing.
type References = Vec<(u32, Referred)>;

/// Bases that are kept in memory, by their places.
#[derive(Debug, Default)]
struct Bases {
    known: HashMap<ObjectRef, Arc<References>>,
    /// The number of their references, plus one for each base.
    size: usize,
}

/// Directories that several threads read. Snapshots share most directories, so threads that start with different
/// snapshots soon work on different directories.
struct Gathering<'a> {
    store: &'a Store,
    snapshots: &'a [&'a Snapshot],
    matter: &'a (dyn Fn(&ContentRef) -> bool + Sync),
    next: AtomicUsize,
    /// The packs and offsets of directories. There may be millions, so their lengths are left out.
    seen: Mutex<HashSet<(u64, u64)>>,
    bases: Mutex<Bases>,
    failed: OnceLock<SnapshotError>,
}

impl Gathering<'_> {
    fn work<T: Default>(&self, add: &impl Fn(&mut T, Referred)) -> T {
        let mut part = T::default();
        while let Some(snapshot) = self.snapshots.get(self.next.fetch_add(1, Relaxed)) {
            let mut stack = Vec::new();
            self.push([snapshot.tree.place].into_iter(), &mut stack);
            while let Some(place) = stack.pop() {
                if self.failed.get().is_some() {
                    return part;
                }
                add(&mut part, Referred::Folder(place));
                let found = self.references(place, &mut |found| add(&mut part, found));
                match found {
                    Ok(below) => self.push(below.into_iter(), &mut stack),
                    Err(error) => drop(self.failed.set(error)),
                }
            }
        }
        part
    }

    /// Pushes directories that no thread has seen yet.
    fn push(&self, places: impl Iterator<Item = ObjectRef>, stack: &mut Vec<ObjectRef>) {
        let mut seen = self.seen.lock();
        stack.extend(places.filter(|place| seen.insert((place.pack, place.offset))));
    }

    /// Passes the objects that a directory refers to to `add`, except for directories, which it returns.
    fn references(
        &self,
        place: ObjectRef,
        add: &mut dyn FnMut(Referred),
    ) -> Result<Vec<ObjectRef>, SnapshotError> {
        let mut below = Vec::new();
        let mut found = |referred| match referred {
            Referred::Folder(place) => below.push(place),
            Referred::Content(..) => add(referred),
        };
        match self.store.stored_folder(&place)? {
            StoredFolder::Whole(folder) => {
                self.references_of(&folder).into_iter().for_each(|(_, it)| found(it));
            }
            StoredFolder::Changes(FolderChanges { base, left_out, added }) => {
                let stays = |(index, _): &&(u32, Referred)| left_out.binary_search(index).is_err();
                let of_base = self.references_of_base(base)?;
                of_base.iter().filter(stays).for_each(|(_, it)| found(*it));
                self.references_of(&added).into_iter().for_each(|(_, it)| found(it));
                add(Referred::Folder(base));
            }
        }
        Ok(below)
    }

    fn references_of(&self, folder: &Folder) -> References {
        let referred = |row: FolderRow<'_>| match (row.child, row.content, row.entry.kind) {
            (Some(child), ..) => Some(Referred::Folder(child.place)),
            (_, Some((content, _)), Kind::File { size }) if (self.matter)(&content) => {
                Some(Referred::Content(content, size))
            }
            _ => None,
        };
        (0..).zip(folder.rows()).filter_map(|(index, row)| Some((index, referred(row)?))).collect()
    }

    /// Returns the references of a base. Many directories share a base, so bases are cached up to a limit.
    fn references_of_base(&self, place: ObjectRef) -> Result<Arc<References>, SnapshotError> {
        if let Some(known) = self.bases.lock().known.get(&place) {
            return Ok(Arc::clone(known));
        }
        let found = Arc::new(self.references_of(&self.store.whole_folder(&place)?));
        let mut bases = self.bases.lock();
        if bases.size > MAX_REFERENCES_OF_BASES {
            *bases = Bases::default();
        }
        bases.size += found.len() + 1;
        bases.known.insert(place, Arc::clone(&found));
        Ok(found)
    }
}
