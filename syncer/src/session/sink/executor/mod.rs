//! Planned directories → a changed destination. Content comes from a [`Fetch`].
//!
//! The folder has a file for each part of the work: entering directories, what replaces folders, hard links, deletes,
//! and the end.

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

use contract::RunParams;

use crate::{
    apply::EntryAt,
    attrs::{Attrs, AttrsBuf},
    entry::{Kind, Meta},
    path::RelPath,
    plan::Step,
    session::{
        plan::{
            basis_search::{BasisSearch, NewFile, SimilarFiles, Wanted},
            need::{Aside, Fetch, Need, NeededDir},
            planned::{Compared, MovedDir, PlannedDir, SparedEntries},
            policy::same_meta,
            similar::few,
        },
        session_error::{SessionError, go_on},
        sink::{context::Context, owner_change::OwnerChange},
    },
    tree::{Tree, dir::DirId},
};

/// Keeps the largest of the new files that are like none as soon as there are this many, so that memory does not grow
/// with their number.
const UNLIKE_AT_ONCE: usize = 16 << 10;

/// An entry that replaces a folder.
struct PutOff {
    dir: Arc<NeededDir>,
    name: Box<[u8]>,
    /// The folder's number at the sink.
    folder: DirId,
    aside: Arc<Aside>,
}

/// A folder that replaces something else, which stays until all that is in the folder has arrived.
struct FolderOver {
    /// The directory that it goes into.
    dir: RelPath,
    /// That one's number in the destination's file system.
    dir_inode: u64,
    path: RelPath,
    /// The folder's own number there.
    inode: u64,
}

/// One more name of a file.
struct HardLink {
    dir: Arc<NeededDir>,
    name: Box<[u8]>,
    to: RelPath,
    replaces: bool,
    /// Where it waits in staging, if it replaces a folder.
    aside: Option<Arc<Aside>>,
}

/// A directory whose own metadata is set when all that is in it is there.
struct Unfinished {
    path: RelPath,
    /// Its number in the destination's file system.
    inode: Option<u64>,
    meta: Meta,
    /// `None` where it has the attributes that it shall have.
    attrs: Option<AttrsBuf>,
}

/// Applies a plan, in the order of its methods.
pub(crate) struct Executor<'a> {
    context: Context<'a>,
    sink: &'a Tree,
    /// Where directories come from that are there already, by where they go.
    moves: &'a HashMap<RelPath, MovedDir>,
    /// What stays of the directories that go.
    kept: &'a SparedEntries,
    params: &'a RunParams,
    /// Which of the planned directories have their files done here; all where several processes do not share the run.
    share: Option<Vec<bool>>,
    basis_search: BasisSearch<'a>,
    /// Files that are made from others that are needed.
    late: Vec<Need>,
    /// Looks again at directories that get another owner.
    owner_change: OwnerChange<'a>,
    /// Directories whose own metadata is set at the end.
    unfinished: Vec<Unfinished>,
    /// Those of them that were there and whose metadata differs, so that one whose entries change too is not set twice.
    expected: HashSet<RelPath>,
    /// The attributes of the last file that has any: those of the next are often the same.
    last_attrs: AttrsBuf,
    /// Hard links, made when all content is there.
    links: Vec<HardLink>,
    /// What replaces folders.
    put_off: Vec<PutOff>,
    /// Folders that replace something else.
    over: Vec<FolderOver>,
    /// How many of those folders stay, because their deletes were kept back.
    staying: u64,
    /// How many entries stay that folders were to replace.
    files_staying: u64,
    /// Whether deletes were kept back.
    kept_back: bool,
}

/// Which of a directory's entries something is done with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryClass {
    All,
    /// Directories.
    Dirs,
    /// What is not a directory.
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
        context: Context<'a>,
        sink: &'a Tree,
        compared: &'a Compared,
        params: &'a RunParams,
    ) -> Self {
        Self {
            context,
            sink,
            moves: &compared.moves,
            kept: &compared.kept,
            params,
            basis_search: BasisSearch::new(sink),
            late: Vec::new(),
            owner_change: OwnerChange::new(context, sink, compared, params.delete),
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

    /// Leaves the root's own metadata as it becomes.
    pub(crate) fn leave_root(&mut self) {
        self.expected.insert(RelPath::root());
    }

    /// Has the root's own metadata set at the end, where it is not `wanted` already.
    pub(crate) fn expect_root(&mut self, wanted: Meta, attrs: Attrs<'_>) {
        let have = self.sink.root_meta;
        let settings = self.context.destination.settings();
        let same_attrs = attrs.same(&self.sink.root_attrs.as_attrs(), settings.attrs);
        if !same_meta(&wanted, &have, settings) || !same_attrs {
            self.expect(&RelPath::root(), None, wanted, attrs);
        }
    }

    /// Leaves to other processes what is in the planned directories that are false in `share`, and the directories
    /// themselves.
    pub(crate) fn take_share(&mut self, share: Vec<bool>) {
        self.share = Some(share);
    }

    /// Those of the planned directories whose entries are done here.
    pub(crate) fn mine<'p>(
        &self,
        planned: &'p [PlannedDir],
    ) -> impl Iterator<Item = &'p PlannedDir> + use<'p> {
        let share = self.share.clone().unwrap_or_else(|| vec![true; planned.len()]);
        planned.iter().zip(share).filter_map(|(dir, mine)| mine.then_some(dir))
    }

    /// The new files that no file of the destination is like in name or time, and that are large enough to look
    /// further.
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
                    let place = (dir.source, index);
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

    /// Has new files made from what is like them.
    pub(crate) fn make_from(&mut self, alike: SimilarFiles) {
        self.basis_search.alike = alike;
    }

    /// Makes and moves directories, and nothing else: the first part of a run that several processes share.
    pub(crate) fn make_dirs(&mut self, planned: &[PlannedDir]) -> Result<(), SessionError> {
        for dir in planned {
            self.check()?;
            self.context.destination.still_held()?;
            self.enter(dir, EntryClass::Dirs, &mut |_| Ok(()))?;
        }
        Ok(())
    }

    /// Makes directories, links and nodes, changes metadata, and asks for the content of files. Returns when all
    /// content is there.
    pub(crate) fn transfer(
        &mut self,
        planned: &[PlannedDir],
        fetch: &mut dyn Fetch,
    ) -> Result<(), SessionError> {
        let class = if self.share.is_none() { EntryClass::All } else { EntryClass::Rest };
        for dir in self.mine(planned) {
            self.check()?;
            self.context.destination.still_held()?;
            self.enter(dir, class, &mut |needs| fetch.fetch(needs))?;
        }
        fetch.finish(std::mem::take(&mut self.late))
    }

    /// Looks whether the run was told to stop.
    fn check(&self) -> Result<(), SessionError> {
        go_on(self.context.monitor)
    }

    /// The number of a planned directory in the destination's file system, if it was there when that was scanned.
    fn inode_of(&self, dir: &PlannedDir) -> Option<u64> {
        dir.sink.map(|id| self.sink.dirs[id as usize].inode)
    }

    fn entry_at<'e>(&self, dir: BorrowedFd<'e>, path: &'e RelPath, name: &'e [u8]) -> EntryAt<'e>
    where
        'a: 'e,
    {
        EntryAt::new(dir, path, name, self.context.monitor)
    }

    /// The number of the sink's directory of this name.
    fn sink_child(&self, dir: &PlannedDir, name: &[u8]) -> Option<DirId> {
        let there = &self.sink.dirs[dir.sink? as usize];
        there.children().find(|(child, _)| *child == name).map(|(_, id)| id)
    }
}
