//! The plan of a run, directory by directory, as the comparison hands it to all later phases.

use std::{
    collections::{HashMap, HashSet},
    iter::Peekable,
    sync::atomic::Ordering::Relaxed,
};

use crate::{
    compare_entries::{DirPlan, Step},
    entry::{Entry, Kind, Meta, Time},
    listing::{Entries, Listing},
    measure::report::Counters,
    path::RelPath,
    tree::{
        Tree,
        dir::{Dir, DirId, Mounts},
        seek::seek,
    },
    wire::{Forecast, MAX_PACKED_BYTES, TreeHead},
};

/// The step of an entry that replaces a directory.
const REPLACED: Step = Step::Replace { was_dir: true };

/// The number of a directory of the source that was not requested, because it equals the sink's.
pub(crate) const UNASKED: DirId = DirId::MAX;

/// The plan of one directory.
#[derive(Debug)]
pub(crate) struct PlannedDir {
    /// The directory's number at the source.
    pub source: DirId,
    /// Its number at the sink, if the sink has it.
    pub sink: Option<DirId>,
    /// Its path.
    pub path: RelPath,
    /// Its own metadata at the source.
    pub meta: Meta,
    /// Its entries at the source.
    pub listing: Listing,
    /// The steps for them.
    pub plan: DirPlan,
}

impl PlannedDir {
    /// Yields the entries of the source that have a step, with the step.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (Step, Entry<'_>)> {
        let mut steps = self.plan.steps.iter().peekable();
        let listing = (0..).zip(&self.listing);
        listing.filter_map(move |(index, entry)| {
            let (_, step) = steps.next_if(|(at, _)| *at == index)?;
            Some((*step, entry))
        })
    }

    /// Yields the files that get another name, of which a step makes a hard link.
    pub(crate) fn linked_files(&self) -> impl Iterator<Item = RelPath> {
        self.steps().filter_map(|(_, entry)| match entry.kind {
            Kind::HardLink { to } => RelPath::parse(to).ok(),
            _ => None,
        })
    }

    /// Returns the names of the sink's directories that an entry of another kind replaces.
    pub(crate) fn replaced_dirs(&self) -> HashSet<&[u8]> {
        if self.replaces_dirs() {
            self.steps().filter(|(step, _)| *step == REPLACED).map(|(_, entry)| entry.name).collect()
        } else {
            HashSet::new()
        }
    }

    /// Yields the sink's directories that an entry of another kind replaces.
    pub(crate) fn replaced_in<'p>(&'p self, sink: &'p Tree) -> impl Iterator<Item = (&'p [u8], DirId)> {
        let replaced = self.replaced_dirs();
        let there = self.sink.filter(|_| !replaced.is_empty()).map(|id| &sink.dirs[id as usize]);
        there.into_iter().flat_map(Dir::children).filter(move |(name, _)| replaced.contains(name))
    }

    /// Returns the sink's directories that are deleted, or that an entry of another kind replaces.
    pub(crate) fn gone_dirs<'p>(&'p self, sink: &'p Tree) -> Vec<(&'p [u8], DirId)> {
        let Some(id) = self.sink.filter(|_| !self.plan.deletes.is_empty() || self.replaces_dirs()) else {
            return Vec::new();
        };
        let (there, replaced) = (&sink.dirs[id as usize], self.replaced_dirs());
        let dirs = (0..).zip(&there.listing).filter(|(_, entry)| entry.kind == Kind::Dir);
        let goes =
            |index: u32, name| self.plan.deletes.binary_search(&index).is_ok() || replaced.contains(name);
        dirs.zip(there.first_child..)
            .filter(|((index, entry), _)| goes(*index, entry.name))
            .map(|((_, entry), id)| (entry.name, id))
            .collect()
    }

    /// Returns whether it was requested from the source, and so has its number there.
    pub(crate) fn is_asked(&self) -> bool {
        self.source != UNASKED
    }

    /// Returns whether its entries need no change.
    pub(crate) fn is_idle(&self) -> bool {
        self.plan.steps.is_empty() && self.plan.deletes.is_empty()
    }

    /// Yields the paths of the needed files whose content arrives in several frames.
    pub(crate) fn large_files(&self) -> impl Iterator<Item = RelPath> + '_ {
        let is_large =
            |entry: &Entry<'_>| matches!(entry.kind, Kind::File { size } if size > MAX_PACKED_BYTES);
        let needed = self.steps().filter(move |(step, entry)| *step != Step::Meta && is_large(entry));
        needed.map(|(_, entry)| path_in(&self.path, entry.name))
    }

    /// Returns whether an entry of another kind replaces a directory of the sink.
    pub(crate) fn replaces_dirs(&self) -> bool {
        self.plan.steps.iter().any(|(_, step)| *step == REPLACED)
    }
}

