//! Stages the files of a destination, and makes them visible.

use std::{
    collections::HashSet,
    io,
    os::fd::{BorrowedFd, OwnedFd},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use crate::{
    attrs::Attrs,
    delta::checked::FileVersion,
    destination::{
        ApplyError, Destination,
        in_place::{
            journal_entry::{AttrsOf, JournalEntry},
            write_by_journal,
        },
        metadata::{set_metadata, set_xattrs::put_off_too_large},
        remove_old_versions::EntryAt,
        staging::{
            arrival_log::{ArrivalLog, Arrived},
            overlay::Overlay,
            reflink,
            staged_dir::StagedDir,
            staged_file::Staged,
        },
        state::{leftovers::Leftover, staging_names::part_key},
    },
    entry::{Meta, Time},
    measure::monitor::Monitor,
    path::RelPath,
    tree::noted_in_motion::NotedFiles,
};

impl Destination {
    /// Returns the files that earlier runs noted as in motion when they were read.
    pub fn noted(&self) -> &Arc<NotedFiles> {
        self.state.motion().found()
    }

    /// Notes a file that may have been written to while it was read, so that the next run compares its content. Callers
    /// do this before they make the file visible.
    pub fn note_in_motion(&self, path: &RelPath, mtime: Time) -> io::Result<()> {
        self.state.motion().add(self.state.dir(), path, mtime)
    }

    /// Removes the notes of earlier runs except for those that `stay`; `None` are the files that are noted by their
    /// times. One of the processes of the run does this, when all have made their files visible.
    pub fn settle_notes(&self, stay: impl Fn(Option<&RelPath>) -> bool) -> Result<(), ApplyError> {
        self.still_held()?;
        self.state.motion().settle(self.state.dir(), stay).map_err(|source| self.own_error(source))
    }

    /// Returns the error of a file that Volferry keeps on the volume.
    pub fn own_error(&self, source: io::Error) -> ApplyError {
        ApplyError::Own { path: self.path.clone(), source }
    }

    /// Returns a sentence for the report about the files that this process has noted.
    pub fn motion_sentence(&self) -> Option<String> {
        self.state.motion().sentence()
    }

    /// Creates a staged file for an entry of `dir`, for content that is written in one go. `replaces` says whether an
    /// entry has the name already; `mode` is the mode that the file gets in the end.
    pub fn create_file(&self, dir: BorrowedFd<'_>, replaces: bool, mode: u16) -> io::Result<Staged> {
        Staged::create(&self.state, dir, replaces, mode)
    }

    /// Creates the new file `name` in a directory that is filled out of sight, for content that is written in one go.
    pub fn create_inside(&self, dir: &Arc<StagedDir>, name: &[u8], mode: u16) -> io::Result<Staged> {
        Staged::inside(dir, name, mode).map_err(|error| self.retire.case.explain(error))
    }

    /// Begins an update in place of the file at `path`. `None` where this run does not write in place, or this file
    /// cannot be written so; [`Self::stage_file`] always works.
    pub fn stage_over(&self, path: &RelPath) -> Option<Staged> {
        if !self.settings.in_place {
            return None;
        }
        let staged = Staged::overlay(&self.state, &self.root, path);
        staged.inspect_err(|error| tracing::debug!(%path, %error, "not written in place")).ok().flatten()
    }

    /// Creates a staged file for this path whose content arrives in pieces.
    pub fn stage_file(&self, path: &RelPath) -> io::Result<Staged> {
        Staged::part(&self.state, path)
    }

    /// Returns whether a run that was cut off left a partial file for this path.
    pub fn has_leftover(&self, path: &RelPath) -> bool {
        self.state.has_leftover(&part_key(path))
    }

    /// Takes the partial file that a run that was cut off left for this path, as a basis whose content is not trusted.
    pub fn leftover(&self, path: &RelPath, monitor: &Monitor) -> Option<Leftover<Staged>> {
        Staged::leftover(&self.state, path, monitor)
    }

    /// Returns the blocks that were checked when they arrived in a leftover, and their log.
    pub(crate) fn arrived(&self, leftover: &Staged) -> Option<Arrived> {
        ArrivalLog::read(&self.state, leftover)
    }

    /// Creates the log of blocks that arrive in a staged file, so that the next run need not read them again.
    pub(crate) fn note_arrivals(
        &self,
        staged: &Staged,
        version: FileVersion,
        file_len: u64,
    ) -> io::Result<ArrivalLog> {
        self.state.check()?;
        ArrivalLog::begin(&self.state, staged, version, file_len)
    }

    /// Removes the log of a staged file that is complete.
    pub(crate) fn end_arrivals(&self, staged: &Staged) {
        let _ = staged.part_name().map(|name| self.state.drop_blocks(name));
    }

    /// Removes the partial files that earlier runs left, except for those `needed`, so that no room is wasted on them.
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

    /// Makes a clone of an open file, which keeps its content when the file is written to. `None` where the file system
    /// does not clone.
    pub fn private_clone(&self, from: BorrowedFd<'_>) -> Option<OwnedFd> {
        reflink::private_clone(&self.state, from)
    }

    /// Sets the metadata of a staged file and makes it visible at `at`, replacing the entry there.
    ///
    /// # Errors
    /// If that is not possible; or that an attribute is too large (`is_too_large`), with the file in its place.
    pub fn publish(
        &self,
        staged: &Staged,
        at: EntryAt<'_>,
        wanted: &Meta,
        attrs: Attrs<'_>,
    ) -> io::Result<()> {
        self.state.check()?;
        self.count_not_kept(wanted, attrs);
        let mode = self.mode_of(staged, at, wanted)?;
        if let Some(overlay) = staged.below() {
            return self.rewrite(staged, overlay, at, &Meta { mode, ..*wanted }, attrs);
        }
        let fits = put_off_too_large(self.set_staged(staged, &Meta { mode, ..*wanted }, attrs))
            .inspect_err(|_| staged.unlink(&self.state))?;
        staged.publish(&self.state, &self.retire, at)?;
        fits
    }

    /// Copies a staged file to a directory of a file system that is mounted inside the destination, and gives the copy
    /// its name when it is complete. For files whose [`Self::publish`] failed with `EXDEV`, because nothing can be
    /// renamed there from staging. Returns the copy's inode number.
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

    /// Returns the mode that a staged file gets.
    fn mode_of(&self, staged: &Staged, at: EntryAt<'_>, wanted: &Meta) -> io::Result<u16> {
        if staged.is_inside() {
            Ok(set_metadata::new_file_mode(self.settings, wanted))
        } else {
            set_metadata::file_mode(self.settings, at.dir, at.name, wanted)
        }
    }

    fn set_staged(&self, staged: &Staged, wanted: &Meta, attrs: Attrs<'_>) -> io::Result<()> {
        let inherits = self.has_attrs.load(Relaxed);
        set_metadata::set_open_file(self.settings, staged.fd(), wanted, attrs, inherits)
    }

    /// Writes a file in place, by way of the journal.
    fn rewrite(
        &self,
        staged: &Staged,
        overlay: &Overlay,
        at: EntryAt<'_>,
        wanted: &Meta,
        attrs: Attrs<'_>,
    ) -> io::Result<()> {
        let redo = write_by_journal::redo(overlay, staged, at.dir, at.name)
            .inspect_err(|_| staged.unlink(&self.state))?;
        let classes = self.settings.attrs;
        let redo = JournalEntry {
            mode: wanted.mode,
            owner: self.settings.owners.then_some(wanted.owner),
            mtime: self.settings.times.then_some(wanted.mtime),
            attrs: self.sets_attrs(attrs).then(|| AttrsOf { classes, attrs: attrs.into() }),
            ..redo
        };
        let mut fits = Ok(());
        let write = || {
            fits = put_off_too_large(write_by_journal::publish(overlay, &self.state, staged, &redo))?;
            Ok(())
        };
        self.retire.rewrite(at, write).inspect_err(|_| staged.unlink(&self.state))?;
        fits
    }

    /// Removes a staged file that is not needed.
    pub fn unstage(&self, staged: &Staged) {
        staged.unlink(&self.state);
    }
}
