//! Planned directories → a changed destination. Content comes from a [`Fetch`].

use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
};

use contract::{DeleteTiming, RunParams, plural};
use rustix::io::Errno;

use crate::{
    apply::{EntryAt, FolderMeta, open_dir_in},
    attrs::{Attrs, AttrsBuf},
    entry::{Entry, Kind, Meta, Owner, Time},
    path::RelPath,
    plan::Step,
    root::Root,
    session::{
        plan::{
            basis_search::{BasisSearch, NewFile, SimilarFiles, Wanted},
            folder_fill::FolderFill,
            need::{Aside, Fetch, Need, NeededDir, OldVersion},
            planned::{
                Compared, MovedDir, PlannedDir, SparedEntries, below_replaced, deletes_in, entries_below,
                file_in, is_emptied, path_in,
            },
            policy::same_meta,
            similar::few,
        },
        session_error::{SessionError, go_on},
        sink::{context::Context, owner_change::OwnerChange},
    },
    tree::{Tree, dir::DirId},
};

/// Files of one directory are asked for by so many, so that memory does not grow with the directory, and the first are
/// sent while the rest is planned.
const NEEDS_AT_ONCE: usize = 4096;

/// When so many new files were found that are like none, the largest are kept: memory does not grow with how many there
/// are.
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

