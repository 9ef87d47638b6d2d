//! `.volferry/snapshots/` on a volume: the list of snapshots, packs and contents, and the way in which a change becomes
//! durable.
//!
//! The rename of `roots.new` to `roots` is the only commit point. Until then, the additions of a publication are in
//! `new/ID/`. The next writer moves them to their places if `roots` has the snapshot, and removes them if not.

use std::{
    collections::HashMap,
    io::{self, Read as _},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use rustix::fs::{AtFlags, Mode, OFlags, Timestamps};

use super::{
    audit::{self, Durable, Event},
    content::{ContentRef, Home, VisitData, id_of_visited},
    folder::{Folder, FolderRef, MAX_FOLDER_BYTES, NotFolder, ObjectRef},
    folder_changes::{self, StoredFolder},
    id::SnapshotId,
    roots::{MAX_ROOTS_BYTES, NotRoots, Roots, VERSION},
    snapshot_error::{SnapshotError, io_error},
    store_files::{
        CONTENT, PACK_NEW, PACKS, PART, READERS, TRASH, make_dir, names, open_file, own_name, readers,
        remove_flat, write_all,
    },
    trash,
};
use crate::{
    apply::StateDir,
    codec::DecodeError,
    entry::Time,
    hash::ContentId,
    monitor::Monitor,
    path::{OWN_DIR, SNAPSHOTS},
    root::{Root, open_child},
    slice::Slice,
    stat::changed,
};

const ROOTS: &str = "roots";
const ROOTS_NEW: &str = "roots.new";
const NEW: &str = "new";
/// The largest number of packs that are held open at once.
const OPEN_PACKS: usize = 64;

/// The snapshots of a volume, for reading.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    dir: OwnedFd,
    packs: Mutex<OpenPacks>,
}

/// Packs that were opened. A pack that a snapshot refers to never changes its length.
#[derive(Debug, Default)]
struct OpenPacks {
    files: HashMap<u64, Arc<OwnedFd>>,
    /// In bytes, also of packs that are no longer open.
    lens: HashMap<u64, u64>,
}

/// Content that is open for reading.
#[derive(Debug)]
pub struct OpenContent {
    /// The file that contains it.
    pub file: Arc<OwnedFd>,
    /// The offset of its first byte there.
    pub start: u64,
    /// Whether the file contains nothing else.
    pub is_alone: bool,
}

impl OpenContent {
    /// Returns its bytes.
    pub fn slice(&self) -> Slice<'_> {
        Slice { fd: self.file.as_fd(), start: self.start }
    }
}

impl Store {
    /// Opens the store of the volume at `root`; `None` if the volume has none. `path` is the volume's path for
    /// messages.
    ///
    /// # Errors
    /// If the folder cannot be opened.
    pub fn open(root: &Root, path: &Path) -> Result<Option<Self>, SnapshotError> {
        let path = path.join(".volferry/snapshots");
        let opened = open_child(root, OWN_DIR, OFlags::PATH)
            .and_then(|own| open_child(own, SNAPSHOTS, OFlags::RDONLY));
        match opened {
            Ok(dir) => Ok(Some(Self { path, dir, packs: Mutex::default() })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("open", path)(error)),
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Reads the list of snapshots.
    ///
    /// # Errors
    /// If it cannot be read, or has another version.
    pub fn roots(&self) -> Result<Roots, SnapshotError> {
        let path = || self.path.join(ROOTS);
        let file = match open_file(self.dir.as_fd(), ROOTS) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Roots::default()),
            result => result.map_err(|error| io_error("open", path())(error))?,
        };
        // With room for all of it, the file is read by one call.
        let len = rustix::fs::fstat(&file).map_or(0, |stat| stat.st_size as u64).min(MAX_ROOTS_BYTES);
        let mut bytes = Vec::with_capacity(len as usize + 1);
        let read = std::fs::File::from(file).take(MAX_ROOTS_BYTES).read_to_end(&mut bytes);
        read.map_err(|error| io_error("read", path())(error))?;
        Roots::decode(&bytes).map_err(|error| match error {
            NotRoots::Version(version) => SnapshotError::Version { path: path(), version, known: VERSION },
            NotRoots::Magic => SnapshotError::Damaged {
                what: path().display().to_string(),
                source: DecodeError::Invalid("it does not begin as a list of snapshots does"),
            },
        })
    }

