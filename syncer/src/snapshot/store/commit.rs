//! Changes the store of a volume: the way in which a change becomes durable, and what a crash leaves.
//!
//! The rename of `roots.new` to `roots` (`RootsFile::write`) is the only commit point. Until then, the additions of a
//! publication are in `new/ID/`. The next writer moves them to their places if `roots` has the snapshot, and removes
//! them if not. So a store has its list before it has anything else.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
    time::SystemTime,
};

use contract::VolumeId;
use rustix::fs::{AtFlags, OFlags, Timestamps};

use super::{
    audit_log::{self, Durable, Event},
    choose_list_copy::ROOTS,
    read_store::Store,
    readers_lock::{READERS, readers},
    room_for_next_list,
    snapshot_error::{SnapshotError, io_error},
    snapshot_id::SnapshotId,
    snapshot_list::{ListState, Roots, Snapshot},
    store_dir::StoreFolder,
    store_files::{AUDIT, PACK_NEW, make_dir, names, open_content_folder, own_path, remove_flat},
    trash,
};
use crate::{
    destination::StateDir,
    entry::Time,
    hash::ContentId,
    monitor::Monitor,
    root::{Root, open_below, open_child},
    sys::stat::changed,
};

/// What a line of the audit log says of the snapshots that it names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AuditLine<'a> {
    pub action: &'a str,
    /// The run or command that does it.
    pub by: &'a str,
    pub note: &'a str,
}

/// A store that this process may change, because it holds the volume's lock.
#[derive(Debug)]
pub struct Writer<'a> {
    /// Holds the lock.
    own: &'a StateDir,
    /// The same store, for reading.
    pub store: Store,
    /// The list on the volume.
    pub roots: Roots,
}

impl<'a> Writer<'a> {
    /// Opens the store of the volume that `own` holds for changes: creates missing parts, and settles what earlier
    /// writers left unfinished.
    ///
    /// # Errors
    /// If something cannot be made or read, or the store has another version.
    pub fn open(
        own: &'a StateDir,
        root: &Root,
        path: &Path,
        monitor: &Monitor,
    ) -> Result<Self, SnapshotError> {
        let store = open_or_make(own, root, path)?;
        let roots = store.roots()?;
        if roots.state == ListState::OnlyCopy {
            return Err(SnapshotError::OnlyCopy(store.path().join(ROOTS)));
        }
        make_parts(own, &store)?;
        let mut writer = Self { own, store, roots };
        if writer.roots == Roots::default() && !has(writer.store.dir(), ROOTS) {
            writer.commit(Roots::default())?;
        }
        writer.settle()?;
        writer.empty_trash(None, monitor)?;
        Ok(writer)
    }

    /// Opens a store to repair it: without its list, and without settling anything.
    pub(crate) fn open_to_repair(own: &'a StateDir, root: &Root, path: &Path) -> Result<Self, SnapshotError> {
        let store = open_or_make(own, root, path)?;
        make_parts(own, &store)?;
        Ok(Self { own, store, roots: Roots::default() })
    }

    /// Removes the files in the trash, at most `per_second` a second, until it is told to stop.
    ///
    /// # Errors
    /// If the system refuses. The next call removes the rest.
    pub fn empty_trash(&self, per_second: Option<u32>, monitor: &Monitor) -> Result<(), SnapshotError> {
        let trash = self.store.within(StoreFolder::Trash);
        trash
            .and_then(|trash| trash::empty(trash, per_second, monitor))
            .map_err(io_error("empty the trash in", self.store.path()))
    }

    /// Returns the snapshot that a new one may build on: the last one, unless another user could have made it up and
    /// cannot do so any more.
    pub(crate) fn last(&self) -> Option<&Snapshot> {
        self.roots.last().filter(|last| !last.is_exposed || self.own.has_no_modes())
    }

    /// Checks that this process still holds the volume.
    ///
    /// # Errors
    /// If another process has taken it over.
    pub fn check(&self) -> Result<(), SnapshotError> {
        self.own.check().map_err(io_error("check the lock of", self.store.path()))
    }

    /// Returns the id of the volume.
    pub(crate) fn volume(&self) -> VolumeId {
        self.own.volume()
    }

    /// Returns whether the store has a pack of this name.
    pub(crate) fn has_pack(&self, id: SnapshotId) -> bool {
        self.store.within(StoreFolder::Packs).is_ok_and(|packs| has(packs, &id.to_string()))
    }

    /// Returns the time by the clock of the volume's file system.
    pub(crate) fn now(&self) -> Result<Time, SnapshotError> {
        let now = || -> io::Result<Time> {
            let now = || rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
            let times = Timestamps { last_access: now(), last_modification: now() };
            rustix::fs::futimens(self.store.dir(), &times)?;
            Ok(changed(&rustix::fs::fstat(self.store.dir())?))
        };
        now().map_err(io_error("set the time of", self.store.path()))
    }