/// What waits beside its place goes with a run that does not get so far as to put it there.
impl Drop for Executor<'_> {
    fn drop(&mut self) {
        self.put_off.iter().for_each(|put_off| self.drop_beside(put_off));
        let destination = self.context.destination;
        for folder in self.over.iter().filter(|folder| destination.root().kept_beside(&folder.path).is_some())
        {
            if let Err(error) = destination.drop_aside(&folder.path) {
                tracing::warn!(path = %folder.path, %error, "a folder that was not complete is left beside its place");
            }
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

    /// Looks whether the run was told to stop.
    fn check(&self) -> Result<(), SessionError> {
        go_on(self.context.monitor)
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

    /// Has the folders that replace something else filled in staging; to be called before any is made.
    pub(crate) fn keep_aside(&self, planned: &[PlannedDir]) -> Result<(), SessionError> {
        for dir in planned {
            let over = |(step, entry): &(Step, Entry<'_>)| {
                matches!(step, Step::Replace { .. }) && entry.kind == Kind::Dir
            };
            for (_, entry) in dir.steps().filter(over) {
                self.context.destination.keep_aside(&path_in(&dir.path, entry.name))?;
            }
        }
        Ok(())
    }

    /// Puts the folders that were filled in staging in the places of what they replace, unless `failed` entries of the
    /// whole run keep that back. Nothing is deleted before: what is in them may have come from a file that goes.
    pub(crate) fn put_folders(&mut self, failed: u64) -> Result<(), SessionError> {
        let destination = self.context.destination;
        let keeps_back = self.keeps_back(failed);
        for folder in std::mem::take(&mut self.over) {
            self.check()?;
            destination.still_held()?;
            let done = match keeps_back {
                true => destination.drop_aside(&folder.path),
                false => self.put_folder(&folder),
            };
            match done {
                Ok(()) if !keeps_back => self.context.counters.count(true),
                Ok(()) => self.files_staying += 1,
                Err(error) => self.context.failures.add(&folder.path, "make way", &error),
            }
            if keeps_back {
                self.unfinished.retain(|dir| !dir.path.starts_with(&folder.path));
            }
        }
        Ok(())
    }

    fn put_folder(&self, folder: &FolderOver) -> io::Result<()> {
        let FolderOver { dir, dir_inode, path, inode } = folder;
        let destination = self.context.destination;
        let (_, name) = path.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        let fd = destination.known_dir(dir, Some(*dir_inode))?;
        destination.publish_dir(path, *inode, self.entry_at(fd.as_fd(), dir, name))
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

    /// Makes directories, links and nodes, changes metadata, and asks for the content of files. Returns when all
    /// content is there.
    pub(crate) fn transfer(
        &mut self,
        planned: &[PlannedDir],
        fetch: &mut dyn Fetch,
    ) -> Result<(), SessionError> {
        let part = if self.share.is_none() { EntryClass::All } else { EntryClass::Rest };
        for dir in self.mine(planned) {
            self.check()?;
            self.context.destination.still_held()?;
            self.enter(dir, part, &mut |needs| fetch.fetch(needs))?;
        }
        fetch.finish(std::mem::take(&mut self.late))
    }

    /// Makes hard links to files that are at their places; the others follow in [`Self::link_to_replaced`].
    pub(crate) fn make_links(&mut self, planned: &[PlannedDir]) -> Result<(), SessionError> {
        if self.links.is_empty() {
            return Ok(());
        }
        let destination = self.context.destination;
        let (mut from, mut to) = (LastPath::default(), LastPath::default());
        let keeps_owners = destination.settings().owners;
        let mut leaders = Leaders::new(planned, self.sink);
        let replaced = paths_of_replaced(planned);
        for link in std::mem::take(&mut self.links) {
            self.check()?;
            if replaced.contains(&link.to) {
                continue;
            }
            let made =
                link.to.split_last().ok_or(io::ErrorKind::InvalidInput.into()).and_then(|(dir, target)| {
                    let from = from.open(destination.root(), &dir)?;
                    let owner = keeps_owners.then(|| leaders.owner(&dir, target)).flatten();
                    let Some(aside) = &link.aside else {
                        let to = to.open(destination.root(), &link.dir.path)?;
                        destination.check_known(to, Some(link.dir.inode))?;
                        let at = EntryAt::new(to, &link.dir.path, &link.name, self.context.monitor);
                        return destination.link(from, target, owner, at);
                    };
                    let at = match aside.beside {
                        true => aside.at(destination, to.open(destination.root(), &link.dir.path)?),
                        false => aside.at(destination, from),
                    };
                    destination.link(from, target, owner, at)?;
                    aside.has_arrived(destination.inode_of_aside(at)?);
                    Ok(())
                });
            match (made, &link.aside) {
                (Ok(()), Some(_)) => {}
                (Ok(()), None) => self.context.counters.count(link.replaces),
                (Err(error), _) => {
                    self.context.failures.add(&path_in(&link.dir.path, &link.name), "link", &error);
                }
            }
        }
        Ok(())
    }

    /// Deletes what the source does not have, before there is any content, unless `failed` entries of the whole run
    /// keep that back.
    pub(crate) fn delete_first(&mut self, planned: &[PlannedDir], failed: u64) -> Result<(), SessionError> {
        if self.keeps_back(failed) {
            let deletes = planned.iter().map(|dir| self.deletes_alone(dir)).sum();
            self.context.counters.keep_back(deletes, failed);
            return Ok(());
        }
        let destination = self.context.destination;
        let mut unlocked = Vec::new();
        for dir in planned.iter().filter(|dir| dir.sink.is_some() && dir.plan.changes_entries()) {
            self.check()?;
            destination.still_held()?;
            let inode = self.inode_of(dir);
            let fd = destination.known_dir(&dir.path, inode);
            match fd.and_then(|fd| destination.unlock_dir(fd.as_fd())) {
                Ok(mode) => unlocked.push((&dir.path, inode, mode)),
                // It fails again, and is named, when it is entered.
                Err(_) => continue,
            }
            self.delete_in(dir);
        }
        for (path, inode, mode) in unlocked.into_iter().rev() {
            let locked =
                destination.known_dir(path, inode).and_then(|fd| destination.lock_dir(fd.as_fd(), mode));
            if let Err(error) = locked {
                self.context.failures.add(path, "set metadata", &error);
            }
        }
        Ok(())
    }

    /// How many entries go that nothing replaces.
    fn deletes_alone(&self, dir: &PlannedDir) -> u64 {
        deletes_in(dir, self.sink, self.kept) - below_replaced(dir, self.sink, self.kept)
    }

    /// Whether `failed` entries keep deletes back.
    fn keeps_back(&self, failed: u64) -> bool {
        failed > 0 && !self.params.delete_anyway
    }

    /// Puts what replaces folders in its place, and deletes, unless `failed` entries of the whole run keep that back.
    pub(crate) fn replace_and_delete(
        &mut self,
        planned: &[PlannedDir],
        failed: u64,
    ) -> Result<(), SessionError> {
        let keeps_back = self.keeps_back(failed);
        let was_first = self.params.delete_timing == DeleteTiming::Before;
        if keeps_back {
            self.kept_back = true;
            let deletes = self.mine(planned).map(|dir| match was_first {
                true => below_replaced(dir, self.sink, self.kept),
                false => deletes_in(dir, self.sink, self.kept),
            });
            let deletes = deletes.sum();
            self.context.counters.keep_back(deletes, failed);
        }
        self.put_off.reverse();
        while !self.put_off.is_empty() {
            self.check()?;
            self.context.destination.still_held()?;
            if let Some(put_off) = self.put_off.pop() {
                self.replace_folder(&put_off, keeps_back);
            }
        }
        if keeps_back || was_first {
            return Ok(());
        }
        for dir in self.mine(planned) {
            self.context.destination.still_held()?;
            self.delete_in(dir);
            self.check()?;
        }
        Ok(())
    }

    /// Makes the hard links of the whole plan to files that replace folders, when those are at their places.
    pub(crate) fn link_to_replaced(&self, planned: &[PlannedDir]) -> Result<(), SessionError> {
        let replaced = paths_of_replaced(planned);
        if replaced.is_empty() || self.kept_back {
            return Ok(());
        }
        let mut leaders = Leaders::new(planned, self.sink);
        for dir in planned {
            for (step, entry) in dir.steps() {
                let Kind::HardLink { to } = entry.kind else { continue };
                let to = RelPath::parse(to).unwrap_or_default();
                if !replaced.contains(&to) {
                    continue;
                }
                self.check()?;
                match self.link_late(dir, step, &entry, &to, &mut leaders) {
                    Ok(()) => self.context.counters.count(step != Step::Create),
                    Err(error) => {
                        self.context.failures.add(&path_in(&dir.path, entry.name), "link", &error);
                    }
                }
            }
        }
        Ok(())
    }

    fn link_late(
        &self,
        dir: &PlannedDir,
        step: Step,
        entry: &Entry<'_>,
        to: &RelPath,
        leaders: &mut Leaders<'_>,
    ) -> io::Result<()> {
        let destination = self.context.destination;
        let fd = destination.known_dir(&dir.path, self.inode_of(dir))?;
        if step == (Step::Replace { was_dir: true })
            && let Some(folder) = self.sink_child(dir, entry.name)
        {
            self.empty_folder(self.entry_at(fd.as_fd(), &dir.path, entry.name), folder)?;
        }
        let (from, target) = to.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        let owner = leaders.owner(&from, target);
        let at = self.entry_at(fd.as_fd(), &dir.path, entry.name);
        destination.link(destination.dir(&from)?.as_fd(), target, owner, at)
    }

    /// Puts one entry in the place of a folder. A folder that deletes are kept back in stays, unless it is empty.
    fn replace_folder(&mut self, put_off: &PutOff, keeps_back: bool) {
        let PutOff { dir, name, folder, aside } = put_off;
        let Some(inode) = aside.arrived.get() else { return };
        if keeps_back && entries_below(self.sink, *folder, self.kept) > 0 {
            self.staying += 1;
            return self.drop_beside(put_off);
        }
        let path = path_in(&dir.path, name);
        let destination = self.context.destination;
        let replaced = destination.known_dir(&dir.path, Some(dir.inode)).and_then(|fd| {
            let at = self.entry_at(fd.as_fd(), &dir.path, name);
            self.empty_folder(at, *folder)?;
            destination.publish_aside(aside.at(destination, fd.as_fd()), *inode, at)
        });
        if replaced.is_err() {
            self.drop_beside(put_off);
        }
        match replaced {
            Ok(()) => self.context.counters.count(true),
            Err(_) if self.context.monitor.cancelled() => {}
            Err(error) => self.context.failures.add(&path, "make way", &error),
        }
    }

    /// Removes an entry that waits beside the folder that it does not replace after all.
    fn drop_beside(&self, put_off: &PutOff) {
        let PutOff { dir, aside, .. } = put_off;
        let destination = self.context.destination;
        if aside.beside
            && let Ok(fd) = destination.known_dir(&dir.path, Some(dir.inode))
        {
            destination.drop_entry_aside(aside.at(destination, fd.as_fd()));
        }
    }

    /// Sets the metadata of directories, the deepest first. Returns what is to be noted in the report.
    pub(crate) fn finish(&mut self) -> Result<Vec<String>, SessionError> {
        let mut notes = Vec::new();
        for Unfinished { path, inode, meta, attrs } in std::mem::take(&mut self.unfinished).into_iter().rev()
        {
            self.check()?;
            let attrs = attrs.as_ref().map(AttrsBuf::as_attrs);
            match self.context.destination.finish_dir(&path, inode, &meta, attrs) {
                // The root's own metadata may be all that a run has changed.
                Ok(opened) => {
                    if path.is_root() {
                        self.context.destination.begin()?;
                    }
                    let has_deleted = self.params.delete && !self.kept_back;
                    let looked = opened.map(|dir| self.owner_change.look(&path, &dir, has_deleted));
                    if let Some(Err(error)) = looked {
                        self.context.failures.add(&path, "look again into", &error);
                    }
                }
                // A volume's root often belongs to somebody else; that is no fault of the run.
                Err(error) if path.is_root() => {
                    let user = rustix::process::geteuid().as_raw();
                    notes.push(format!(
                        "the metadata of the volume's root folder could not be set: {error}; give the folder to user {user}, run \
                         as root, or sync into a folder below it"
                    ));
                }
                Err(error) => self.context.failures.add(&path, "set metadata", &error),
            }
        }
        notes.extend(self.finish_backup());
        notes.extend(self.owner_change.note());
        if self.staying > 0 {
            let (one, many) = ("folder stays", "folders stay");
            let staying = plural(self.staying, one, many);
            notes.push(format!("{staying} that something else is to replace: deletes were kept back"));
        }
        if self.files_staying > 0 {
            let staying = match self.files_staying {
                1 => "1 entry stays that a folder is to replace".into(),
                more => format!("{more} entries stay that folders are to replace"),
            };
            notes.push(format!(
                "{staying}, and what was brought for it was dropped: its delete was kept back"
            ));
        }
        notes.extend(self.context.destination.not_kept());
        self.context.destination.still_held()?;
        Ok(notes)
    }

    /// Gives the folders of the backup folder the metadata that the scan found. Returns a note for the report.
    fn finish_backup(&self) -> Option<String> {
        let destination = self.context.destination;
        let error = destination.backup()?.finish(|dir, names| self.folders_before(dir, names)).err()?;
        Some(format!("folders in the backup folder did not get their metadata: {error}"))
    }

    /// The metadata that the folders of these `names`, in order, had in the directory `dir` of the destination.
    fn folders_before(&self, dir: &RelPath, names: &[&[u8]]) -> Vec<Option<FolderMeta>> {
        let found = self.sink.find(dir).filter(|_| self.context.destination.settings().permissions);
        let listing = found.map(|id| &self.sink.dirs[id as usize].listing);
        let mut folders = listing.into_iter().flatten().filter(|entry| entry.kind == Kind::Dir).peekable();
        let before = |name: &&[u8]| {
            while folders.next_if(|folder| folder.name < *name).is_some() {}
            let folder = folders.next_if(|folder| folder.name == *name)?;
            Some((folder.meta, folder.attrs.into()))
        };
        names.iter().map(before).collect()
    }

    /// Does what can be done at once in one directory, and has the content of files fetched that need it.
    fn enter(
        &mut self,
        dir: &PlannedDir,
        part: EntryClass,
        fetch: &mut dyn FnMut(Vec<Need>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let changes = dir.plan.changes_entries();
        // One that was just made is on the list already.
        if part != EntryClass::Rest && changes && dir.sink.is_some() && !self.expected.contains(&dir.path) {
            let inode = self.inode_of(dir);
            self.unfinished.push(Unfinished { path: dir.path.clone(), inode, meta: dir.meta, attrs: None });
        }
        if dir.plan.steps.is_empty() && dir.plan.deletes.is_empty() {
            return Ok(());
        }
        let opened = match self.open(dir, changes) {
            Ok(opened) => opened,
            Err(error) => {
                self.context.failures.add(&dir.path, "open directory", &error);
                return Ok(());
            }
        };
        let (opened, inode) = opened;
        let fill = FolderFill::of(dir);
        let target = Arc::new(NeededDir { source: dir.source, path: dir.path.clone(), inode, fill });
        let mut needs = Vec::new();
        let mut steps = dir.plan.steps.iter().peekable();
        let mut there = dir.sink.map(|id| self.sink.dirs[id as usize].listing.iter().peekable());
        for (index, entry) in (0..).zip(&dir.listing) {
            let Some(&(_, step)) = steps.next_if(|(at, _)| *at == index) else { continue };
            if !part.has(&entry.kind) {
                continue;
            }
            self.check()?;
            let attrs = self.keep(entry.attrs);
            let aside = match step {
                Step::Replace { was_dir: true } => match self.put_off(dir, &target, opened.as_fd(), &entry) {
                    Some(aside) => Some(aside),
                    None => continue,
                },
                _ => None,
            };
            let need = |size, old| Need {
                dir: Arc::clone(&target),
                index,
                name: entry.name.into(),
                meta: entry.meta,
                attrs: attrs.clone(),
                size,
                replaces: step != Step::Create,
                old,
                aside: aside.clone(),
            };
            match (step, entry.kind) {
                (Step::Create | Step::Replace { was_dir: false }, Kind::File { size }) => {
                    let wanted = Wanted { entry: &entry, len: size, from: (dir.source, index), to: dir.sink };
                    let old = self.basis_search.find(&wanted, self.context.counters);
                    match old.as_ref().is_some_and(|old| old.is_coming) {
                        true => self.late.push(need(size, old)),
                        false => needs.push(need(size, old)),
                    }
                }
                (Step::Update, Kind::File { size }) => {
                    let old = there.as_mut().and_then(|there| file_in(there, entry.name)).map(|(len, _)| len);
                    let path = path_in(&dir.path, entry.name);
                    needs.push(need(size, old.map(|len| OldVersion::version(path, len))));
                }
                (Step::Meta, Kind::File { size }) => {
                    let seen = there.as_mut().and_then(|there| file_in(there, entry.name));
                    if self.context.destination.needs_content(opened.as_fd(), &entry)
                        && let Some((len, _)) = seen
                    {
                        needs
                            .push(need(size, Some(OldVersion::version(path_in(&dir.path, entry.name), len))));
                        continue;
                    }
                    self.set_meta(dir, opened.as_fd(), &entry, seen.map(|(_, mtime)| mtime));
                }
                (Step::Replace { was_dir: true }, Kind::File { size }) => needs.push(need(size, None)),
                (_, Kind::HardLink { to }) if step != Step::Meta => {
                    let (dir, name) = (Arc::clone(&target), entry.name.into());
                    let to = RelPath::parse(to).unwrap_or_default();
                    self.links.push(HardLink { dir, name, to, replaces: step != Step::Create, aside });
                }
                _ => match aside {
                    Some(aside) => self.make_aside(dir, opened.as_fd(), &entry, &aside),
                    None => self.apply(dir, opened.as_fd(), &entry, step),
                },
            }
            if needs.len() >= NEEDS_AT_ONCE {
                fetch(std::mem::take(&mut needs))?;
            }
        }
        if needs.is_empty() { Ok(()) } else { fetch(needs) }
    }

    /// The number of a planned directory in the destination's file system, if it was there when that was scanned.
    fn inode_of(&self, dir: &PlannedDir) -> Option<u64> {
        dir.sink.map(|id| self.sink.dirs[id as usize].inode)
    }

    /// Opens a directory to work in. Also returns its inode number.
    fn open(&mut self, dir: &PlannedDir, changes: bool) -> io::Result<(OwnedFd, u64)> {
        let destination = self.context.destination;
        let opened = destination.known_dir(&dir.path, self.inode_of(dir))?;
        if changes && dir.sink.is_some() {
            let mode = destination.unlock_dir(opened.as_fd())?;
            if !destination.settings().permissions {
                self.keep_mode(&dir.path, mode);
            }
        }
        let inode = destination.check_known(opened.as_fd(), self.inode_of(dir))?;
        Ok((opened, inode))
    }

    /// Sets the metadata of a file whose content stays.
    fn set_meta(&self, dir: &PlannedDir, fd: BorrowedFd<'_>, entry: &Entry<'_>, seen: Option<Time>) {
        match self.context.destination.set_meta(fd, entry, seen) {
            Ok(()) => self.context.counters.count(true),
            Err(error) => {
                self.context.failures.add(&path_in(&dir.path, entry.name), "set metadata", &error);
            }
        }
    }

    /// Has a directory that was unlocked get its own mode back at the end.
    fn keep_mode(&mut self, path: &RelPath, mode: u16) {
        let mut unfinished = self.unfinished.iter_mut().rev();
        if let Some(unfinished) = unfinished.find(|unfinished| unfinished.path == *path) {
            unfinished.meta.mode = mode;
        }
    }

    fn keep(&mut self, attrs: Attrs<'_>) -> AttrsBuf {
        if attrs.is_empty() {
            return AttrsBuf::default();
        }
        if self.last_attrs.as_attrs() != attrs {
            self.last_attrs = attrs.into();
        }
        self.last_attrs.clone()
    }

    /// Gives an entry that replaces a folder a place to wait at. `None` where the folder cannot be emptied, which is a
    /// failure.
    fn put_off(
        &mut self,
        dir: &PlannedDir,
        target: &Arc<NeededDir>,
        fd: BorrowedFd<'_>,
        entry: &Entry<'_>,
    ) -> Option<Arc<Aside>> {
        let folder = self.sink_child(dir, entry.name)?;
        if !is_emptied(self.sink, self.kept, folder, self.params.delete) {
            let error = io::Error::from(Errno::NOTEMPTY);
            self.context.failures.add(&path_in(&dir.path, entry.name), "make way", &error);
            return None;
        }
        let state = self.context.destination.state();
        let beside = state.is_beyond(fd);
        let name = if beside { state.name_beside() } else { state.fresh_name() };
        let aside = Arc::new(Aside { name, beside, arrived: OnceLock::new() });
        let (dir, name) = (Arc::clone(target), entry.name.into());
        self.put_off.push(PutOff { dir, name, folder, aside: Arc::clone(&aside) });
        Some(aside)
    }

    /// Makes a symbolic link, a pipe or a device that replaces a folder.
    fn make_aside(&self, dir: &PlannedDir, fd: BorrowedFd<'_>, entry: &Entry<'_>, aside: &Aside) {
        let destination = self.context.destination;
        let at = aside.at(destination, fd);
        let made = destination.make_node(at, entry).and_then(|()| destination.inode_of_aside(at));
        match made {
            Ok(inode) => aside.has_arrived(inode),
            Err(error) => self.context.failures.add(&path_in(&dir.path, entry.name), "make node", &error),
        }
    }

    /// Does what takes no other file's content.
    fn apply(&mut self, dir: &PlannedDir, fd: BorrowedFd<'_>, entry: &Entry<'_>, step: Step) {
        let path = path_in(&dir.path, entry.name);
        let done = match (step, entry.kind) {
            (Step::Meta, Kind::Dir) => {
                let id = self.sink_child(dir, entry.name);
                let inode = id.map(|id| self.sink.dirs[id as usize].inode);
                self.expect(&path, inode, entry.meta, entry.attrs);
                Ok(())
            }
            (Step::Meta, _) => self.context.destination.set_meta(fd, entry, None),
            (_, Kind::Dir) => self.make_folder(fd, entry, step, &path).map(|inode| {
                let (inode, attrs) = (Some(inode), Some(entry.attrs.into()));
                self.unfinished.push(Unfinished { path: path.clone(), inode, meta: entry.meta, attrs });
            }),
            _ => self.context.destination.make_node(self.entry_at(fd, &dir.path, entry.name), entry),
        };
        match done {
            // It is counted when it comes to its place.
            Ok(()) if matches!((step, entry.kind), (Step::Replace { .. }, Kind::Dir)) => {}
            Ok(()) => self.context.counters.count(step != Step::Create),
            Err(error) => self.context.failures.add(&path, operation(step, &entry.kind), &error),
        }
    }

    /// Makes a folder, or moves it to its place; one that replaces something is made aside. Returns its inode number.
    fn make_folder(
        &mut self,
        fd: BorrowedFd<'_>,
        entry: &Entry<'_>,
        step: Step,
        path: &RelPath,
    ) -> io::Result<u64> {
        let destination = self.context.destination;
        if let Some(moved) = self.moves.get(path) {
            return self.move_dir(moved, path);
        }
        if !matches!(step, Step::Replace { .. }) {
            return destination.make_dir(fd, entry.name);
        }
        let inode = destination.make_dir_aside(fd, path)?;
        let (dir, _) = path.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        let dir_inode = destination.check_known(fd, Some(rustix::fs::fstat(fd)?.st_ino))?;
        self.over.push(FolderOver { dir, dir_inode, path: path.clone(), inode });
        Ok(inode)
    }

    fn move_dir(&self, moved: &MovedDir, to: &RelPath) -> io::Result<u64> {
        let inode = self.context.destination.move_dir(&moved.from, to)?;
        moved.count(self.context.counters);
        Ok(inode)
    }

    /// Removes a folder that something else replaces, with what is in it.
    fn empty_folder(&self, at: EntryAt<'_>, id: DirId) -> io::Result<()> {
        match self.params.delete {
            true => self.delete_dir(at, id),
            false => self.context.destination.remove_dir(at),
        }
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

    fn delete_in(&self, dir: &PlannedDir) {
        let (Some(id), false) = (dir.sink, dir.plan.deletes.is_empty()) else { return };
        let there = &self.sink.dirs[id as usize];
        let fd = match self.context.destination.known_dir(&dir.path, Some(there.inode)) {
            Ok(fd) => fd,
            Err(error) => return self.context.failures.add(&dir.path, "open directory", &error),
        };
        let mut deletes = dir.plan.deletes.iter().peekable();
        let mut child = there.first_child;
        for (index, entry) in (0..).zip(&there.listing) {
            if deletes.next_if(|&&at| at == index).is_some() {
                if self.check().is_err() {
                    return;
                }
                self.delete_entry(self.entry_at(fd.as_fd(), &dir.path, entry.name), &entry, child);
            }
            child += u32::from(entry.kind == Kind::Dir);
        }
    }

    fn delete_entry(&self, at: EntryAt<'_>, entry: &Entry<'_>, child: DirId) {
        let destination = self.context.destination;
        let deleted = match entry.kind {
            Kind::Dir => self.delete_dir(at, child),
            _ => destination.remove_file(at),
        };
        match deleted {
            Ok(()) => {
                self.context.counters.deleted.fetch_add(1, Relaxed);
            }
            Err(_) if self.context.monitor.cancelled() => {}
            // What is left in it is excluded from the run, or came after the scan: not the run's to delete.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                tracing::info!(path = %at.path(), "kept: it holds entries that are not part of the run");
            }
            Err(error) => self.context.failures.add(&at.path(), "delete", &error),
        }
    }

    /// Deletes a directory with what the scan found in it. One that holds anything else stays, with its mode.
    fn delete_dir(&self, at: EntryAt<'_>, id: DirId) -> io::Result<()> {
        let destination = self.context.destination;
        let fd = open_dir_in(at)?;
        destination.check_known(fd.as_fd(), Some(self.sink.dirs[id as usize].inode))?;
        let mode = destination.unlock_dir(fd.as_fd())?;
        self.delete_below(fd.as_fd(), id, &at.path());
        let removed = destination.remove_dir(at);
        if removed.is_err() {
            destination.lock_dir(fd.as_fd(), mode)?;
        }
        removed
    }

    fn delete_below(&self, dir: BorrowedFd<'_>, id: DirId, path: &RelPath) {
        let there = &self.sink.dirs[id as usize];
        let mut child = there.first_child;
        for (index, entry) in (0..).zip(&there.listing) {
            if !self.kept.contains(&(id, index)) {
                if self.check().is_err() {
                    return;
                }
                self.delete_entry(self.entry_at(dir, path, entry.name), &entry, child);
            }
            child += u32::from(entry.kind == Kind::Dir);
        }
    }
}

/// The paths of the entries that replace folders and that hard links may lead to.
fn paths_of_replaced(planned: &[PlannedDir]) -> HashSet<RelPath> {
    let replaced = planned.iter().filter(|dir| dir.replaces_dirs()).flat_map(|dir| {
        let steps = dir.steps().filter(|(step, entry)| {
            *step == Step::Replace { was_dir: true } && !matches!(entry.kind, Kind::HardLink { .. })
        });
        steps.map(|(_, entry)| path_in(&dir.path, entry.name))
    });
    replaced.collect()
}

/// Finds the entries that hard links lead to.
struct Leaders<'a> {
    planned: HashMap<&'a RelPath, &'a PlannedDir>,
    sink: &'a Tree,
    /// By directory and name.
    owners: HashMap<RelPath, HashMap<&'a [u8], Owner>>,
}

impl<'a> Leaders<'a> {
    fn new(planned: &'a [PlannedDir], sink: &'a Tree) -> Self {
        let planned = planned.iter().map(|dir| (&dir.path, dir)).collect();
        Self { planned, sink, owners: HashMap::new() }
    }

    /// Who owns the file `name` of the directory `path` at the source; a directory that was not compared is as the
    /// sink's.
    fn owner(&mut self, path: &RelPath, name: &[u8]) -> Option<Owner> {
        if !self.owners.contains_key(path) {
            let listing = match self.planned.get(path) {
                Some(dir) => &dir.listing,
                None => &self.sink.dirs[self.sink.find(path)? as usize].listing,
            };
            let files = listing.iter().filter(|entry| !matches!(entry.kind, Kind::HardLink { .. }));
            let owners = files.map(|entry| (entry.name, entry.meta.owner)).collect();
            self.owners.insert(path.clone(), owners);
        }
        self.owners.get(path)?.get(name).copied()
    }
}

/// The directory that was used last.
#[derive(Default)]
struct LastPath(Option<(RelPath, OwnedFd)>);

impl LastPath {
    fn open(&mut self, root: &Root, path: &RelPath) -> io::Result<BorrowedFd<'_>> {
        let entry = match self.0.take().filter(|(last, _)| last == path) {
            Some(entry) => entry,
            None => (path.clone(), root.dir(path)?),
        };
        Ok(self.0.insert(entry).1.as_fd())
    }
}

fn operation(step: Step, kind: &Kind<'_>) -> &'static str {
    match (step, kind) {
        (Step::Meta, _) => "set metadata",
        (_, Kind::Dir) => "make or move directory",
        (_, Kind::Symlink { .. }) => "make link",
        _ => "make node",
    }
}
