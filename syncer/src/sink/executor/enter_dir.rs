//! Makes the immediate changes of one directory, and requests the content of its files.

use std::{
    io,
    iter::Peekable,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::Arc,
};

use crate::{
    attrs::{Attrs, AttrsBuf},
    compare_entries::Step,
    destination::{KEPT, is_too_large},
    entry::{Entry, Kind},
    entry_paths::EntryPlace,
    listing::Entries,
    path::RelPath,
    plan::{
        basis_by_name::Wanted,
        fill_out_of_sight::FolderFill,
        needed_files::{Aside, Need, NeededDir, OldVersion},
        planned::{ListedFile, MovedDir, PlannedDir, file_in, path_in},
    },
    session_error::SessionError,
    sink::executor::{EntryClass, Executor, FolderOver, HardLink, Unfinished},
};

/// The largest number of files of a directory that are requested at once, so that memory does not grow with the
/// directory, and the first requests are sent while the rest is planned.
const NEEDS_AT_ONCE: usize = 4096;

/// A directory that was opened for changes.
struct EnteredDir {
    fd: OwnedFd,
    inode: u64,
}

/// A planned directory that is open.
struct Entered<'e> {
    dir: &'e PlannedDir,
    fd: BorrowedFd<'e>,
    /// The directory that its files are fetched into.
    target: Arc<NeededDir>,
    /// The remaining entries of the sink, iterated in step with the source's.
    there: Option<Peekable<Entries<'e>>>,
}

impl Entered<'_> {
    /// Returns the sink's file of this name.
    fn seen(&mut self, name: &[u8]) -> Option<ListedFile> {
        self.there.as_mut().and_then(|there| file_in(there, name))
    }
}