    /// Makes the folder for the additions of a snapshot's publication.
    pub(crate) fn make_new(&self, id: SnapshotId) -> io::Result<OwnedFd> {
        let (new, name) = (self.store.within(StoreFolder::New)?, id.to_string());
        make_dir(new, &name)?;
        open_child(new, name.as_bytes(), OFlags::RDONLY)
    }

    /// Removes the additions of a failed publication, unless the list on the volume has its snapshot all the same.
    pub(crate) fn drop_new(&self, id: SnapshotId) {
        let may_be_there =
            self.store.roots().map_or(true, |roots| roots.get(id).is_some() || roots.damages() > 0);
        if may_be_there {
            return;
        }
        let new = self.store.within(StoreFolder::New);
        if let Err(error) = new.and_then(|new| remove_flat(new, &id.to_string())) {
            tracing::debug!(%error, "the next writer removes what a failed publication left");
        }
    }

    /// Publishes a changed list, and before that a line of the audit log. A crash in between leaves a line without a
    /// change, and never a change without a line. A list without room leaves no line, because the room of the log is
    /// for the changes that give room back.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn commit_by(
        &mut self,
        roots: Roots,
        action: &str,
        by: &str,
        snapshots: &[SnapshotId],
    ) -> Result<(), SnapshotError> {
        self.commit_with(roots, &|writer| writer.log(action, by, snapshots))
    }

    /// Publishes a list with a snapshot whose objects are in `new/ID/` and not durable yet: one `syncfs` makes them
    /// durable, and with them the line of the audit log and the list. Then moves the objects to their places; removes
    /// them if the list cannot be published.
    pub(crate) fn publish_new(
        &mut self,
        roots: Roots,
        line: AuditLine<'_>,
        id: SnapshotId,
    ) -> Result<(), SnapshotError> {
        let committed = self.replace_roots(roots, |writer, _| {
            writer.append_line(line, &[id], Durable::Later)?;
            writer.sync_all()
        });
        committed.inspect_err(|_| self.drop_new(id))?;
        self.settle_one(id)
    }

    /// Publishes a list whose objects are in their places and not durable yet.
    pub(crate) fn commit_synced(&mut self, roots: Roots) -> Result<(), SnapshotError> {
        self.replace_roots(roots, |writer, _| writer.sync_all())
    }

    fn sync_all(&self) -> Result<(), SnapshotError> {
        let synced = rustix::fs::syncfs(self.store.dir());
        synced.map_err(|error| io_error("sync", self.store.path())(error.into()))
    }

    /// Appends a line to the audit log.
    ///
    /// # Errors
    /// If it cannot be written to.
    pub fn log(&self, action: &str, by: &str, snapshots: &[SnapshotId]) -> Result<(), SnapshotError> {
        self.log_with_note(AuditLine { action, by, note: "" }, snapshots)
    }

    /// Appends a line with a note to the audit log.
    pub(crate) fn log_with_note(
        &self,
        line: AuditLine<'_>,
        snapshots: &[SnapshotId],
    ) -> Result<(), SnapshotError> {
        let release = || room_for_next_list::release(self.store.dir(), self.roots.encode().len() as u64);
        match self.append_line(line, snapshots, Durable::Now) {
            Err(error) if error.is_no_room() && release() => self.append_line(line, snapshots, Durable::Now),
            result => result,
        }
    }

    fn append_line(
        &self,
        AuditLine { action, by, note }: AuditLine<'_>,
        snapshots: &[SnapshotId],
        durable: Durable,
    ) -> Result<(), SnapshotError> {
        let event = Event {
            time: contract::timestamp(SystemTime::now()),
            action: action.into(),
            by: by.into(),
            snapshots: snapshots.iter().map(ToString::to_string).collect(),
            note: note.into(),
            changes: Some(self.roots.changes),
        };
        audit_log::append(self.store.dir(), &event, &|id| self.roots.get(id).is_some(), durable)
            .map_err(|error| io_error("write to", self.store.path().join(AUDIT))(error))
    }

    /// Publishes a changed list: the only commit point. The objects that it refers to must be durable.
    ///
    /// # Errors
    /// If the list cannot be written; the volume then still has the old one.
    pub fn commit(&mut self, roots: Roots) -> Result<(), SnapshotError> {
        self.commit_with(roots, &|_| Ok(()))
    }

    fn commit_with(
        &mut self,
        roots: Roots,
        log: &dyn Fn(&Self) -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError> {
        let make_durable = |writer: &Self, list: &OwnedFd| {
            let synced = rustix::fs::fsync(list);
            synced.map_err(|error| io_error("write", writer.store.path().join(ROOTS))(error.into()))?;
            log(writer)
        };
        match self.replace_roots(roots.clone(), make_durable) {
            Err(error) if error.is_no_room() => {
                self.replace_in_reserve(roots, make_durable).map_err(|_| error)
            }
            result => result,
        }
    }

    fn replace_roots(
        &mut self,
        mut roots: Roots,
        make_durable: impl FnOnce(&Self, &OwnedFd) -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError> {
        self.check()?;
        roots.changes += 1;
        self.store.list().write(&roots, |list| make_durable(self, list))?;
        self.roots = Roots { state: ListState::Read, ..roots };
        Ok(())
    }

    /// Replaces the list in the room that is held back for that, when the file system is full.
    fn replace_in_reserve(
        &mut self,
        mut roots: Roots,
        make_durable: impl FnOnce(&Self, &OwnedFd) -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError> {
        roots.changes += 1;
        self.store.list().write_in_reserve(&roots, |list| make_durable(self, list))?;
        self.roots = Roots { state: ListState::Read, ..roots };
        Ok(())
    }

    /// Moves the additions of published snapshots to their places, and removes those of others.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn settle(&self) -> Result<(), SnapshotError> {
        let path = self.store.path_of(StoreFolder::New);
        let new = self.store.within(StoreFolder::New).map_err(io_error("read", &path))?;
        for name in names(new, ".").map_err(io_error("read", &path))? {
            let id: Option<SnapshotId> = name.parse().ok();
            match id.filter(|id| self.may_be_published(*id)) {
                Some(id) => self.settle_one(id)?,
                None => remove_flat(new, &name).map_err(io_error("remove", path.join(&name)))?,
            }
        }
        Ok(())
    }

    /// Moves the additions of one published snapshot to their places.
    pub(crate) fn settle_one(&self, id: SnapshotId) -> Result<(), SnapshotError> {
        let path = self.store.path_of(StoreFolder::New).join(id.to_string());
        self.move_additions(&id.to_string()).map_err(io_error("settle", path))
    }

    /// Returns whether the list has the snapshot, or may have had it before it was damaged.
    fn may_be_published(&self, id: SnapshotId) -> bool {
        self.roots.get(id).is_some() || self.roots.damages() > 0
    }

    fn move_additions(&self, id: &str) -> io::Result<()> {
        let new = self.store.within(StoreFolder::New)?;
        let from = open_child(new, id.as_bytes(), OFlags::RDONLY)?;
        let mut names = names(from.as_fd(), ".")?;
        // Contents of one folder follow one another.
        names.sort_unstable();
        let mut to: Option<(String, OwnedFd)> = None;
        for name in names {
            if name == PACK_NEW {
                rustix::fs::renameat(&from, &name, self.store.within(StoreFolder::Packs)?, id)?;
            } else if blake3::Hash::from_hex(&name).is_ok() {
                let (prefix, folder) = match to.take().filter(|(prefix, _)| name.starts_with(prefix)) {
                    Some(open) => open,
                    None => {
                        let contents = self.store.within(StoreFolder::Content)?;
                        (name[..2].to_owned(), open_content_folder(contents, &name)?)
                    }
                };
                rustix::fs::renameat(&from, &name, &folder, &name)?;
                to = Some((prefix, folder));
            } else {
                // An incomplete file.
                rustix::fs::unlinkat(&from, &name, AtFlags::empty())?;
            }
        }
        Ok(rustix::fs::unlinkat(new, id, AtFlags::REMOVEDIR)?)
    }

    /// Returns whether content already has a file of its own.
    pub(crate) fn has_own(&self, id: &ContentId) -> bool {
        let contents = self.store.within(StoreFolder::Content);
        contents.and_then(|contents| open_below(contents, own_path(id).as_bytes(), OFlags::PATH)).is_ok()
    }
}

fn open_or_make(own: &StateDir, root: &Root, path: &Path) -> Result<Store, SnapshotError> {
    let store = match Store::open(root, path)? {
        Some(store) => store,
        None => {
            let at = path.join(".volferry/snapshots");
            make_dir(own.dir(), "snapshots").map_err(io_error("make", at))?;
            Store::open(root, path)?.ok_or_else(|| SnapshotError::None(path.into()))?
        }
    };
    Ok(store.written_by(own.user()))
}

/// Makes the folders of a store that are missing, and the file that readers lock. Tools that copy a volume may leave
/// out empty folders. Folders that are there have to be the writer's own, and are closed to others.
fn make_parts(own: &StateDir, store: &Store) -> Result<(), SnapshotError> {
    for folder in StoreFolder::ALL {
        let open = || match store.within(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_dir(store.dir(), folder.name())?;
                store.within(folder)
            }
            opened => opened,
        };
        open().and_then(|fd| own.close_inner(fd)).map_err(io_error("use", store.path_of(folder)))?;
    }
    if has(store.dir(), READERS) {
        Ok(())
    } else {
        readers(store.dir()).map(drop).map_err(io_error("make", store.path().join(READERS)))
    }
}

fn has(dir: BorrowedFd<'_>, name: &str) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}
