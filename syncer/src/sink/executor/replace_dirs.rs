//! Replaces folders by other entries and vice versa: the new entry is kept in staging until the old one can be removed
//! safely.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
    sync::{Arc, OnceLock},
};

use crate::{
    compare_entries::Step,
    destination::EntryAt,
    entry::{Entry, Kind},
    plan::{
        needed_files::{Aside, NeededDir},
        planned::{NotEmptied, PlannedDir, entries_below, is_emptied, path_in},
    },
    session_error::SessionError,
    sink::executor::{Executor, FolderOver, PutOff},
    tree::dir::DirId,
};

/// Removes entries that are still in staging if the run ends before it moves them into place.
impl Drop for Executor<'_> {
    fn drop(&mut self) {
        self.put_off.iter().for_each(|put_off| self.drop_beside(put_off));
        let destination = self.destination;
        for folder in self.over.iter().filter(|folder| destination.root().kept_beside(&folder.path).is_some())
        {
            if let Err(error) = destination.drop_aside(&folder.path) {
                tracing::warn!(path = %folder.path, %error, "a folder that was not complete is left beside its place");
            }
        }
    }
}

impl Executor<'_> {
    /// Prepares the folders that replace other entries to be filled in staging. Call it before any of them is created.
    pub(crate) fn keep_aside(&self, planned: &[PlannedDir]) -> Result<(), SessionError> {
        for dir in planned {
            let over = |(step, entry): &(Step, Entry<'_>)| {
                matches!(step, Step::Replace { .. }) && entry.kind == Kind::Dir
            };
            for (_, entry) in dir.steps().filter(over) {
                self.destination.keep_aside(&path_in(&dir.path, entry.name))?;
            }
        }
        Ok(())
    }

    /// Moves the folders that were filled in staging into place, unless `failed` entries of the whole run keep that
    /// back. No entry is deleted before, because their content may come from a deleted file.
    pub(crate) fn put_folders(&mut self, failed: u64) -> Result<(), SessionError> {
        let destination = self.destination;
        let keeps_back = self.keeps_back(failed);
        for folder in std::mem::take(&mut self.over) {
            self.check()?;
            destination.still_held()?;
            let counters = &self.run.counters;
            let done = if keeps_back {
                self.unfinished.retain(|dir| !dir.path.starts_with(&folder.path));
                self.files_staying += 1;
                destination.drop_aside(&folder.path).map(|entries| counters.drop_created(entries))
            } else {
                self.put_folder(&folder).map(|()| counters.count(true))
            };
            if let Err(error) = done {
                self.run.failures.add(&folder.path, "make way", &error);
            }
        }
        Ok(())
    }

    fn put_folder(&self, folder: &FolderOver) -> io::Result<()> {
        let FolderOver { dir, dir_inode, path, inode } = folder;
        let destination = self.destination;
        let (_, name) = path.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        let fd = destination.known_dir(dir, Some(*dir_inode))?;
        destination.publish_dir(path, *inode, self.entry_at(fd.as_fd(), dir, name))
    }

    /// Reserves a place in staging for an entry that replaces a folder. Returns `None` if the folder cannot be emptied,
    /// which is a failure.
    pub(super) fn put_off(
        &mut self,
        dir: &PlannedDir,
        target: &Arc<NeededDir>,
        fd: BorrowedFd<'_>,
        entry: &Entry<'_>,
    ) -> Option<Arc<Aside>> {
        let folder = self.sink_child(dir, entry.name)?;
        if !is_emptied(self.sink, self.kept, folder, self.run.params.delete) {
            self.run.failures.add(&path_in(&dir.path, entry.name), "make way", &NotEmptied);
            return None;
        }
        let state = self.destination.state();
        let beside = state.is_beyond(fd);
        let name = if beside { state.name_beside() } else { state.fresh_name() };
        let aside = Arc::new(Aside { name, beside, arrived: OnceLock::new() });
        let (dir, name) = (Arc::clone(target), entry.name.into());
        self.put_off.push(PutOff { dir, name, folder, aside: Arc::clone(&aside) });
        Some(aside)
    }

    /// Makes a symbolic link, a pipe or a device that replaces a folder, in staging.
    pub(super) fn make_aside(&self, dir: &PlannedDir, fd: BorrowedFd<'_>, entry: &Entry<'_>, aside: &Aside) {
        let destination = self.destination;
        let at = aside.at(destination, fd);
        let made = destination.make_node(at, entry).and_then(|()| destination.inode_of_aside(at));
        match made {
            Ok(inode) => aside.has_arrived(inode),
            Err(error) => self.run.failures.add(&path_in(&dir.path, entry.name), "make node", &error),
        }
    }

    /// Replaces folders by the entries that are ready in staging.
    pub(super) fn replace_folders(&mut self, keeps_back: bool) -> Result<(), SessionError> {
        self.put_off.reverse();
        while !self.put_off.is_empty() {
            self.check()?;
            self.destination.still_held()?;
            if let Some(put_off) = self.put_off.pop() {
                self.replace_folder(&put_off, keeps_back);
            }
        }
        Ok(())
    }

    /// Replaces one folder by its new entry. If deletes are kept back, the folder stays unless it is empty.
    fn replace_folder(&mut self, put_off: &PutOff, keeps_back: bool) {
        let PutOff { dir, name, folder, aside } = put_off;
        let Some(inode) = aside.arrived.get() else { return };
        if keeps_back && entries_below(self.sink, *folder, self.kept) > 0 {
            self.staying += 1;
            return self.drop_beside(put_off);
        }
        let path = path_in(&dir.path, name);
        let destination = self.destination;
        let replaced = destination.known_dir(&dir.path, Some(dir.inode)).and_then(|fd| {
            let at = self.entry_at(fd.as_fd(), &dir.path, name);
            self.empty_folder(at, *folder)?;
            destination.publish_aside(aside.at(destination, fd.as_fd()), *inode, at)
        });
        if replaced.is_err() {
            self.drop_beside(put_off);
        }
        match replaced {
            Ok(()) => self.run.counters.count(true),
            Err(_) if self.run.monitor.cancelled() => {}
            Err(error) => self.run.failures.add(&path, "make way", &error),
        }
    }

    /// Removes an entry in staging whose folder is not replaced after all.
    fn drop_beside(&self, put_off: &PutOff) {
        let PutOff { dir, aside, .. } = put_off;
        let destination = self.destination;
        if aside.beside
            && let Ok(fd) = destination.known_dir(&dir.path, Some(dir.inode))
        {
            destination.drop_entry_aside(aside.at(destination, fd.as_fd()));
        }
    }

    /// Removes a folder that is replaced, with its entries.
    pub(super) fn empty_folder(&self, at: EntryAt<'_>, id: DirId) -> io::Result<()> {
        if self.run.params.delete { self.delete_dir(at, id) } else { self.destination.remove_dir(at) }
    }
}
