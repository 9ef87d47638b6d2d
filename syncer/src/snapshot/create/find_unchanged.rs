//! Compares a scanned tree with the last snapshot, to find what is unchanged.

use std::collections::HashSet;

use super::{find_listed_file::Displaced, store_live_file::LiveFile};
use crate::{
    entry::{Entry, Kind},
    path::RelPath,
    snapshot::store::{ContentRef, Folder, FolderFile, FolderRef, KnownDamage, Store},
    sys::cores::on_cores,
    tree::{
        Tree,
        dir::{Dir, DirId, ROOT, Totals},
        seek::seek,
    },
};

/// The content of a listed file on its way into the store.
#[derive(Debug)]
pub(crate) enum Slot {
    /// In the store; the file is as the scan has listed it, with this stamp.
    Stored(ContentRef, u64),
    /// To be taken.
    Wanted(WantedFile),
    /// Read.
    Read(Box<LiveFile>),
    /// The file is gone.
    Gone,
    /// The file cannot be read.
    Failed,
}

impl Slot {
    /// Returns whether the file is not taken.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Wanted(_) | Self::Gone | Self::Failed)
    }
}

/// A file whose content is not known to be in the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedFile {
    /// Its index in the listing.
    pub index: u32,
    /// Its index among the slots of its directory.
    pub slot: u32,
    /// Its content in the last snapshot.
    pub old: Option<ContentRef>,
}

/// A directory that may differ from the last snapshot.
#[derive(Debug)]
pub(crate) struct Making {
    pub dir: DirId,
    pub path: RelPath,
    /// The last snapshot's directory in its place.
    pub old: Option<FolderRef>,
    /// One for each file of the listing that has content.
    pub slots: Vec<Slot>,
    /// Further names of files that could not be taken, by their ascending indices in the listing. They are left out.
    pub dangling: Vec<u32>,
}

impl Making {
    /// Returns the number of names in its path.
    pub(crate) fn depth(&self) -> usize {
        self.path.names().count()
    }
}

/// The directories to write, and those that the store has.
#[derive(Debug, Default)]
pub(crate) struct PlannedFolders {
    /// The directories to write, those next to the root first.
    pub making: Vec<Making>,
    /// Directories in the store, by number.
    pub there: Vec<Option<FolderRef>>,
    /// Bytes by which files have grown since the scan. Those that are left out have shrunk to nothing.
    pub grown: i64,
    /// The number of files that are left out: gone or failed.
    pub left_out: u64,
    /// Files whose names led elsewhere when they were to be read.
    pub displaced: Vec<Displaced>,
}

/// The entries and bytes of a tree as a snapshot has them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlannedSums {
    pub entries: u64,
    pub bytes: u64,
}

impl PlannedFolders {
    /// Returns the sums of a tree with these `totals` once its files are read.
    pub(crate) fn sums(&self, totals: &Totals) -> PlannedSums {
        let entries = totals.entries.saturating_sub(self.left_out);
        PlannedSums { entries, bytes: totals.bytes.saturating_add_signed(self.grown) }
    }
}

/// The number of directories for which one more thread is started.
pub(crate) const FOLDERS_PER_THREAD: usize = 16;

/// A directory of the tree, and the one that the last snapshot has in its place.
pub(crate) struct ComparedDir {
    pub dir: DirId,
    pub path: RelPath,
    pub old: Option<FolderRef>,
}

/// Compares a tree with the last snapshot, level by level, to find the directories to write. Entries whose old
/// directory cannot be read count as new. Once damage is known, every directory is read. Those of `written_anew` are
/// written in any case; it has the directories above each as well.
pub(crate) fn plan(
    tree: &Tree,
    store: &Store,
    last: Option<&FolderRef>,
    damage: &KnownDamage,
    written_anew: &HashSet<DirId>,
) -> PlannedFolders {
    let root = ComparedDir { dir: ROOT, path: RelPath::root(), old: last.copied() };
    plan_from(vec![root], tree, store, damage, written_anew)
}

