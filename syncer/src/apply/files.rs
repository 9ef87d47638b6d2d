//! Stages the files of a destination, and makes them visible.

use std::{
    collections::HashSet,
    io,
    os::fd::{BorrowedFd, OwnedFd},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use super::{
    Destination,
    arrived::{ArrivalLog, ArrivedBlocks},
    clone, in_place,
    journal::JournalEntry,
    meta,
    overlay::Overlay,
    retire::EntryAt,
    staged::Staged,
    staged_dir::StagedDir,
    staging_names::part_key,
};
use crate::{attrs::Attrs, delta::checked::FileVersion, entry::Meta, monitor::Monitor, path::RelPath};

impl Destination {
    /// Begins a file whose content is written as a whole, for a place in `dir`. `replaces` is whether something is
    /// there, `mode` what the file shall have in the end.
    pub fn create_file(&self, dir: BorrowedFd<'_>, replaces: bool, mode: u16) -> io::Result<Staged> {
        Staged::create(&self.state, dir, replaces, mode)
    }

    /// Begins the new file `name` in a directory that is out of sight, whose content is written as a whole.
    pub fn create_inside(&self, dir: &Arc<StagedDir>, name: &[u8], mode: u16) -> io::Result<Staged> {
        Staged::inside(dir, name, mode)
    }

    /// Begins an update of the file at `path` that is written in place. `None` where the run does not do that, or the
    /// file cannot be written so; [`Self::stage_file`] always can.
    pub fn stage_over(&self, path: &RelPath) -> Option<Staged> {
        if !self.settings.in_place {
            return None;
        }
        let staged = Staged::overlay(&self.state, &self.root, path);
        staged.inspect_err(|error| tracing::debug!(%path, %error, "not written in place")).ok().flatten()
    }

    /// Begins a file whose content arrives in pieces, for this path.
    pub fn stage_file(&self, path: &RelPath) -> io::Result<Staged> {
        Staged::part(&self.state, path)
    }

    /// Whether a run that was cut off left something of the file for this path.
    pub fn has_leftover(&self, path: &RelPath) -> bool {
        self.state.has_leftover(&part_key(path))
    }

    /// Takes what a run that was cut off left of the file for this path: a basis like any other, of which nothing is
    /// believed. Also returns whether another run has gone on from it already and not got beyond it.
    pub fn leftover(&self, path: &RelPath, monitor: &Monitor) -> Option<(Staged, bool)> {
        Staged::leftover(&self.state, path, monitor)
    }

    /// Returns what was noted of a leftover: blocks that were checked when they arrived.
    pub(crate) fn arrived(&self, leftover: &Staged) -> Option<(ArrivedBlocks, ArrivalLog)> {
        ArrivalLog::read(&self.state, leftover)
    }

    /// Begins to note which blocks of a staged file have arrived, so that the next run need not read them again.
    pub(crate) fn note_arrivals(
        &self,
        staged: &Staged,
        version: FileVersion,
        file_len: u64,
    ) -> io::Result<ArrivalLog> {
        self.state.check()?;
        ArrivalLog::begin(&self.state, staged, version, file_len)
    }

    /// Removes what is noted of a staged file that is complete.
    pub(crate) fn end_arrivals(&self, staged: &Staged) {
        let _ = staged.part_name().map(|name| self.state.drop_blocks(name));
    }

    /// Removes what earlier runs left of large files, but for `needed` ones, so that nobody pays for parts that are of
    /// no use any more.
    pub fn drop_leftovers(&self, needed: impl Iterator<Item = RelPath>) {
        if self.state.has_leftovers() {
            let keys: HashSet<String> = needed.map(|path| part_key(&path)).collect();
            self.state.drop_leftovers(|key| keys.contains(key));
        }
    }

    /// Opens a file to read from.
    pub fn open_file(&self, path: &RelPath) -> io::Result<OwnedFd> {
        self.root.file(path)
    }

    /// A clone of an open file that stays as it is, whoever writes to that. `None` where the file system does not
    /// clone.
    pub fn private_clone(&self, from: BorrowedFd<'_>) -> Option<OwnedFd> {
        clone::private_clone(&self.state, from)
    }

    /// Gives a staged file its metadata and makes it visible at its place, instead of what is there.
    pub fn publish(
        &self,
        staged: &Staged,
        at: EntryAt<'_>,
        wanted: &Meta,
        attrs: Attrs<'_>,
    ) -> io::Result<()> {
        self.state.check()?;
        self.count_not_kept(wanted.owner, attrs);
        let mode = self.mode_of(staged, at, wanted)?;
        if let Some(overlay) = staged.below() {
            return self.rewrite(staged, overlay, at, &Meta { mode, ..*wanted }, attrs);
        }
        self.set_staged(staged, &Meta { mode, ..*wanted }, attrs)
            .inspect_err(|_| staged.unlink(&self.state))?;
        staged.publish(&self.state, &self.retire, at)
    }

    /// Makes a staged file visible in a directory of a file system that is mounted inside the destination, to which
    /// nothing can be renamed from staging: copies it there, and gives the copy its name when it is complete. For files
    /// of which [`Self::publish`] failed with `EXDEV`. Returns the copy's inode number.
    pub fn publish_copy(
        &self,
        staged: &Staged,
        at: EntryAt<'_>,
        wanted: &Meta,
        attrs: Attrs<'_>,
        monitor: &Monitor,
    ) -> io::Result<u64> {
        let wanted = Meta { mode: self.mode_of(staged, at, wanted)?, ..*wanted };
        let copy = Staged::create(&self.state, at.dir, false, wanted.mode)?;
        let copied = copy
            .copy_from(staged.fd(), staged.basis_len()?, true, monitor)
            .and_then(|()| self.set_staged(&copy, &wanted, attrs));
        copied.inspect_err(|_| copy.unlink(&self.state))?;
        copy.publish_beside(&self.state, &self.retire, at)?;
        copy.inode()
    }

    /// The mode that a staged file gets.
    fn mode_of(&self, staged: &Staged, at: EntryAt<'_>, wanted: &Meta) -> io::Result<u16> {
        match staged.is_inside() {
            true => Ok(meta::new_file_mode(self.settings, wanted)),
            false => meta::file_mode(self.settings, at.dir, at.name, wanted),
        }
    }

    fn set_staged(&self, staged: &Staged, wanted: &Meta, attrs: Attrs<'_>) -> io::Result<()> {
        let inherits = self.has_attrs.load(Relaxed);
        meta::set_open_file(self.settings, staged.fd(), wanted, attrs, inherits)
    }

    /// Writes a file in place.
    fn rewrite(
        &self,
        staged: &Staged,
        overlay: &Overlay,
        at: EntryAt<'_>,
        wanted: &Meta,
        attrs: Attrs<'_>,
    ) -> io::Result<()> {
        let redo =
            in_place::redo(overlay, staged, at.dir, at.name).inspect_err(|_| staged.unlink(&self.state))?;
        let redo = JournalEntry {
            mode: wanted.mode,
            owner: self.settings.owners.then_some(wanted.owner),
            mtime: self.settings.times.then_some(wanted.mtime),
            attrs: self.sets_attrs(attrs).then(|| (self.settings.attrs, attrs.into())),
            ..redo
        };
        let write = || in_place::publish(overlay, &self.state, staged, &redo);
        self.retire.rewrite(at, write).inspect_err(|_| staged.unlink(&self.state))
    }

    /// Gives up a staged file.
    pub fn unstage(&self, staged: &Staged) {
        staged.unlink(&self.state);
    }
}
