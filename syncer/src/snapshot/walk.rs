//! Visits every directory of several snapshots once.

use std::{
    collections::HashSet,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use super::{
    folder::{Folder, FolderRef, ObjectRef},
    roots::Snapshot,
    snapshot_error::SnapshotError,
    store::Store,
};
use crate::{cores::cores, entry::Kind, path::RelPath};

/// Further threads are started from about this many directories on.
const FOLDERS_PER_THREAD: u64 = 32;

/// About how many entries a directory has.
const ENTRIES_PER_FOLDER: u64 = 64;

/// A directory of a snapshot.
pub(super) struct Visited<'a> {
    /// Its path.
    pub path: &'a RelPath,
    /// The reference of its parent to it.
    pub folder: &'a FolderRef,
}

/// Receives a directory, or the reason why it cannot be read.
pub(super) type VisitFolder<'a> =
    dyn FnMut(&Visited<'_>, Result<&Folder, SnapshotError>) -> Result<(), SnapshotError> + 'a;

/// Reads every directory of these snapshots. A directory that several of them share is visited once, for the first of
/// them.
///
/// # Errors
/// Any error of `visit`.
pub(super) fn walk<'s>(
    store: &Store,
    snapshots: impl Iterator<Item = &'s Snapshot>,
    visit: &mut VisitFolder<'_>,
) -> Result<(), SnapshotError> {
    let mut seen: HashSet<ObjectRef> = HashSet::new();
    for snapshot in snapshots {
        let mut stack = vec![(snapshot.tree, RelPath::root())];
        while let Some((folder, path)) = stack.pop() {
            if !seen.insert(folder.place) {
                continue;
            }
            let visited = Visited { path: &path, folder: &folder };
            let read = store.folder(&folder);
            if let Ok(read) = &read {
                let names =
                    read.listing.iter().filter(|entry| entry.kind == Kind::Dir).map(|entry| entry.name);
                let below = names.zip(&read.children).map(|(name, child)| (*child, path.join(name)));
                stack.extend(below.map(|(child, below)| (child, below.unwrap_or_else(|_| path.clone()))));
            }
            match read {
                Ok(read) => visit(&visited, Ok(&read))?,
                Err(error) => visit(&visited, Err(error))?,
            }
        }
    }
    Ok(())
}

/// Reads every directory of these snapshots once, in no order, on several threads if there are many. Each thread
/// gathers what `take` finds into a `T` of its own.
///
/// # Errors
/// If a directory cannot be read.
pub(super) fn gather<T: Default + Send>(
    store: &Store,
    snapshots: &[&Snapshot],
    take: impl Fn(&mut T, &FolderRef, &Folder) + Sync,
) -> Result<Vec<T>, SnapshotError> {
    let gathering = Gathering {
        store,
        snapshots,
        next: AtomicUsize::new(0),
        seen: Mutex::default(),
        failed: OnceLock::new(),
    };
    let entries = snapshots.last().map_or(0, |last| last.entries);
    let folders = snapshots.len() as u64 + entries / ENTRIES_PER_FOLDER;
    let threads = cores().min(folders.div_ceil(FOLDERS_PER_THREAD) as usize).max(1);
    let gathered = Mutex::new(Vec::new());
    let work = || {
        let part = gathering.work(&take);
        gathered.lock().unwrap_or_else(PoisonError::into_inner).push(part);
    };
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    match gathering.failed.into_inner() {
        Some(error) => Err(error),
        None => Ok(gathered.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// Directories that several threads read. Snapshots share most of theirs, so threads that begin with two of them soon
/// work on different ones.
struct Gathering<'a> {
    store: &'a Store,
    snapshots: &'a [&'a Snapshot],
    next: AtomicUsize,
    seen: Mutex<HashSet<ObjectRef>>,
    failed: OnceLock<SnapshotError>,
}

impl Gathering<'_> {
    fn seen(&self) -> MutexGuard<'_, HashSet<ObjectRef>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work<T: Default>(&self, take: &impl Fn(&mut T, &FolderRef, &Folder)) -> T {
        let mut part = T::default();
        while let Some(snapshot) = self.snapshots.get(self.next.fetch_add(1, Relaxed)) {
            let mut stack: Vec<FolderRef> =
                Some(snapshot.tree).filter(|tree| self.seen().insert(tree.place)).into_iter().collect();
            while let Some(folder) = stack.pop() {
                if self.failed.get().is_some() {
                    return part;
                }
                match self.store.folder(&folder) {
                    Ok(read) => {
                        take(&mut part, &folder, &read);
                        let mut seen = self.seen();
                        stack.extend(read.children.iter().filter(|child| seen.insert(child.place)));
                    }
                    Err(error) => drop(self.failed.set(error)),
                }
            }
        }
        part
    }
}