/// Plans to write these directories of a tree and all below them.
pub(crate) fn plan_all_below(dirs: Vec<ComparedDir>, tree: &Tree, store: &Store) -> PlannedFolders {
    let mut planned = plan_from(dirs, tree, store, &KnownDamage::default(), &HashSet::new());
    // They need not be equally deep, and a directory is written after those in it.
    planned.making.sort_by_key(Making::depth);
    planned
}

fn plan_from(
    mut level: Vec<ComparedDir>,
    tree: &Tree,
    store: &Store,
    damage: &KnownDamage,
    written_anew: &HashSet<DirId>,
) -> PlannedFolders {
    let mut planned = PlannedFolders { there: vec![None; tree.dirs.len()], ..PlannedFolders::default() };
    while !level.is_empty() {
        level.retain(|ComparedDir { dir: id, old, .. }| {
            let dir = &tree.dirs[*id as usize];
            let is_same = |old: &FolderRef| old.digest == dir.digest && old.seen.proves_same(dir.seen);
            let same = old.filter(|old| damage.is_none() && !written_anew.contains(id) && is_same(old));
            planned.there[*id as usize] = same;
            same.is_none()
        });
        let compared = on_cores(level.len(), FOLDERS_PER_THREAD, |nth| {
            let ComparedDir { dir, path, old } = &level[nth];
            let old = old.and_then(|old| readable(store, &old));
            let scanned = &tree.dirs[*dir as usize];
            let slots = slots_of(scanned, old.as_ref(), &|old, entry, stamp| {
                stamp != 0
                    && stamp == old.stamp
                    && old.entry.kind == entry.kind
                    && old.entry.meta.mtime == entry.meta.mtime
                    && !damage.contents.contains(&old.content.id)
            });
            (slots, subdirectories(scanned, path, old.as_ref()))
        });
        let mut below = Vec::new();
        for (ComparedDir { dir, path, old }, (slots, subdirectories)) in level.into_iter().zip(compared) {
            below.extend(subdirectories);
            planned.making.push(Making { dir, path, old, slots, dangling: Vec::new() });
        }
        level = below;
    }
    planned
}

/// Says whether a file is unchanged since the last snapshot, by its entry and its stamp.
pub(crate) type IsSame<'t> = dyn Fn(&FolderFile<'_>, &Entry<'_>, u64) -> bool + 't;

/// Returns the subdirectories of a directory, with those that the `old` one has in their places.
pub(crate) fn subdirectories(dir: &Dir, path: &RelPath, old: Option<&Folder>) -> Vec<ComparedDir> {
    let mut dirs = old.into_iter().flat_map(Folder::subfolders).peekable();
    let names = dir.listing.iter().filter(|entry| entry.kind == Kind::Dir).map(|entry| entry.name);
    let subdirectory = |(dir, name): (DirId, &[u8])| {
        // A path beyond the limit was not scanned.
        let path = path.join(name).ok()?;
        let old = seek(&mut dirs, name, |(other, _)| other).map(|(_, folder)| folder);
        Some(ComparedDir { dir, path, old })
    };
    (dir.first_child..).zip(names).filter_map(subdirectory).collect()
}

fn readable(store: &Store, folder: &FolderRef) -> Option<Folder> {
    let read = store.folder(folder);
    read.inspect_err(|error| tracing::warn!(%error, "a directory of the last snapshot cannot be read, and is written anew"))
        .ok()
}

/// Finds the files that are unchanged since the last snapshot: those of the same name that `is_same` says it of.
pub(crate) fn slots_of(dir: &Dir, old: Option<&Folder>, is_same: &IsSame<'_>) -> Vec<Slot> {
    let mut old = old.into_iter().flat_map(Folder::files).peekable();
    let files = (0..).zip(&dir.listing).filter(|(_, entry)| entry.kind.has_content());
    let mut slots = Vec::new();
    for ((index, entry), stamp) in files.zip(dir.stamps_of_files()) {
        let old = seek(&mut old, entry.name, |old| old.entry.name);
        slots.push(match old {
            Some(old) if is_same(&old, &entry, stamp) => Slot::Stored(old.content, stamp),
            old => {
                let (slot, old) = (slots.len() as u32, old.map(|old| old.content));
                Slot::Wanted(WantedFile { index, slot, old })
            }
        });
    }
    slots
}
