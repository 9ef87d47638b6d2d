//! Deletes entries that the source does not have.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
    sync::atomic::Ordering::Relaxed,
};

use contract::DeleteTiming;

use crate::{
    destination::{EntryAt, open_dir_in},
    entry::{Entry, Kind},
    path::RelPath,
    plan::planned::{PlannedDir, SparedEntries, below_replaced, deletes_in},
    session_error::SessionError,
    sink::executor::Executor,
    tree::{Tree, dir::DirId},
};

impl Executor<'_> {
    /// Deletes the entries that the source does not have before any content arrives, unless `failed` entries of the
    /// whole run keep deletes back.
    pub(crate) fn delete_first(&mut self, planned: &[PlannedDir], failed: u64) -> Result<(), SessionError> {
        if self.keeps_back(failed) {
            let deletes = planned.iter().map(|dir| self.deletes_alone(dir)).sum();
            self.run.counters.keep_back(deletes, failed);
            return Ok(());
        }
        let destination = self.destination;
        let mut unlocked = Vec::new();
        for dir in planned.iter().filter(|dir| dir.sink.is_some() && dir.plan.changes_entries()) {
            self.check()?;
            destination.still_held()?;
            let inode = self.inode_of(dir);
            let fd = destination.known_dir(&dir.path, inode);
            match fd.and_then(|fd| destination.unlock_dir(fd.as_fd())) {
                Ok(mode) => unlocked.push((&dir.path, inode, mode)),
                // It fails again, and is reported, when it is entered.
                Err(_) => continue,
            }
            self.delete_in(dir);
        }
        for (path, inode, mode) in unlocked.into_iter().rev() {
            let locked =
                destination.known_dir(path, inode).and_then(|fd| destination.lock_dir(fd.as_fd(), mode));
            if let Err(error) = locked {
                self.run.failures.add(path, "set metadata", &error);
            }
        }
        Ok(())
    }

    /// Counts the entries that are deleted without a replacement.
    fn deletes_alone(&self, dir: &PlannedDir) -> u64 {
        deletes_in(dir, self.sink, self.kept) - below_replaced(dir, self.sink, self.kept)
    }

    /// Returns whether `failed` entries keep deletes back.
    pub(super) fn keeps_back(&self, failed: u64) -> bool {
        failed > 0 && !self.run.params.deletes_anyway()
    }

    /// Moves entries that replace folders into place, and deletes, unless `failed` entries of the whole run keep that
    /// back.
    pub(crate) fn replace_and_delete(
        &mut self,
        planned: &[PlannedDir],
        failed: u64,
    ) -> Result<(), SessionError> {
        let keeps_back = self.keeps_back(failed);
        let was_first = self.run.params.delete_timing == DeleteTiming::Before;
        if keeps_back {
            let in_dir = if was_first { below_replaced } else { deletes_in };
            self.keep_back(planned, in_dir, failed);
        }
        let before = self.run.failures.count();
        self.replace_folders(keeps_back)?;
        if keeps_back || was_first {
            return Ok(());
        }
        // What could not be replaced has failed, too, and its content may be only in an entry to delete.
        let failed = failed + self.run.failures.count() - before;
        if self.keeps_back(failed) {
            let in_dir = |dir: &PlannedDir, sink: &Tree, kept: &SparedEntries| {
                deletes_in(dir, sink, kept).saturating_sub(below_replaced(dir, sink, kept))
            };
            self.keep_back(planned, in_dir, failed);
            return Ok(());
        }
        for dir in self.mine(planned) {
            self.destination.still_held()?;
            self.delete_in(dir);
            self.check()?;
        }
        Ok(())
    }

    /// Counts the deletes that are kept back.
    fn keep_back(
        &mut self,
        planned: &[PlannedDir],
        in_dir: impl Fn(&PlannedDir, &Tree, &SparedEntries) -> u64,
        failed: u64,
    ) {
        self.kept_back = true;
        let deletes = self.mine(planned).map(|dir| in_dir(dir, self.sink, self.kept)).sum();
        self.run.counters.keep_back(deletes, failed);
    }

    fn delete_in(&self, dir: &PlannedDir) {
        let (Some(id), false) = (dir.sink, dir.plan.deletes.is_empty()) else { return };
        let there = &self.sink.dirs[id as usize];
        let fd = match self.destination.known_dir(&dir.path, Some(there.inode)) {
            Ok(fd) => fd,
            Err(error) => return self.run.failures.add(&dir.path, "open directory", &error),
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
        let destination = self.destination;
        let deleted = match entry.kind {
            Kind::Dir => self.delete_dir(at, child),
            _ => destination.remove_file(at),
        };
        match deleted {
            Ok(()) => {
                self.run.counters.deleted.fetch_add(1, Relaxed);
            }
            Err(_) if self.run.monitor.cancelled() => {}
            // The remaining entries are excluded from the run or came after the scan, so the run must not delete them.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                tracing::info!(path = %at.path(), "kept: it holds entries that are not part of the run");
            }
            Err(error) => self.run.failures.add(&at.path(), "delete", &error),
        }
    }

    /// Deletes a directory with the entries that the scan found in it. A directory with other entries stays, with its
    /// mode.
    pub(super) fn delete_dir(&self, at: EntryAt<'_>, id: DirId) -> io::Result<()> {
        let destination = self.destination;
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
