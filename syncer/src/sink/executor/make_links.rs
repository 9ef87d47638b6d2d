//! Makes hard links, once the files that they lead to are in place.

use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::fs::{AtFlags, FileType, statat};

use crate::{
    compare_entries::Step,
    destination::EntryAt,
    entry::{Entry, Kind, Owner},
    path::RelPath,
    plan::planned::{NotArrived, NotEmptied, PlannedDir, entries_below, is_emptied, path_in},
    session_error::SessionError,
    sink::executor::{Executor, HardLink},
    sys::{root::Root, stat::changed},
    tree::Tree,
};

impl Executor<'_> {
    /// Makes hard links to files that are in place; [`Self::link_to_replaced`] makes the others.
    pub(crate) fn make_links(&mut self, planned: &[PlannedDir]) -> Result<(), SessionError> {
        if self.links.is_empty() {
            return Ok(());
        }
        let (mut from, mut to) = (LastPath::default(), LastPath::default());
        let mut leaders = Leaders::new(planned, self.sink);
        let replaced = paths_of_replaced(planned);
        for link in std::mem::take(&mut self.links) {
            self.check()?;
            if replaced.contains(&link.to) {
                continue;
            }
            let made = self.make_link(&link, &mut from, &mut to, &mut leaders);
            match (made, &link.aside) {
                (Ok(()), Some(_)) => {}
                (Ok(()), None) => self.run.counters.count(link.replaces),
                (Err(error), _) => {
                    self.run.failures.add(&path_in(&link.dir.path, &link.name), "link", &error);
                }
            }
        }
        Ok(())
    }

    /// Makes one link. `from` and `to` cache the directories used last.
    fn make_link(
        &self,
        link: &HardLink,
        from: &mut LastPath,
        to: &mut LastPath,
        leaders: &mut Leaders<'_>,
    ) -> io::Result<()> {
        let destination = self.destination;
        let (dir, target) = link.to.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        self.check_leader(&link.to, &dir, target, leaders)?;
        let from = from.open(destination.root(), &dir)?;
        self.check_arrived(&link.to, from, target, leaders.step(&dir, target))?;
        let owner = if destination.settings().owners { leaders.owner(&dir, target) } else { None };
        let Some(aside) = &link.aside else {
            let to = to.open(destination.root(), &link.dir.path)?;
            destination.check_known(to, Some(link.dir.inode))?;
            let at =
                EntryAt::new(to, &link.dir.path, &link.name, self.run.monitor).planned_as_new(!link.replaces);
            return destination.link(from, target, owner, at);
        };
        let at = if aside.beside {
            aside.at(destination, to.open(destination.root(), &link.dir.path)?)
        } else {
            aside.at(destination, from)
        };
        destination.link(from, target, owner, at)?;
        aside.has_arrived(destination.inode_of_aside(at)?);
        Ok(())
    }

    /// Checks that a file has arrived before it gets a further name, which would lead to whatever has its place.
    fn check_leader(
        &self,
        path: &RelPath,
        dir: &RelPath,
        name: &[u8],
        leaders: &mut Leaders<'_>,
    ) -> io::Result<()> {
        if leaders.lacks(dir, name) {
            let message = format!("it is a further name of {path}, which the source does not have");
            return Err(io::Error::other(message));
        }
        // What was left out of the plan because of a failure has no step.
        if self.run.failures.has(path) && leaders.step(dir, name) != Some(Step::Meta) {
            return Err(io::Error::other(NotArrived(path.clone())));
        }
        Ok(())
    }

    /// Checks that a file which the run brings is not the one of before, which may have failed with its folder or in
    /// another process: all that has arrived was changed since the destination was opened, by the clock of its volume.
    fn check_arrived(
        &self,
        path: &RelPath,
        dir: BorrowedFd<'_>,
        name: &[u8],
        step: Option<Step>,
    ) -> io::Result<()> {
        let may_lack = self.run.failures.count() > 0 || self.run.params.shard.is_some();
        let is_brought = matches!(step, Some(Step::Create | Step::Update | Step::Replace { .. }));
        let destination = self.destination;
        // Another file system has another clock.
        if may_lack && is_brought && !destination.state().is_beyond(dir) {
            let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if changed(&stat) < destination.opened() {
                return Err(io::Error::other(NotArrived(path.clone())));
            }
        }
        Ok(())
    }

    /// Makes the hard links of the whole plan to files that replace folders, once these are in place.
    pub(crate) fn link_to_replaced(&self, planned: &[PlannedDir]) -> Result<(), SessionError> {
        let replaced = paths_of_replaced(planned);
        if replaced.is_empty() {
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
                    Ok(()) => self.run.counters.count(step != Step::Create),
                    Err(error) => {
                        self.run.failures.add(&path_in(&dir.path, entry.name), "link", &error);
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
        let destination = self.destination;
        let fd = destination.known_dir(&dir.path, self.inode_of(dir))?;
        let (from, target) = to.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        self.check_leader(to, &from, target, leaders)?;
        let from_dir = destination.dir(&from)?;
        let first = statat(&from_dir, target, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(first.st_mode).is_dir() {
            return Err(io::Error::other(NotArrived(to.clone())));
        }
        if step == (Step::Replace { was_dir: true })
            && let Some(folder) = self.sink_child(dir, entry.name)
        {
            let is_kept_back = self.kept_back && entries_below(self.sink, folder, self.kept) > 0;
            if is_kept_back || !is_emptied(self.sink, self.kept, folder, self.run.params.delete) {
                return Err(io::Error::other(NotEmptied));
            }
            self.empty_folder(self.entry_at(fd.as_fd(), &dir.path, entry.name), folder)?;
        }
        let owner = leaders.owner(&from, target);
        let at = self.entry_at(fd.as_fd(), &dir.path, entry.name).planned_as_new(step == Step::Create);
        destination.link(from_dir.as_fd(), target, owner, at)
    }
}

/// Returns the paths of the entries that replace folders and that hard links may lead to.
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
    /// What is known of them, by directory and name.
    known: HashMap<RelPath, HashMap<&'a [u8], Leader>>,
}

/// The source's owner of a file with further names, and what the plan does with it.
#[derive(Clone, Copy)]
struct Leader {
    owner: Owner,
    step: Option<Step>,
}

impl<'a> Leaders<'a> {
    fn new(planned: &'a [PlannedDir], sink: &'a Tree) -> Self {
        let planned = planned.iter().map(|dir| (&dir.path, dir)).collect();
        Self { planned, sink, known: HashMap::new() }
    }

    /// Returns the source's owner of the file `name` in the directory `path`.
    fn owner(&mut self, path: &RelPath, name: &[u8]) -> Option<Owner> {
        Some(self.in_dir(path)?.get(name)?.owner)
    }

    /// Returns whether the directory `path` is known, and has no file `name` that is a first name.
    fn lacks(&mut self, path: &RelPath, name: &[u8]) -> bool {
        self.in_dir(path).is_some_and(|leaders| !leaders.contains_key(name))
    }

    /// Returns what the plan does with the file `name` in the directory `path`.
    fn step(&mut self, path: &RelPath, name: &[u8]) -> Option<Step> {
        self.in_dir(path)?.get(name)?.step
    }

    /// Returns the files in a directory. One that was not compared is the same as the sink's; one that is moved as it
    /// is has no listing.
    fn in_dir(&mut self, path: &RelPath) -> Option<&HashMap<&'a [u8], Leader>> {
        if !self.known.contains_key(path) {
            let (listing, steps): (_, &[_]) = match self.planned.get(path) {
                Some(dir) => (&dir.listing, &dir.plan.steps),
                None => (&self.sink.dirs[self.sink.find(path)? as usize].listing, &[]),
            };
            let mut steps = steps.iter().peekable();
            let mut leaders = HashMap::new();
            for (index, entry) in (0..).zip(listing) {
                let step = steps.next_if(|(at, _)| *at == index).map(|(_, step)| *step);
                if !matches!(entry.kind, Kind::HardLink { .. }) {
                    leaders.insert(entry.name, Leader { owner: entry.meta.owner, step });
                }
            }
            self.known.insert(path.clone(), leaders);
        }
        self.known.get(path)
    }
}

/// The directory used last, kept open.
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