impl Executor<'_> {
    /// Makes the changes of one directory that need no content, and requests the content of files that need it.
    pub(super) fn enter(
        &mut self,
        dir: &PlannedDir,
        class: EntryClass,
        fetch: &mut dyn FnMut(Vec<Need>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let changes = dir.plan.changes_entries();
        // A directory that was just created is on the list already.
        if class != EntryClass::Rest && changes && dir.sink.is_some() && !self.expected.contains(&dir.path) {
            let inode = self.inode_of(dir);
            self.unfinished.push(Unfinished { path: dir.path.clone(), inode, meta: dir.meta, attrs: None });
        }
        if dir.is_idle() {
            return Ok(());
        }
        let EnteredDir { fd, inode } = match self.open(dir, changes) {
            Ok(opened) => opened,
            Err(error) => {
                self.run.failures.add(&dir.path, "open directory", &error);
                return Ok(());
            }
        };
        let fill = FolderFill::of(dir);
        let target = Arc::new(NeededDir { source: dir.source, path: dir.path.clone(), inode, fill });
        let there = dir.sink.map(|id| self.sink.dirs[id as usize].listing.iter().peekable());
        self.enter_entries(Entered { dir, fd: fd.as_fd(), target, there }, class, fetch)
    }

    fn enter_entries(
        &mut self,
        mut at: Entered<'_>,
        class: EntryClass,
        fetch: &mut dyn FnMut(Vec<Need>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let dir = at.dir;
        let mut needs = Vec::new();
        let mut steps = dir.plan.steps.iter().peekable();
        for (index, entry) in (0..).zip(&dir.listing) {
            let Some(&(_, step)) = steps.next_if(|(at, _)| *at == index) else { continue };
            if !class.has(&entry.kind) {
                continue;
            }
            self.check()?;
            needs.extend(self.enter_entry(&mut at, index, step, &entry));
            if needs.len() >= NEEDS_AT_ONCE {
                fetch(std::mem::take(&mut needs))?;
            }
        }
        if needs.is_empty() { Ok(()) } else { fetch(needs) }
    }

    /// Makes the immediate changes of an entry. Returns the file if its content has to be fetched.
    fn enter_entry(
        &mut self,
        at: &mut Entered<'_>,
        index: u32,
        step: Step,
        entry: &Entry<'_>,
    ) -> Option<Need> {
        let aside = match step {
            Step::Replace { was_dir: true } => Some(self.put_off(at.dir, &at.target, at.fd, entry)?),
            _ => None,
        };
        match entry.kind {
            Kind::File { size: len } => {
                let from = EntryPlace { dir: at.dir.source, index };
                let wanted = Wanted { entry, len, from, to: at.dir.sink };
                return self.enter_file(at, &wanted, step, aside);
            }
            Kind::HardLink { to } if step != Step::Meta => {
                let (dir, name) = (Arc::clone(&at.target), entry.name.into());
                let to = RelPath::parse(to).unwrap_or_default();
                self.links.push(HardLink { dir, name, to, replaces: step != Step::Create, aside });
            }
            _ => match aside {
                Some(aside) => self.make_aside(at.dir, at.fd, entry, &aside),
                None => self.make_entry(at.dir, at.fd, entry, step),
            },
        }
        None
    }

    /// Finds the basis of a file. Returns the file if its content has to be fetched now.
    fn enter_file(
        &mut self,
        at: &mut Entered<'_>,
        wanted: &Wanted<'_>,
        step: Step,
        aside: Option<Arc<Aside>>,
    ) -> Option<Need> {
        let (dir, &Wanted { entry, len, from, .. }) = (at.dir, wanted);
        let version = |len| OldVersion::version(path_in(&dir.path, entry.name), len);
        let old = match step {
            Step::Create | Step::Replace { was_dir: false } => {
                self.basis_search.find(wanted, &self.run.counters)
            }
            Step::Update => at.seen(entry.name).map(|seen| version(seen.len)),
            Step::Meta => Some(version(self.set_meta(at, entry)?)),
            Step::Replace { was_dir: true } => None,
        };
        let need = Need {
            dir: Arc::clone(&at.target),
            index: from.index,
            name: entry.name.into(),
            meta: entry.meta,
            attrs: self.keep(entry.attrs),
            size: len,
            replaces: step != Step::Create,
            old,
            aside,
        };
        if !need.old.as_ref().is_some_and(|old| old.is_coming) {
            return Some(need);
        }
        self.late.push(need);
        None
    }

    /// Sets the metadata of a file whose content stays. Returns its length if it has to be written again instead.
    fn set_meta(&self, at: &mut Entered<'_>, entry: &Entry<'_>) -> Option<u64> {
        let seen = at.seen(entry.name);
        let destination = self.destination;
        if destination.needs_content(at.fd, entry)
            && let Some(seen) = seen
        {
            return Some(seen.len);
        }
        match destination.set_meta(at.fd, entry, seen.map(|seen| seen.mtime)) {
            Ok(()) => self.run.counters.count(true),
            Err(error) if is_too_large(&error) => {
                self.run.failures.add_late(path_in(&at.dir.path, entry.name), "set metadata", &error);
            }
            Err(error) => self.run.failures.add(&path_in(&at.dir.path, entry.name), "set metadata", &error),
        }
        None
    }

    /// Opens a directory for changes.
    fn open(&mut self, dir: &PlannedDir, changes: bool) -> io::Result<EnteredDir> {
        let destination = self.destination;
        let fd = destination.known_dir(&dir.path, self.inode_of(dir))?;
        if changes && dir.sink.is_some() {
            let mode = destination.unlock_dir(fd.as_fd())?;
            if !destination.settings().permissions {
                self.keep_mode(&dir.path, mode);
            }
        }
        let inode = destination.check_known(fd.as_fd(), self.inode_of(dir))?;
        Ok(EnteredDir { fd, inode })
    }

    /// Schedules that a directory that was unlocked gets its own mode back at the end of the run.
    fn keep_mode(&mut self, path: &RelPath, mode: u16) {
        let mut unfinished = self.unfinished.iter_mut().rev();
        if let Some(unfinished) = unfinished.find(|unfinished| unfinished.path == *path) {
            unfinished.meta.mode = mode | KEPT;
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

    /// Makes an entry that needs no content of other files.
    fn make_entry(&mut self, dir: &PlannedDir, fd: BorrowedFd<'_>, entry: &Entry<'_>, step: Step) {
        let path = path_in(&dir.path, entry.name);
        let done = match (step, entry.kind) {
            (Step::Meta, Kind::Dir) => {
                let id = self.sink_child(dir, entry.name);
                let inode = id.map(|id| self.sink.dirs[id as usize].inode);
                self.expect(&path, inode, entry.meta, entry.attrs);
                Ok(())
            }
            (Step::Meta, _) => self.destination.set_meta(fd, entry, None),
            (_, Kind::Dir) => self.make_folder(fd, entry, step, &path).map(|inode| {
                let (inode, attrs) = (Some(inode), Some(entry.attrs.into()));
                self.unfinished.push(Unfinished { path: path.clone(), inode, meta: entry.meta, attrs });
            }),
            _ => {
                let at = self.entry_at(fd, &dir.path, entry.name).planned_as_new(step == Step::Create);
                self.destination.make_node(at, entry)
            }
        };
        match done {
            // It is counted when it is moved into place.
            Ok(()) if matches!((step, entry.kind), (Step::Replace { .. }, Kind::Dir)) => {}
            Ok(()) => self.run.counters.count(step != Step::Create),
            Err(error) => self.run.failures.add(&path, operation(step, &entry.kind), &error),
        }
    }

    /// Creates a folder, or moves it to its place; one that replaces an entry is created in staging. Returns its inode
    /// number.
    fn make_folder(
        &mut self,
        fd: BorrowedFd<'_>,
        entry: &Entry<'_>,
        step: Step,
        path: &RelPath,
    ) -> io::Result<u64> {
        let destination = self.destination;
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
        let inode = self.destination.move_dir(&moved.from, to)?;
        moved.count(&self.run.counters);
        Ok(inode)
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
