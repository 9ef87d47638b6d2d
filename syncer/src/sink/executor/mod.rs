//! Carries out planned directories on the destination. Content comes from a [`Fetch`].
//!
//! The folder has a file for each part of the work: entering directories, replacing folders, hard links, deletes, and
//! the end.

mod delete_entries;
mod enter_dir;
mod finish_dirs;
mod make_links;
mod replace_dirs;

use std::{
    collections::{HashMap, HashSet},
    os::fd::BorrowedFd,
    sync::Arc,
};

use crate::{
    attrs::{Attrs, AttrsBuf},
    compare_entries::Step,
    destination::{Destination, EntryAt},
    entry::{Kind, Meta},
    entry_paths::EntryPlace,
    path::RelPath,
    plan::{
        basis_by_content::few,
        basis_by_name::{BasisSearch, NewFile, SimilarFiles, Wanted},
        compare_params::same_meta,
        needed_files::{Aside, Fetch, Need, NeededDir},
        planned::{Compared, MovedDir, PlannedDir, SparedEntries},
        run_state::Run,
    },
    session_error::{SessionError, go_on},
    sink::folder_owner_change::OwnerChange,
    tree::{Tree, dir::DirId},
};

/// The number of new files without similar ones that are collected before only the largest are kept, so that memory
/// does not grow with their number.
const UNLIKE_AT_ONCE: usize = 16 << 10;

/// An entry that replaces a folder, once the folder is empty.
struct PutOff {
    dir: Arc<NeededDir>,
    name: Box<[u8]>,
    /// The folder's number in the sink's tree.
    folder: DirId,
    aside: Arc<Aside>,
}

/// A folder that replaces another entry, which stays until everything in the folder has arrived.
struct FolderOver {
    /// The path of its parent directory.
    dir: RelPath,
    /// The parent directory's inode number.
    dir_inode: u64,
    path: RelPath,
    /// The folder's own inode number.
    inode: u64,
}

/// A further name of a file.
struct HardLink {
    dir: Arc<NeededDir>,
    name: Box<[u8]>,
    to: RelPath,
    replaces: bool,
    /// Its place in staging, if it replaces a folder.
    aside: Option<Arc<Aside>>,
}

/// A directory whose own metadata is set once everything in it has arrived.
struct Unfinished {
    path: RelPath,
    /// Its inode number in the destination.
    inode: Option<u64>,
    meta: Meta,
    /// The attributes to set; `None` if it has the wanted ones already.
    attrs: Option<AttrsBuf>,
}

/// Carries out a plan, in the order of its methods.
pub(crate) struct Executor<'a> {
    destination: &'a Destination,
    run: &'a Run<'a>,
    sink: &'a Tree,
    /// Existing directories that are moved, by their new paths.
    moves: &'a HashMap<RelPath, MovedDir>,
    /// The entries that stay in directories that are deleted.
    kept: &'a SparedEntries,
    /// For each planned directory, whether this process handles its files; `None` if the run is not shared.
    share: Option<Vec<bool>>,
    basis_search: BasisSearch<'a>,
    /// Files that are made from other needed files.
    late: Vec<Need>,
    /// Lists directories that got another owner again.
    owner_change: OwnerChange<'a>,
    /// Directories whose own metadata is set at the end.
    unfinished: Vec<Unfinished>,
    /// Those that existed and whose metadata differs, so that a directory whose entries change too is not set twice.
    expected: HashSet<RelPath>,
    /// The attributes of the last file with any: those of the next are often the same.
    last_attrs: AttrsBuf,
    /// Hard links, which are made once all content has arrived.
    links: Vec<HardLink>,
    /// Entries that replace folders.
    put_off: Vec<PutOff>,
    /// Folders that replace other entries.
    over: Vec<FolderOver>,
    /// The number of these folders that stay, because their deletes were kept back.
    staying: u64,
    /// The number of entries that stay although folders were to replace them.
    files_staying: u64,
    /// Whether deletes were kept back.
    kept_back: bool,
}

/// The entries of a directory to handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryClass {
    All,
    /// Directories.
    Dirs,
    /// All entries except directories.
    Rest,
}

impl EntryClass {
    fn has(self, kind: &Kind<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Dirs => *kind == Kind::Dir,
            Self::Rest => *kind != Kind::Dir,
        }
    }
}

impl<'a> Executor<'a> {
    pub(crate) fn new(
        destination: &'a Destination,
        run: &'a Run<'a>,
        sink: &'a Tree,
        compared: &'a Compared,
    ) -> Self {
        Self {
            destination,
            run,
            sink,
            moves: &compared.moves,
            kept: &compared.kept,
            basis_search: BasisSearch::new(sink),
            late: Vec::new(),
            owner_change: OwnerChange::new(destination, run, sink, compared),
            share: None,
            unfinished: Vec::new(),
            expected: HashSet::new(),
            last_attrs: AttrsBuf::default(),
            links: Vec::new(),
            put_off: Vec::new(),
            over: Vec::new(),
            staying: 0,
            files_staying: 0,
            kept_back: false,
        }
    }

