//! Changes the store of a volume: the way in which a change becomes durable, and what a crash leaves.
//!
//! The rename of `roots.new` to `roots` (`RootsFile::write`) is the only commit point. Until then, the additions of a
//! publication are in `new/ID/`. The next writer moves them to their places if `roots` has the snapshot, and removes
//! them if not. So a store has its list before it has anything else.

use std::{io, os::fd::OwnedFd, path::Path, time::SystemTime};

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
    store_files::{
        AUDIT, CONTENT, NEW, PACK_NEW, PACKS, PART, TRASH, make_dir, names, own_name, remove_flat,
    },
    trash,
};
use crate::{
    destination::StateDir,
    entry::Time,
    hash::ContentId,
    monitor::Monitor,
    root::{Root, open_child},
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
        make_parts(&store)?;
        let mut writer = Self { own, store, roots };
        if writer.roots == Roots::default() && !has(&writer.store, ROOTS) {
            writer.commit(Roots::default())?;
        }
        writer.settle()?;
        writer.empty_trash(None, monitor)?;
        Ok(writer)
    }

    /// Opens a store to repair it: without its list, and without settling anything.
    pub(crate) fn open_to_repair(own: &'a StateDir, root: &Root, path: &Path) -> Result<Self, SnapshotError> {
        let store = open_or_make(own, root, path)?;
        make_parts(&store)?;
        Ok(Self { own, store, roots: Roots::default() })
    }

    /// Removes the files in the trash, at most `per_second` a second, until it is told to stop.
    ///
    /// # Errors
    /// If the system refuses. The next call removes the rest.
    pub fn empty_trash(&self, per_second: Option<u32>, monitor: &Monitor) -> Result<(), SnapshotError> {
        trash::empty(self.store.dir(), per_second, monitor)
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
        has(&self.store, &format!("{PACKS}/{id}"))
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
        let name = format!("{NEW}/{id}");
        make_dir(self.store.dir(), &name)?;
        open_child(self.store.dir(), name.as_bytes(), OFlags::RDONLY)
    }

    /// Removes the additions of a failed publication, unless the list on the volume has its snapshot all the same.
    pub(crate) fn drop_new(&self, id: SnapshotId) {
        let may_be_there =
            self.store.roots().map_or(true, |roots| roots.get(id).is_some() || roots.damages() > 0);
        if may_be_there {
            return;
        }
        if let Err(error) = remove_flat(self.store.dir(), &format!("{NEW}/{id}")) {
            tracing::debug!(%error, "the next writer removes what a failed publication left");
        }
    }

    /// Writes the change to the audit log, and publishes the list. A crash in between leaves a line without a change,
    /// and never a change without a line.
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
        self.log(action, by, snapshots)?;
        self.commit(roots)
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
        let committed =
            self.append_line(line, &[id], Durable::Later).and_then(|()| self.commit_synced(roots));
        committed.inspect_err(|_| self.drop_new(id))?;
        self.settle_one(id)
    }

    /// Publishes a list whose objects are in their places and not durable yet.
    pub(crate) fn commit_synced(&mut self, roots: Roots) -> Result<(), SnapshotError> {
        self.replace_roots(roots, |store, _| rustix::fs::syncfs(store.dir()))
    }

    /// Appends a line to the audit log.
    ///
    /// # Errors
    /// If it cannot be written to.
    pub fn log(&self, action: &str, by: &str, snapshots: &[SnapshotId]) -> Result<(), SnapshotError> {
        self.log_with_note(AuditLine { action, by, note: "" }, snapshots)
    }

    /// Appends a line with a note to the audit log, on a full file system in the room that is held back.
    pub(crate) fn log_with_note(
        &self,
        line: AuditLine<'_>,
        snapshots: &[SnapshotId],
    ) -> Result<(), SnapshotError> {
        match self.append_line(line, snapshots, Durable::Now) {
            Err(error) if error.is_no_room() && room_for_next_list::release(self.store.dir()) => {
                self.append_line(line, snapshots, Durable::Now)
            }
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
        };
        audit_log::append(self.store.dir(), &event, durable)
            .map_err(|error| io_error("write to", self.store.path().join(AUDIT))(error))
    }

    /// Publishes a changed list: the only commit point. The objects that it refers to must be durable.
    ///
    /// # Errors
    /// If the list cannot be written; the volume then still has the old one.
    pub fn commit(&mut self, roots: Roots) -> Result<(), SnapshotError> {
        match self.replace_roots(roots.clone(), |_, list| rustix::fs::fsync(list)) {
            Err(error) if error.is_no_room() => self.replace_in_reserve(roots).map_err(|_| error),
            result => result,
        }
    }

    fn replace_roots(
        &mut self,
        mut roots: Roots,
        sync: impl FnOnce(&Store, &OwnedFd) -> rustix::io::Result<()>,
    ) -> Result<(), SnapshotError> {
        self.check()?;
        roots.changes += 1;
        self.store.list().write(&roots, |list| sync(&self.store, list))?;
        self.roots = Roots { state: ListState::Read, ..roots };
        Ok(())
    }

    /// Replaces the list in the room that is held back for that, when the file system is full.
    fn replace_in_reserve(&mut self, mut roots: Roots) -> io::Result<()> {
        roots.changes += 1;
        self.store.list().write_in_reserve(&roots)?;
        self.roots = Roots { state: ListState::Read, ..roots };
        Ok(())
    }

    /// Moves the additions of published snapshots to their places, and removes those of others.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn settle(&self) -> Result<(), SnapshotError> {
        let path = self.store.path().join(NEW);
        for name in names(self.store.dir(), NEW).map_err(io_error("read", &path))? {
            let id: Option<SnapshotId> = name.parse().ok();
            match id.filter(|id| self.may_be_published(*id)) {
                Some(id) => self.settle_one(id)?,
                None => remove_flat(self.store.dir(), &format!("{NEW}/{name}"))
                    .map_err(io_error("remove", path.join(&name)))?,
            }
        }
        Ok(())
    }

    /// Moves the additions of one published snapshot to their places.
    pub(crate) fn settle_one(&self, id: SnapshotId) -> Result<(), SnapshotError> {
        self.move_additions(id).map_err(io_error("settle", self.store.path().join(NEW).join(id.to_string())))
    }

    /// Returns whether the list has the snapshot, or may have had it before it was damaged.
    fn may_be_published(&self, id: SnapshotId) -> bool {
        self.roots.get(id).is_some() || self.roots.damages() > 0
    }

    fn move_additions(&self, id: SnapshotId) -> io::Result<()> {
        let (dir, from) = (self.store.dir(), format!("{NEW}/{id}"));
        for name in names(dir, &from)? {
            if name.ends_with(PART) {
                rustix::fs::unlinkat(dir, format!("{from}/{name}"), AtFlags::empty())?;
                continue;
            }
            let to = match name.as_str() {
                PACK_NEW => format!("{PACKS}/{id}"),
                _ => {
                    make_dir(dir, &format!("{CONTENT}/{}", name.get(..2).unwrap_or(&name)))?;
                    format!("{CONTENT}/{}/{name}", name.get(..2).unwrap_or(&name))
                }
            };
            rustix::fs::renameat(dir, format!("{from}/{name}"), dir, to)?;
        }
        Ok(rustix::fs::unlinkat(dir, from, AtFlags::REMOVEDIR)?)
    }

    /// Returns whether content already has a file of its own.
    pub(crate) fn has_own(&self, id: &ContentId) -> bool {
        has(&self.store, &own_name(id))
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
/// out empty folders.
fn make_parts(store: &Store) -> Result<(), SnapshotError> {
    for name in [PACKS, CONTENT, NEW, TRASH].into_iter().filter(|name| !has(store, name)) {
        make_dir(store.dir(), name).map_err(io_error("make", store.path().join(name)))?;
    }
    if has(store, READERS) {
        Ok(())
    } else {
        readers(store.dir()).map(drop).map_err(io_error("make", store.path().join(READERS)))
    }
}

fn has(store: &Store, name: &str) -> bool {
    rustix::fs::statat(store.dir(), name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}
