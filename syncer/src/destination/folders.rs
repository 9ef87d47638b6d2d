//! Makes, moves, replaces and removes the folders of a destination.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::fs::{Mode, OFlags};

use crate::{
    attrs::Attrs,
    destination::{
        Destination,
        destination_error::ApplyError,
        metadata::set_metadata,
        remove_old_versions::EntryAt,
        staging::staged_dir::{self, StagedDir},
        state::made_beside,
    },
    entry::Meta,
    path::RelPath,
    sys::root::open_child,
};

/// The mode of new directories where permissions are not kept, less what the process's umask takes away.
const DEFAULT_DIR_MODE: Mode =
    Mode::RWXU.union(Mode::RGRP).union(Mode::XGRP).union(Mode::ROTH).union(Mode::XOTH);

impl Destination {
    /// Makes a directory that only this process may use, and returns its inode number. Its metadata is set when its
    /// content is complete. Where permissions are not kept, it has the mode of new directories from the start.
    pub fn make_dir(&self, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<u64> {
        self.state.check()?;
        let mode = if self.settings.permissions { Mode::RWXU } else { DEFAULT_DIR_MODE };
        rustix::fs::mkdirat(dir, name, mode).map_err(|error| self.retire.case.explain(error.into()))?;
        self.check_known(set_metadata::hold(dir, name)?.as_fd(), None)
    }

    /// Arranges that the folder at `path` is made and filled in staging while another entry still has its name. If its
    /// place is on another file system, it is filled beside its place.
    ///
    /// # Errors
    /// [`ApplyError::Own`] when staging cannot be held open.
    pub fn keep_aside(&self, path: &RelPath) -> Result<(), ApplyError> {
        let parent = path.split_last().and_then(|(parent, _)| self.root.dir(&parent).ok());
        if parent.is_some_and(|parent| self.state.is_beyond(parent.as_fd())) {
            self.root.keep_beside(path, made_beside::beside(&self.state.folder_name(path)));
            return Ok(());
        }
        let kept = self.root.keep_elsewhere(path, self.state.staging(), self.state.folder_name(path));
        kept.map_err(|source| ApplyError::Own { path: self.path.clone(), source })
    }

    /// Makes a folder for which [`Self::keep_aside`] was called, and which replaces an entry in `dir`. Returns its
    /// inode number.
    pub fn make_dir_aside(&self, dir: BorrowedFd<'_>, path: &RelPath) -> io::Result<u64> {
        self.state.check()?;
        let mode = if self.settings.permissions { Mode::RWXU } else { DEFAULT_DIR_MODE };
        if let Some(name) = self.root.kept_beside(path) {
            rustix::fs::mkdirat(dir, &name, mode)?;
            return self.check_known(set_metadata::hold(dir, name.as_bytes())?.as_fd(), None);
        }
        let (parent, _) = path.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        staged_dir::make_aside(&self.state, dir, &parent, &self.state.folder_name(path), mode)
    }

    /// Moves the folder at `path`, which has this `inode` number, from staging to its place, and removes the entry that
    /// it replaces.
    pub fn publish_dir(&self, path: &RelPath, inode: u64, to: EntryAt<'_>) -> io::Result<()> {
        self.state.check()?;
        let (place, name) = match self.root.kept_beside(path) {
            Some(name) => (to.dir, name),
            None => (self.state.staging(), self.state.folder_name(path)),
        };
        self.check_known(set_metadata::hold(place, name.as_bytes())?.as_fd(), Some(inode))?;
        self.retire.put_folder(EntryAt::staged(place, name.as_bytes()), to)
    }

    /// Removes the staged folder for `path` and its content, when it is not published. Returns the number of entries
    /// that it had.
    pub fn drop_aside(&self, path: &RelPath) -> io::Result<u64> {
        self.state.check()?;
        if let Some((parent, name)) =
            path.split_last().map(|(parent, _)| parent).zip(self.root.kept_beside(path))
        {
            return made_beside::remove_beside(self.root.dir(&parent)?.as_fd(), name.as_bytes());
        }
        self.state.remove_folder(&self.state.folder_name(path))
    }

    /// Forgets the folders for which [`Self::keep_aside`] was called: all are published or removed.
    pub fn end_asides(&self) {
        self.root.keep_at_places();
    }

    /// Moves the directory at `from`, as it is, to `to`, where no entry is. Returns its inode number.
    pub fn move_dir(&self, from: &RelPath, to: &RelPath) -> io::Result<u64> {
        let (Some((parent, old)), Some((dir, name))) = (from.split_last(), to.split_last()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        self.state.check()?;
        // The kernel updates `..` in a directory that changes its parent, so the directory has to be writable.
        let (out_of, into, moved) = (self.root.dir(&parent)?, self.root.dir(&dir)?, self.root.dir(from)?);
        let parent_mode = set_metadata::unlock_dir(out_of.as_fd())?;
        let mode = set_metadata::unlock_dir(moved.as_fd())?;
        let renamed = self
            .retire
            .move_folder(EntryAt::staged(out_of.as_fd(), old), EntryAt::staged(into.as_fd(), name));
        set_metadata::lock_dir(out_of.as_fd(), parent_mode)?;
        set_metadata::lock_dir(moved.as_fd(), mode)?;
        renamed?;
        Ok(rustix::fs::fstat(&moved)?.st_ino)
    }

    /// Moves the new directory at `path` out of sight, where it is filled.
    pub fn hide_dir(&self, path: &RelPath) -> io::Result<StagedDir> {
        self.state.check()?;
        StagedDir::take(&self.state, &self.root, path, &self.hidden)
    }

    /// Moves a directory that was filled out of sight back to its place.
    pub fn show_dir(&self, hidden: &StagedDir) -> io::Result<()> {
        self.state.check()?;
        hidden.show(&self.state, &self.hidden)
    }

    /// Gives the owner of a directory all rights to it, and returns the mode that it had. The caller sets the
    /// directory's metadata at the end of the run, or gives the mode back.
    pub fn unlock_dir(&self, dir: BorrowedFd<'_>) -> io::Result<u16> {
        self.state.check()?;
        set_metadata::unlock_dir(dir)
    }

    /// Gives a directory back the mode that it had before [`Destination::unlock_dir`].
    pub fn lock_dir(&self, dir: BorrowedFd<'_>, mode: u16) -> io::Result<()> {
        self.state.check()?;
        set_metadata::lock_dir(dir, mode)
    }

    /// Sets the metadata of a directory after its content is complete; `inode` is as for [`Self::known_dir`]. Without
    /// `attrs` the directory keeps its extended attributes. Returns the directory, open for reading, if it belonged to
    /// a third user and now changes its owner.
    pub fn finish_dir(
        &self,
        path: &RelPath,
        inode: Option<u64>,
        wanted: &Meta,
        attrs: Option<Attrs<'_>>,
    ) -> io::Result<Option<OwnedFd>> {
        self.state.check()?;
        if !path.is_root() {
            self.count_not_kept(wanted, attrs.unwrap_or_default());
        }
        let attrs = attrs.filter(|attrs| self.sets_attrs(*attrs));
        let dir = if path.is_root() { self.root.dir(path)? } else { self.known_dir(path, inode)? };
        let had = rustix::fs::fstat(&dir)?.st_uid;
        let is_lost = self.settings.owners && ![self.state.user(), wanted.owner.uid].contains(&had);
        let lost = is_lost.then(|| open_child(&dir, b".", OFlags::RDONLY)).transpose()?;
        set_metadata::set_dir(self.settings, dir.as_fd(), wanted, attrs)?;
        Ok(lost)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, at: EntryAt<'_>) -> io::Result<()> {
        self.state.check()?;
        self.retire.remove_dir(at)
    }
}