    fn expect(&mut self, path: &RelPath, inode: Option<u64>, meta: Meta, attrs: Attrs<'_>) {
        self.expected.insert(path.clone());
        self.unfinished.push(Unfinished { path: path.clone(), inode, meta, attrs: Some(attrs.into()) });
    }

    /// Leaves the root's own metadata unchanged.
    pub(crate) fn leave_root(&mut self) {
        self.expected.insert(RelPath::root());
    }

    /// Schedules the root's own metadata to be set at the end, unless it is as `wanted` already.
    pub(crate) fn expect_root(&mut self, wanted: Meta, attrs: Attrs<'_>) {
        let have = self.sink.root_meta;
        let settings = self.destination.settings();
        let same_attrs = attrs.same(&self.sink.root_attrs.as_attrs(), settings.attrs);
        if !same_meta(&wanted, &have, settings) || !same_attrs {
            self.expect(&RelPath::root(), None, wanted, attrs);
        }
    }

    /// Limits this process to its share: leaves the entries of planned directories that are false in `share`, and the
    /// directories themselves, to other processes.
    pub(crate) fn take_share(&mut self, share: Vec<bool>) {
        self.share = Some(share);
    }

    /// Yields the planned directories whose entries this process handles.
    pub(crate) fn mine<'p>(
        &self,
        planned: &'p [PlannedDir],
    ) -> impl Iterator<Item = &'p PlannedDir> + use<'p> {
        let share = self.share.clone().unwrap_or_else(|| vec![true; planned.len()]);
        planned.iter().zip(share).filter_map(|(dir, mine)| mine.then_some(dir))
    }

    /// Returns the new files that resemble no file of the destination in name or time, and that are large enough for a
    /// search by content.
    pub(crate) fn unlike_any<'p>(
        &mut self,
        planned: &'p [PlannedDir],
    ) -> Result<Vec<NewFile<'p>>, SessionError> {
        let mut unlike = Vec::new();
        for dir in self.mine(planned) {
            let mut steps = dir.plan.steps.iter().peekable();
            for (index, entry) in (0..).zip(&dir.listing) {
                self.check()?;
                let Some(&(_, step)) = steps.next_if(|(at, _)| *at == index) else { continue };
                if let (Step::Create | Step::Replace { was_dir: false }, Kind::File { size }) =
                    (step, entry.kind)
                {
                    let place = EntryPlace { dir: dir.source, index };
                    let wanted = Wanted { entry: &entry, len: size, from: place, to: dir.sink };
                    let file = NewFile { place, size, dir: &dir.path, name: entry.name };
                    unlike.extend(self.basis_search.is_unlike_any(&wanted).then_some(file));
                    if unlike.len() >= UNLIKE_AT_ONCE {
                        unlike = few(unlike);
                    }
                }
            }
        }
        Ok(unlike)
    }

    /// Sets the similar files that new files are made from.
    pub(crate) fn make_from(&mut self, alike: SimilarFiles) {
        self.basis_search.alike = alike;
    }

    /// Creates and moves directories only: the first phase of a run that several processes share.
    pub(crate) fn make_dirs(&mut self, planned: &[PlannedDir]) -> Result<(), SessionError> {
        for dir in planned {
            self.check()?;
            self.destination.still_held()?;
            self.enter(dir, EntryClass::Dirs, &mut |_| Ok(()))?;
        }
        Ok(())
    }

    /// Makes directories, links and nodes, changes metadata, and requests the content of files. Returns when all
    /// content has arrived.
    pub(crate) fn transfer(
        &mut self,
        planned: &[PlannedDir],
        fetch: &mut dyn Fetch,
    ) -> Result<(), SessionError> {
        let class = if self.share.is_none() { EntryClass::All } else { EntryClass::Rest };
        for dir in self.mine(planned) {
            self.check()?;
            self.destination.still_held()?;
            self.enter(dir, class, &mut |needs| fetch.fetch(needs))?;
        }
        fetch.finish(std::mem::take(&mut self.late))
    }

    /// Checks whether the run was told to stop.
    fn check(&self) -> Result<(), SessionError> {
        go_on(self.run.monitor)
    }

    /// Returns the inode number of a planned directory, if it existed when the destination was scanned.
    fn inode_of(&self, dir: &PlannedDir) -> Option<u64> {
        dir.sink.map(|id| self.sink.dirs[id as usize].inode)
    }

    fn entry_at<'e>(&self, dir: BorrowedFd<'e>, path: &'e RelPath, name: &'e [u8]) -> EntryAt<'e>
    where
        'a: 'e,
    {
        EntryAt::new(dir, path, name, self.run.monitor)
    }

    /// Returns the number of the sink's directory of this name.
    fn sink_child(&self, dir: &PlannedDir, name: &[u8]) -> Option<DirId> {
        let there = &self.sink.dirs[dir.sink? as usize];
        there.children().find(|(child, _)| *child == name).map(|(_, id)| id)
    }
}
