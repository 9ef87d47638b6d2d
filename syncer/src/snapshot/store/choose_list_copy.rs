//! The file `roots` and its copy: which of them a reader believes, and how a change replaces both.
//!
//! A whole `roots` is believed, and its copy is not read. If records of it are damaged, the copy is believed if it is
//! whole and of the same change. Without a readable `roots`, the copy may be older: it is read, and not built upon.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::fs::AtFlags;

use super::{
    exposed_files::is_exposed,
    room_for_next_list,
    snapshot_error::{SnapshotError, io_error},
    snapshot_list::{ListState, MAX_ROOTS_BYTES, NotRoots, Roots, VERSION},
    store_dir::StoreFolder,
    store_files::{AUDIT, ReadFile, names, open_file, read_regular, read_with_stat, write_new},
};

/// The list of snapshots.
pub(crate) const ROOTS: &str = "roots";
const ROOTS_NEW: &str = "roots.new";

/// The second copy of the list.
pub(crate) const COPY: &str = "roots.copy";
const COPY_NEW: &str = "roots.copy.new";

/// The list of a store's snapshots and its copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RootsFile<'a> {
    /// The store's folder.
    pub dir: BorrowedFd<'a>,
    /// Its path for messages.
    pub path: &'a Path,
    /// The user, besides root, whose files are believed.
    pub user: u32,
}

impl RootsFile<'_> {
    /// Reads the list of snapshots.
    ///
    /// # Errors
    /// If it cannot be read or has another version; if it is missing beside objects or a log of snapshots.
    pub(crate) fn read(&self) -> Result<Roots, SnapshotError> {
        match self.decode(ROOTS)? {
            Some(roots) if roots.damages() == 0 => Ok(roots),
            Some(roots) => {
                let copy = self.copy()?.filter(|copy| copy.changes == roots.changes && copy.changes != 0);
                Ok(copy.map_or(roots, |copy| Roots { state: ListState::Known, ..copy }))
            }
            None => match self.copy()? {
                Some(copy) => Ok(Roots { state: ListState::OnlyCopy, ..copy }),
                None if self.bytes(ROOTS)?.is_empty() && !self.has_snapshots()? => Ok(Roots::default()),
                None => Err(SnapshotError::NoList(self.path.join(ROOTS))),
            },
        }
    }

    /// Reads `roots` alone for a repair; `None` if it has nothing of a list.
    pub(crate) fn alone(&self) -> Result<Option<Roots>, SnapshotError> {
        self.decode(ROOTS)
    }

    /// Reads the copy; `None` if it is missing, damaged, or was being written when the system crashed.
    pub(crate) fn copy(&self) -> Result<Option<Roots>, SnapshotError> {
        Ok(self.copy_in_part()?.filter(|copy| copy.damages() == 0))
    }

    /// Reads the copy as far as it is whole, for a repair.
    pub(crate) fn copy_in_part(&self) -> Result<Option<Roots>, SnapshotError> {
        self.decode(COPY)
    }

    /// Returns whether the copy is damaged, and not only older or empty as a crash may leave it.
    pub(crate) fn is_copy_damaged(&self) -> Result<bool, SnapshotError> {
        let is_whole = |copy: Roots| copy.damages() == 0 && copy.state == ListState::Read;
        Ok(!self.decode(COPY)?.is_some_and(is_whole) && !self.bytes(COPY)?.is_empty())
    }

    /// Returns the bytes of the copy, whatever they are.
    pub(crate) fn bytes_of_copy(&self) -> Result<Vec<u8>, SnapshotError> {
        self.bytes(COPY)
    }

    /// Returns the bytes of `roots`, whatever they are.
    pub(crate) fn bytes_of_list(&self) -> Result<Vec<u8>, SnapshotError> {
        self.bytes(ROOTS)
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>, SnapshotError> {
        read_regular(self.dir, name, MAX_ROOTS_BYTES).map_err(io_error("read", self.path.join(name)))
    }

    /// Decodes a list. All of its snapshots count as exposed if another user can write to the file.
    fn decode(&self, name: &str) -> Result<Option<Roots>, SnapshotError> {
        let read = read_with_stat(self.dir, name, MAX_ROOTS_BYTES);
        let Some(ReadFile { bytes, stat }) = read.map_err(io_error("read", self.path.join(name)))? else {
            return Ok(None);
        };
        match Roots::decode(&bytes) {
            Ok(mut roots) => {
                if is_exposed(&stat, self.user) {
                    roots.snapshots.iter_mut().for_each(|snapshot| snapshot.is_exposed = true);
                }
                Ok(Some(roots))
            }
            Err(NotRoots::Unlike) => Ok(None),
            Err(NotRoots::Version(version)) => {
                Err(SnapshotError::Version { path: self.path.join(name), version, known: VERSION })
            }
        }
    }

    /// Returns whether the store has anything that only stores with a list have.
    fn has_snapshots(&self) -> Result<bool, SnapshotError> {
        let has_any = |name: &str| match names(self.dir, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            names => names.map(|names| !names.is_empty()),
        };
        let find_any = || -> io::Result<bool> {
            let folders = [StoreFolder::Packs, StoreFolder::Content, StoreFolder::New];
            let has_log = open_file(self.dir, AUDIT).is_ok();
            folders.iter().try_fold(has_log, |has, folder| Ok(has || has_any(folder.name())?))
        };
        find_any().map_err(io_error("look for snapshots in", self.path))
    }

    /// Writes a list under a temporary name, has it made durable, and renames it: the only commit point of every
    /// change. Then replaces the copy, which a crash may leave older or empty.
    ///
    /// # Errors
    /// If the list cannot be written; the volume then still has the old one.
    pub(crate) fn write(
        &self,
        roots: &Roots,
        make_durable: impl FnOnce(&OwnedFd) -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError> {
        let (dir, bytes) = (self.dir, roots.encode());
        let failed = || io_error("write", self.path.join(ROOTS_NEW));
        make_durable(&write_new(dir, ROOTS_NEW, &bytes).map_err(failed())?)?;
        let renamed = rustix::fs::renameat(dir, ROOTS_NEW, dir, ROOTS).and_then(|()| rustix::fs::fsync(dir));
        renamed.map_err(|error| failed()(error.into()))?;
        room_for_next_list::renew(dir, bytes.len() as u64);
        // As long as records are damaged, the copy may have them.
        if roots.damages() == 0 {
            let copied = write_new(dir, COPY_NEW, &bytes);
            let copied = copied.and_then(|_| Ok(rustix::fs::renameat(dir, COPY_NEW, dir, COPY)?));
            if let Err(error) = copied {
                let _ = rustix::fs::unlinkat(dir, COPY_NEW, AtFlags::empty());
                tracing::warn!(%error, "the copy of the list of snapshots stays older until the next change");
            }
        }
        Ok(())
    }

    /// Replaces the list in the room that is held back for that, when the file system is full. The copy stays older.
    ///
    /// # Errors
    /// If no room is held back; the volume then still has the old list.
    pub(crate) fn write_in_reserve(
        &self,
        roots: &Roots,
        make_durable: impl FnOnce(&OwnedFd) -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError> {
        // A list that is not complete would take room.
        let _ = rustix::fs::unlinkat(self.dir, ROOTS_NEW, AtFlags::empty());
        let failed = || io_error("write", self.path.join(ROOTS));
        make_durable(&room_for_next_list::fill(self.dir, &roots.encode()).map_err(failed())?)?;
        room_for_next_list::exchange(self.dir, ROOTS).map_err(failed())
    }
}