/// The result of comparing two trees.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    /// Every directory that differs, parents before children.
    pub dirs: Vec<PlannedDir>,
    /// The directories that the sink has at another path, by destination path.
    pub moves: HashMap<RelPath, MovedDir>,
    /// The entries that stay in directories that are removed.
    pub kept: SparedEntries,
    /// The entries that stay although the source does not have them, because of the mount that they are in.
    pub beyond: Mounts,
    /// The number of entries of the source, without those below them, that the owner of the destination excludes.
    pub left_out: u64,
    /// Further names of files that are left out, because of what is excluded.
    pub unlinked: Vec<RelPath>,
    /// Entries of the source in whose places entries of other kinds stay, because they are excluded.
    pub clashes: Vec<RelPath>,
}

impl Compared {
    /// Yields the directories that are on other file systems than the root of the sink.
    pub(crate) fn mounted<'c>(&'c self, sink: &'c Tree) -> impl Iterator<Item = &'c PlannedDir> {
        let is_mounted =
            |dir: &&PlannedDir| dir.sink.is_some_and(|id| sink.dirs[id as usize].beyond.file_system);
        self.dirs.iter().filter(move |_| sink.has_mounts).filter(is_mounted)
    }
}

/// Entries of the sink's tree that stay although their directory is removed: the directory, and the index in its
/// listing.
pub(crate) type SparedEntries = HashSet<(DirId, u32)>;

/// The error if a directory of the sink cannot be replaced, because it is not [emptied](is_emptied).
#[derive(Debug, thiserror::Error)]
#[error("a folder is there, and the run may not delete all that is in it")]
pub(crate) struct NotEmptied;

/// The error if a further name cannot be made of the entry that has this first one.
#[derive(Debug, thiserror::Error)]
#[error("it is a further name of {0}, which has not arrived")]
pub(crate) struct NotArrived(pub RelPath);

/// Returns whether a directory of the sink is empty, or will be after the deletes of a run that may `delete`.
pub(crate) fn is_emptied(sink: &Tree, kept: &SparedEntries, id: DirId, delete: bool) -> bool {
    let mut left = vec![id];
    while let Some(id) = left.pop() {
        let dir = &sink.dirs[id as usize];
        let is_known = !dir.leaves_out && dir.listing.is_complete();
        let goes = |index| delete && (kept.is_empty() || !kept.contains(&(id, index)));
        if !is_known || !(0..dir.listing.len() as u32).all(goes) {
            return false;
        }
        left.extend(dir.first_child..dir.first_child + dir.listing.dirs());
    }
    true
}

/// Returns whether all that is below a directory of the sink stays, and it has something, so that deletes leave it.
pub(crate) fn holds_only_kept(sink: &Tree, kept: &SparedEntries, id: DirId) -> bool {
    let mut left = vec![id];
    while let Some(id) = left.pop() {
        let dir = &sink.dirs[id as usize];
        if dir.listing.is_empty() && !dir.leaves_out {
            return false;
        }
        let mut child = dir.first_child;
        for (index, entry) in (0..).zip(&dir.listing) {
            let is_dir = entry.kind == Kind::Dir;
            if !kept.contains(&(id, index)) {
                if !is_dir {
                    return false;
                }
                left.push(child);
            }
            child += u32::from(is_dir);
        }
    }
    true
}

/// A directory that is moved.
#[derive(Debug)]
pub(crate) struct MovedDir {
    /// Its path at the sink before the run.
    pub from: RelPath,
    /// The number of entries in and below it.
    pub entries: u64,
    /// The bytes of its files.
    pub bytes: u64,
}

impl MovedDir {
    /// Counts the entries in and below the directory: as deleted from the old place, with the directory itself, and as
    /// created in the new one.
    pub(crate) fn count(&self, counters: &Counters) {
        counters.created.fetch_add(self.entries, Relaxed);
        counters.deleted.fetch_add(self.entries + 1, Relaxed);
        counters.bytes_changed.fetch_add(self.bytes, Relaxed);
        counters.bytes_reused.fetch_add(self.bytes, Relaxed);
    }
}

/// Returns the path of an entry, for messages; its directory's if the path would be too long. Such an entry still takes
/// part, because it is reached by its name in an open directory.
pub(crate) fn path_in(dir: &RelPath, name: &[u8]) -> RelPath {
    dir.join(name).unwrap_or_else(|_| dir.clone())
}

/// A file as a listing has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListedFile {
    pub len: u64,
    pub mtime: Time,
}

/// Advances through a sorted listing to the entry of this name, and returns it if it is a file.
pub(crate) fn file_in(there: &mut Peekable<Entries<'_>>, name: &[u8]) -> Option<ListedFile> {
    let entry = seek(there, name, |entry| entry.name)?;
    match entry.kind {
        Kind::File { size } => Some(ListedFile { len: size, mtime: entry.meta.mtime }),
        _ => None,
    }
}

