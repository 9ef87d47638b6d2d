//! Changes the store of a volume: the way in which a change becomes durable, and what a crash leaves.
//!
//! The rename of `roots.new` to `roots` is the only commit point. Until then, the additions of a publication are in
//! `new/ID/`. The next writer moves them to their places if `roots` has the snapshot, and removes them if not.

use std::{io, os::fd::OwnedFd, path::Path, time::SystemTime};

use rustix::fs::{AtFlags, Mode, OFlags, Timestamps};

use super::{
    audit::{self, Durable, Event},
    id::SnapshotId,
    roots::Roots,
    snapshot_error::{SnapshotError, io_error},
    store::Store,
    store_files::{
        CONTENT, NEW, PACK_NEW, PACKS, PART, READERS, ROOTS, TRASH, make_dir, names, own_name, readers,
        remove_flat, write_all,
    },
    trash,
};
use crate::{
    apply::StateDir,
    entry::Time,
    hash::ContentId,
    monitor::Monitor,
    root::{Root, open_child},
    stat::changed,
};

const ROOTS_NEW: &str = "roots.new";

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
        let store = match Store::open(root, path)? {
            Some(store) => store,
            None => {
                let at = path.join(".volferry/snapshots");
                make_dir(own.dir(), "snapshots").map_err(io_error("make", at))?;
                Store::open(root, path)?.ok_or_else(|| SnapshotError::None(path.into()))?
            }
        };
        make_parts(&store)?;
        let roots = store.roots()?;
        let writer = Self { own, store, roots };
        writer.settle()?;
        writer.empty_trash(None, monitor)?;
        Ok(writer)
    }

    /// Removes the files in the trash, at most `per_second` a second, until it is told to stop.
    ///
    /// # Errors
    /// If the system refuses. The next call removes the rest.
    pub fn empty_trash(&self, per_second: Option<u32>, monitor: &Monitor) -> Result<(), SnapshotError> {
        trash::empty(self.store.dir(), per_second, monitor)
            .map_err(io_error("empty the trash in", self.store.path()))
    }

    /// Checks that this process still holds the volume.
    ///
    /// # Errors
    /// If another process has taken it over.
    pub fn check(&self) -> Result<(), SnapshotError> {
        self.own.check().map_err(io_error("check the lock of", self.store.path()))
    }

    /// Returns the time by the clock of the volume's file system.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn now(&self) -> Result<Time, SnapshotError> {
        let now = || -> io::Result<Time> {
            let now = || rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
            let times = Timestamps { last_access: now(), last_modification: now() };
            rustix::fs::futimens(self.store.dir(), &times)?;
            Ok(changed(&rustix::fs::fstat(self.store.dir())?))
        };
        now().map_err(io_error("set the time of", self.store.path()))
    }

    /// Makes the folder for the additions of a snapshot's publication.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn make_new(&self, id: SnapshotId) -> io::Result<OwnedFd> {
        let name = format!("{NEW}/{id}");
        make_dir(self.store.dir(), &name)?;
        open_child(self.store.dir(), name.as_bytes(), OFlags::RDONLY)
    }

    /// Removes the additions of a failed publication, unless the list on the volume has its snapshot all the same.
    pub(super) fn drop_new(&self, id: SnapshotId) {
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

    /// Publishes a list with a snapshot whose objects were written and are not durable yet: one `syncfs` makes them
    /// durable, and with them the line of the audit log and the list.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub(super) fn commit_with_objects(
        &mut self,
        roots: Roots,
        by: &str,
        id: SnapshotId,
    ) -> Result<(), SnapshotError> {
        self.append_line("create", by, &[id], Durable::Later)?;
        self.replace_roots(roots, |store, _| rustix::fs::syncfs(store.dir()))
    }

    /// Appends a line to the audit log.
    ///
    /// # Errors
    /// If it cannot be written to.
    pub fn log(&self, action: &str, by: &str, snapshots: &[SnapshotId]) -> Result<(), SnapshotError> {
        self.append_line(action, by, snapshots, Durable::Now)
    }

    fn append_line(
        &self,
        action: &str,
        by: &str,
        snapshots: &[SnapshotId],
        durable: Durable,
    ) -> Result<(), SnapshotError> {
        let event = Event {
            time: contract::timestamp(SystemTime::now()),
            action: action.into(),
            by: by.into(),
            snapshots: snapshots.iter().map(ToString::to_string).collect(),
        };
        audit::append(self.store.dir(), &event, durable)
            .map_err(|error| io_error("write to", self.store.path().join("audit"))(error))
    }

    /// Publishes a changed list: the only commit point. The objects that it refers to must be durable.
    ///
    /// # Errors
    /// If the list cannot be written; the volume then still has the old one.
    pub fn commit(&mut self, roots: Roots) -> Result<(), SnapshotError> {
        self.replace_roots(roots, |_, list| rustix::fs::fsync(list))
    }

    /// Writes the list under a temporary name, makes it durable with `sync`, and renames it.
    fn replace_roots(
        &mut self,
        roots: Roots,
        sync: impl FnOnce(&Store, &OwnedFd) -> rustix::io::Result<()>,
    ) -> Result<(), SnapshotError> {
        self.check()?;
        let write = || -> io::Result<()> {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(self.store.dir(), ROOTS_NEW, flags, Mode::RUSR | Mode::WUSR)?;
            write_all(&file, &roots.encode())?;
            sync(&self.store, &file)?;
            rustix::fs::renameat(self.store.dir(), ROOTS_NEW, self.store.dir(), ROOTS)?;
            Ok(rustix::fs::fsync(self.store.dir())?)
        };
        write().map_err(|error| io_error("write", self.store.path().join(ROOTS_NEW))(error))?;
        self.roots = roots;
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
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn settle_one(&self, id: SnapshotId) -> Result<(), SnapshotError> {
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
    pub(super) fn has_own(&self, id: &ContentId) -> bool {
        has(&self.store, &own_name(id))
    }
}

/// Makes the folders of a store that are missing, and the file that readers lock. Tools that copy a volume may leave
/// out empty folders.
fn make_parts(store: &Store) -> Result<(), SnapshotError> {
    for name in [PACKS, CONTENT, NEW, TRASH].into_iter().filter(|name| !has(store, name)) {
        make_dir(store.dir(), name).map_err(io_error("make", store.path().join(name)))?;
    }
    match has(store, READERS) {
        true => Ok(()),
        false => readers(store.dir()).map(drop).map_err(io_error("make", store.path().join(READERS))),
    }
}

fn has(store: &Store, name: &str) -> bool {
    rustix::fs::statat(store.dir(), name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}