    /// Reads the audit log.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn audit(&self) -> Result<audit::Log, SnapshotError> {
        audit::read(self.dir()).map_err(io_error("read", self.path.join("audit")))
    }

    /// Reads a directory and checks its id.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged.
    pub fn folder(&self, folder: &FolderRef) -> Result<Folder, SnapshotError> {
        let decoded = match self.stored_folder(&folder.place)? {
            StoredFolder::Whole(decoded) => decoded,
            StoredFolder::Changes(changes) => {
                let base = self.whole_folder(&changes.base)?;
                changes.apply(&base).map_err(|error| self.damaged(&folder.place, error))?
            }
        };
        match decoded.id() == folder.id {
            true => Ok(decoded),
            false => Err(SnapshotError::Hash(self.name_of_folder(folder))),
        }
    }

    /// Returns the place and the content of the directory if it is stored as a whole, and those of its base otherwise.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged.
    pub(super) fn base_of(&self, folder: &FolderRef) -> Result<(ObjectRef, Folder), SnapshotError> {
        match self.stored_folder(&folder.place)? {
            StoredFolder::Whole(whole) => Ok((folder.place, whole)),
            StoredFolder::Changes(changes) => Ok((changes.base, self.whole_folder(&changes.base)?)),
        }
    }

    /// Reads a directory that is stored as a whole, and checks its checksum.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or is stored as differences.
    pub(super) fn whole_folder(&self, place: &ObjectRef) -> Result<Folder, SnapshotError> {
        match self.stored_folder(place)? {
            StoredFolder::Whole(folder) => Ok(folder),
            StoredFolder::Changes(_) => {
                Err(self.damaged(place, DecodeError::Invalid("it is needed as a whole, and is not")))
            }
        }
    }

    /// Reads a directory as it is stored, and checks its checksum.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged.
    pub(super) fn stored_folder(&self, place: &ObjectRef) -> Result<StoredFolder, SnapshotError> {
        if place.len > MAX_FOLDER_BYTES {
            return Err(self.damaged(place, DecodeError::Overflow));
        }
        let bytes = self.read_pack(place.pack, place.offset, place.len as usize)?;
        StoredFolder::decode(&bytes).map_err(|error| match error {
            NotFolder::Damaged(error) => self.damaged(place, error),
            NotFolder::Version(version) => SnapshotError::Version {
                path: self.pack_path(place.pack),
                version: version.into(),
                known: folder_changes::VERSION.into(),
            },
        })
    }

    fn damaged(&self, place: &ObjectRef, source: DecodeError) -> SnapshotError {
        SnapshotError::Damaged { what: self.name_of_pack(place.pack, place.offset), source }
    }

    /// Names a directory for messages.
    pub(super) fn name_of_folder(&self, folder: &FolderRef) -> String {
        self.name_of_pack(folder.place.pack, folder.place.offset)
    }

    /// Returns the encoding of an undamaged directory.
    pub(super) fn folder_bytes(&self, folder: &FolderRef) -> Result<Vec<u8>, SnapshotError> {
        self.folder(folder)?;
        self.read_pack(folder.place.pack, folder.place.offset, folder.place.len as usize)
    }

    fn read_pack(&self, pack: u64, offset: u64, len: usize) -> Result<Vec<u8>, SnapshotError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => SnapshotError::Damaged {
                what: self.name_of_pack(pack, offset),
                source: DecodeError::Truncated,
            },
            _ => io_error("read", self.pack_path(pack))(error),
        };
        let file = self.pack(pack).map_err(|error| io_error("open", self.pack_path(pack))(error))?;
        let end = self.len_of_open(pack).unwrap_or(0);
        if offset.checked_add(len as u64).is_none_or(|last| last > end) {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        let mut bytes = vec![0; len];
        Slice::all_of(file.as_fd()).read_exact_at(&mut bytes, offset).map_err(failed)?;
        Ok(bytes)
    }

    fn pack(&self, pack: u64) -> io::Result<Arc<OwnedFd>> {
        if let Some(open) = self.packs().files.get(&pack) {
            return Ok(Arc::clone(open));
        }
        let name = SnapshotId(pack).to_string();
        let open =
            self.at_home_or_new(&format!("{PACKS}/{name}"), |new| (new == name).then(|| PACK_NEW.into()))?;
        let len = rustix::fs::fstat(&open)?.st_size as u64;
        let open = Arc::new(open);
        let mut packs = self.packs();
        if packs.files.len() >= OPEN_PACKS {
            packs.files.clear();
        }
        packs.files.insert(pack, Arc::clone(&open));
        packs.lens.insert(pack, len);
        Ok(open)
    }

    fn packs(&self) -> MutexGuard<'_, OpenPacks> {
        self.packs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the length in bytes of a pack that was read before.
    pub(super) fn len_of_open(&self, pack: u64) -> Option<u64> {
        self.packs().lens.get(&pack).copied()
    }

    /// Opens content without checking it; [`Self::check`] does that.
    ///
    /// # Errors
    /// If it is missing.
    pub fn content(&self, content: &ContentRef) -> Result<OpenContent, SnapshotError> {
        match content.home {
            Home::Pack { pack, offset } => {
                let file = self.pack(pack).map_err(|error| io_error("open", self.pack_path(pack))(error))?;
                Ok(OpenContent { file, start: offset, is_alone: false })
            }
            Home::Own => {
                let name = own_name(&content.id);
                let file = self.at_home_or_new(&name, |_| Some(content.id.to_string()));
                let file = file.map_err(|error| io_error("open", self.path.join(&name))(error))?;
                Ok(OpenContent { file: Arc::new(file), start: 0, is_alone: true })
            }
        }
    }

    /// Reads content of `len` bytes from a pack and checks it.
    ///
    /// # Errors
    /// If it cannot be read, or does not have its hash.
    pub fn small(&self, content: &ContentRef, len: u64) -> Result<Vec<u8>, SnapshotError> {
        let open = self.content(content)?;
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX).min(MAX_FOLDER_BYTES as usize)];
        open.slice()
            .read_exact_at(&mut bytes, 0)
            .map_err(|error| io_error("read", self.name_of(content))(error))?;
        match ContentId::of(&bytes) == content.id {
            true => Ok(bytes),
            false => Err(SnapshotError::Hash(self.name_of(content))),
        }
    }

    /// Reads content of `len` bytes and checks it.
    ///
    /// # Errors
    /// If it cannot be read, has another length, or does not have its hash.
    pub fn check(&self, content: &ContentRef, len: u64) -> Result<(), SnapshotError> {
        self.check_visited(content, len, &|_, _| Ok(()))
    }

    /// Checks content as [`Self::check`] does, and passes each piece that it reads to `visit`.
    ///
    /// # Errors
    /// As [`Self::check`], and any error of `visit`.
    pub(super) fn check_visited(
        &self,
        content: &ContentRef,
        len: u64,
        visit: &VisitData<'_>,
    ) -> Result<(), SnapshotError> {
        let open = self.content(content)?;
        let failed = |error| io_error("read", self.name_of(content))(error);
        let end = rustix::fs::fstat(&open.file).map(|stat| stat.st_size as u64);
        let fits = end.is_ok_and(|end| match open.is_alone {
            true => end == len,
            false => open.start.checked_add(len).is_some_and(|last| last <= end),
        });
        match fits && id_of_visited(open.slice(), len, visit).map_err(failed)? == content.id {
            true => Ok(()),
            false => Err(SnapshotError::Hash(self.name_of(content))),
        }
    }

    /// Names an object for messages.
    pub fn name_of(&self, content: &ContentRef) -> String {
        match content.home {
            Home::Own => self.path.join(own_name(&content.id)).display().to_string(),
            Home::Pack { pack, offset } => self.name_of_pack(pack, offset),
        }
    }

    fn name_of_pack(&self, pack: u64, offset: u64) -> String {
        format!("{} at byte {offset}", self.pack_path(pack).display())
    }

    fn pack_path(&self, pack: u64) -> PathBuf {
        self.path.join(PACKS).join(SnapshotId(pack).to_string())
    }

    /// Opens an object at its place, or in the folder of an unsettled publication, under the name that `name_there`
    /// returns. A writer may move it meanwhile, so the first place is tried twice.
    fn at_home_or_new(&self, home: &str, name_there: impl Fn(&str) -> Option<String>) -> io::Result<OwnedFd> {
        let first = match open_file(self.dir.as_fd(), home) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => error,
            result => return result,
        };
        for publication in names(self.dir.as_fd(), NEW).unwrap_or_default() {
            let Some(name) = name_there(&publication) else { continue };
            if let Ok(file) = open_file(self.dir.as_fd(), &format!("{NEW}/{publication}/{name}")) {
                return Ok(file);
            }
        }
        open_file(self.dir.as_fd(), home).map_err(|_| first)
    }
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
        let at = path.join(".volferry/snapshots");
        make_dir(own.dir(), "snapshots").map_err(io_error("make", &at))?;
        let store = Store::open(root, path)?.ok_or_else(|| SnapshotError::None(path.into()))?;
        for name in [PACKS, CONTENT, NEW, TRASH] {
            make_dir(store.dir(), name).map_err(io_error("make", at.join(name)))?;
        }
        readers(store.dir()).map_err(io_error("make", at.join(READERS)))?;
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
        self.own.check().map_err(io_error("check the lock of", &self.store.path))
    }

    /// Returns the time by the clock of the volume's file system.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn now(&self) -> Result<Time, SnapshotError> {
        let now = || -> io::Result<Time> {
            let now = || rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
            let times = Timestamps { last_access: now(), last_modification: now() };
            rustix::fs::futimens(&self.store.dir, &times)?;
            Ok(changed(&rustix::fs::fstat(&self.store.dir)?))
        };
        now().map_err(io_error("set the time of", &self.store.path))
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
        self.replace_roots(roots, |store, _| rustix::fs::syncfs(&store.dir))
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
            .map_err(|error| io_error("write to", self.store.path.join("audit"))(error))
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
            let file = rustix::fs::openat(&self.store.dir, ROOTS_NEW, flags, Mode::RUSR | Mode::WUSR)?;
            write_all(&file, &roots.encode())?;
            sync(&self.store, &file)?;
            rustix::fs::renameat(&self.store.dir, ROOTS_NEW, &self.store.dir, ROOTS)?;
            Ok(rustix::fs::fsync(&self.store.dir)?)
        };
        write().map_err(|error| io_error("write", self.store.path.join(ROOTS_NEW))(error))?;
        self.roots = roots;
        Ok(())
    }

    /// Moves the additions of published snapshots to their places, and removes those of others.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn settle(&self) -> Result<(), SnapshotError> {
        let path = self.store.path.join(NEW);
        for name in names(self.store.dir(), NEW).map_err(io_error("read", &path))? {
            let id: Option<SnapshotId> = name.parse().ok();
            let settled = match id.filter(|id| self.may_be_published(*id)) {
                Some(id) => self.settle_one(id),
                None => remove_flat(self.store.dir(), &format!("{NEW}/{name}")),
            };
            settled.map_err(io_error("settle", path.join(&name)))?;
        }
        Ok(())
    }

    /// Returns whether the list has the snapshot, or may have had it before it was damaged.
    fn may_be_published(&self, id: SnapshotId) -> bool {
        self.roots.get(id).is_some() || self.roots.damages() > 0
    }

    fn settle_one(&self, id: SnapshotId) -> io::Result<()> {
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
        rustix::fs::statat(self.store.dir(), own_name(id), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }
}