/// Counts the entries that a plan removes: those that the source does not have, and all entries below a directory that
/// another kind of entry replaces.
pub(crate) fn deletes_in(dir: &PlannedDir, sink: &Tree, kept: &SparedEntries) -> u64 {
    let Some(id) = dir.sink else { return 0 };
    let replaced = dir.replaced_dirs();
    let mut deletes = dir.plan.deletes.iter().peekable();
    let mut child = sink.dirs[id as usize].first_child;
    let mut count = 0;
    for (index, entry) in (0..).zip(&sink.dirs[id as usize].listing) {
        let is_dir = entry.kind == Kind::Dir;
        let goes = deletes.next_if(|&&at| at == index).is_some();
        count += u64::from(goes);
        if is_dir && (goes || replaced.contains(entry.name)) {
            count += entries_below(sink, child, kept);
        }
        child += u32::from(is_dir);
    }
    count
}

/// Counts the entries below directories that another kind of entry replaces.
pub(crate) fn below_replaced(dir: &PlannedDir, sink: &Tree, kept: &SparedEntries) -> u64 {
    dir.replaced_in(sink).map(|(_, id)| entries_below(sink, id, kept)).sum()
}

/// Counts the entries in a directory of the sink and below, without those that stay.
pub(crate) fn entries_below(tree: &Tree, id: DirId, kept: &SparedEntries) -> u64 {
    let mut count = 0;
    let mut left = vec![id];
    while let Some(id) = left.pop() {
        let dir = &tree.dirs[id as usize];
        if kept.is_empty() {
            count += dir.listing.len() as u64;
            left.extend(dir.first_child..dir.first_child + dir.listing.dirs());
            continue;
        }
        let mut child = dir.first_child;
        for (index, entry) in (0..).zip(&dir.listing) {
            let (goes, is_dir) = (!kept.contains(&(id, index)), entry.kind == Kind::Dir);
            count += u64::from(goes);
            left.extend((goes && is_dir).then_some(child));
            child += u32::from(is_dir);
        }
    }
    count
}

/// Returns the files that are transferred to a directory.
pub(crate) fn to_transfer(dir: &PlannedDir) -> Forecast {
    let (mut files, mut bytes) = (0, 0);
    let mut steps = dir.plan.steps.iter().peekable();
    for (index, entry) in (0..).zip(&dir.listing) {
        if let Some((_, step)) = steps.next_if(|(at, _)| *at == index)
            && let (true, Kind::File { size }) = (*step != Step::Meta, entry.kind)
        {
            files += 1;
            // The lengths come from a peer, so they may add up to more than fits.
            bytes = u64::saturating_add(bytes, size);
        }
    }
    Forecast { files, bytes }
}

/// The results of comparing contents, apart from the steps.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// The number of files that changed at the source meanwhile.
    pub changed: u64,
    /// Files with equal content, and their times, to which another process may have been writing meanwhile.
    pub in_motion: Vec<(RelPath, Time)>,
    /// Files that were not found equal.
    pub unlike: HashSet<PlannedRef>,
}

/// A file of a planned directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PlannedRef {
    /// The index of the directory.
    pub dir: usize,
    /// The file's place in its listing.
    pub index: u32,
}

/// The plan of a run, with the trees that it was made from.
pub(crate) struct Planned {
    /// The source's root and totals.
    pub head: TreeHead,
    pub compared: Compared,
    pub sink: Tree,
    pub checked: Checked,
}

impl Planned {
    /// Returns whether the plan changes anything, including the metadata of the root.
    pub(crate) fn changes_anything(&self) -> bool {
        let Self { head, compared, sink, .. } = self;
        let same_root = (head.root_meta, &head.root_attrs) == (sink.root_meta, &sink.root_attrs);
        !same_root || !compared.moves.is_empty() || compared.dirs.iter().any(|dir| !dir.is_idle())
    }

    /// Yields the entries that cannot be made, because the folders in their places cannot be emptied by a run that may
    /// `delete`.
    pub(crate) fn blocked_by_folders(&self, delete: bool) -> impl Iterator<Item = RelPath> + '_ {
        let Self { compared, sink, .. } = self;
        compared.dirs.iter().flat_map(move |dir| {
            let folders = dir.replaced_in(sink);
            let blocked = folders.filter(move |(_, id)| !is_emptied(sink, &compared.kept, *id, delete));
            blocked.map(move |(name, _)| path_in(&dir.path, name))
        })
    }

    /// Returns whether the plan changes or removes an entry below the root that the sink has.
    pub(crate) fn changes_or_removes_entries(&self) -> bool {
        let is_new = |(_, step): &(u32, Step)| *step == Step::Create;
        let Compared { dirs, moves, .. } = &self.compared;
        let only_adds = |dir: &PlannedDir| dir.plan.deletes.is_empty() && dir.plan.steps.iter().all(is_new);
        !moves.is_empty() || !dirs.iter().all(only_adds)
    }
}
