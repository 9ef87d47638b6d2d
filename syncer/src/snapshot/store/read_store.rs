//! Reads `.volferry/snapshots/` of a volume: the list of snapshots, their directories and their contents.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::OFlags;

use super::{
    audit_log,
    choose_list_copy::RootsFile,
    content_id::{ContentRef, Home, VisitData, id_of_visited},
    exposed_files::is_exposed,
    folder::{Folder, FolderRef, MAX_FOLDER_BYTES, NotFolder, ObjectRef},
    folder_changes::{self, FolderChanges, StoredFolder},
    snapshot_error::{SnapshotError, io_error},
    snapshot_id::SnapshotId,
    snapshot_list::{Roots, Snapshot},
    snapshot_record::MAX_RECORD_BYTES,
    store_dir::{StoreDir, StoreFolder},
    store_files::{AUDIT, OLD_PACK_MAGIC, PACK_MAGIC, PACK_NEW, names, open_file, own_path},
};
use crate::{
    codec::DecodeError,
    hash::ContentId,
    path::{OWN_DIR, SNAPSHOTS},
    root::{Root, open_child},
    sys::file_part::Slice,
};

/// The bytes at the end of a pack that nearly always have the record of its snapshot.
const FEW_RECORD_BYTES: u64 = 4 << 10;

/// The largest number of packs that are held open at once.
const OPEN_PACKS: usize = 64;

/// The snapshots of a volume, for reading.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    dir: StoreDir,
    /// The user, besides root, whose files are believed.
    user: u32,
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
        Slice::from(self.file.as_fd(), self.start)
    }
}

/// A directory that is stored as a whole, with its place.
pub(crate) struct WholeFolder {
    pub place: ObjectRef,
    pub folder: Folder,
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
            Ok(dir) => {
                let user = rustix::process::geteuid().as_raw();
                Ok(Some(Self { path, dir: StoreDir::new(dir), user, packs: Mutex::default() }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("open", path)(error)),
        }
    }

    /// Believes the files of this user, as which the process writes on the volume, in place of its own user's.
    pub(crate) fn written_by(self, user: u32) -> Self {
        Self { user, ..self }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.fd()
    }

    /// Returns one of the folders in its own.
    ///
    /// # Errors
    /// `NotFound` if it is missing; if something else has its name.
    pub(crate) fn within(&self, folder: StoreFolder) -> io::Result<BorrowedFd<'_>> {
        self.dir.folder(folder)
    }

    /// Returns the path of one of the folders, for messages.
    pub(crate) fn path_of(&self, folder: StoreFolder) -> PathBuf {
        self.path.join(folder.name())
    }

    /// Reads the list of snapshots, from its copy if it is damaged. All of them count as exposed if another user can
    /// write to the file.
    ///
    /// # Errors
    /// If it cannot be read or has another version; if it is missing beside objects or a log of snapshots.
    pub fn roots(&self) -> Result<Roots, SnapshotError> {
        self.list().read()
    }

    /// Returns the files of the list.
    pub(crate) fn list(&self) -> RootsFile<'_> {
        RootsFile { dir: self.dir(), path: &self.path, user: self.user }
    }

    /// Reads the audit log, which has to have the last change of the list that was read before it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn audit(&self, roots: &Roots) -> Result<audit_log::Log, SnapshotError> {
        audit_log::read(self.dir(), roots.changes).map_err(io_error("read", self.path.join(AUDIT)))
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
        if decoded.id() == folder.id {
            Ok(decoded)
        } else {
            Err(SnapshotError::Hash(self.name_of_folder(folder)))
        }
    }

    /// Returns the directory if it is stored as a whole, and its base otherwise.
    pub(crate) fn base_of(&self, folder: &FolderRef) -> Result<WholeFolder, SnapshotError> {
        match self.stored_folder(&folder.place)? {
            StoredFolder::Whole(whole) => Ok(WholeFolder { place: folder.place, folder: whole }),
            StoredFolder::Changes(FolderChanges { base, .. }) => {
                Ok(WholeFolder { place: base, folder: self.whole_folder(&base)? })
            }
        }
    }

    /// Reads a directory that is stored as a whole, and checks its checksum.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or is stored as differences.
    pub(crate) fn whole_folder(&self, place: &ObjectRef) -> Result<Folder, SnapshotError> {
        match self.stored_folder(place)? {
            StoredFolder::Whole(folder) => Ok(folder),
            StoredFolder::Changes(_) => {
                Err(self.damaged(place, DecodeError::Invalid("it is needed as a whole, and is not")))
            }
        }
    }

    /// Reads a directory as it is stored, and checks its checksum.
    pub(crate) fn stored_folder(&self, place: &ObjectRef) -> Result<StoredFolder, SnapshotError> {
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
    pub(crate) fn name_of_folder(&self, folder: &FolderRef) -> String {
        self.name_of_pack(folder.place.pack, folder.place.offset)
    }

    /// Returns the encoding of an undamaged directory.
    pub(crate) fn folder_bytes(&self, folder: &FolderRef) -> Result<Vec<u8>, SnapshotError> {
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
        let open = self.at_home_or_new(StoreFolder::Packs, &name, |new| (new == name).then_some(PACK_NEW))?;
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
        self.packs.lock()
    }

    /// Returns the length in bytes of a pack that was read before.
    pub(crate) fn len_of_open(&self, pack: u64) -> Option<u64> {
        self.packs().lens.get(&pack).copied()
    }

    /// Forgets a pack that is open, because it was replaced or grew.
    pub(crate) fn close_pack(&self, pack: u64) {
        let mut packs = self.packs();
        packs.files.remove(&pack);
        packs.lens.remove(&pack);
    }

    /// Reads the record at the end of a snapshot's pack; `None` if the pack is missing, or of the version without.
    pub(crate) fn record_in_pack(&self, pack: u64) -> Result<Option<Snapshot>, SnapshotError> {
        let mut exposed = false;
        let mut read = || -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
            let file = match self.pack(pack) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                file => file?,
            };
            exposed = is_exposed(&rustix::fs::fstat(&file)?, self.user);
            let (file, len) = (Slice::all_of(file.as_fd()), self.len_of_open(pack).unwrap_or(0));
            let read = |at: u64, count: u64| -> io::Result<Vec<u8>> {
                let mut bytes = vec![0; count as usize];
                file.read_exact_at(&mut bytes, at)?;
                Ok(bytes)
            };
            let magic = read(0, len.min(PACK_MAGIC.len() as u64))?;
            let at_end = |most: u64| read(len.saturating_sub(most), len.min(most));
            let mut end = at_end(FEW_RECORD_BYTES)?;
            if Snapshot::at_end_of(&end).is_none() && magic != OLD_PACK_MAGIC {
                end = at_end(MAX_RECORD_BYTES)?;
            }
            Ok(Some((magic, end)))
        };
        let found = read().map_err(|error| io_error("read", self.pack_path(pack))(error))?;
        let Some((magic, end)) = found else { return Ok(None) };
        match Snapshot::at_end_of(&end).filter(|snapshot| snapshot.id.0 == pack) {
            Some(snapshot) => Ok(Some(Snapshot { is_exposed: snapshot.is_exposed || exposed, ..snapshot })),
            None if magic == OLD_PACK_MAGIC => Ok(None),
            None => Err(SnapshotError::Damaged {
                what: self.name_of_record(SnapshotId(pack)),
                source: DecodeError::Invalid("it does not end with the record of its snapshot"),
            }),
        }
    }

    /// Names the record at the end of a snapshot's pack for messages.
    pub(crate) fn name_of_record(&self, id: SnapshotId) -> String {
        format!("{} at its end", self.pack_path(id.0).display())
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
                let path = own_path(&content.id);
                let name = path.rsplit('/').next();
                let file = self.at_home_or_new(StoreFolder::Content, &path, |_| name);
                let file = file.map_err(|error| {
                    io_error("open", self.path_of(StoreFolder::Content).join(&path))(error)
                })?;
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
        if ContentId::of(&bytes) == content.id {
            Ok(bytes)
        } else {
            Err(SnapshotError::Hash(self.name_of(content)))
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
    pub(crate) fn check_visited(
        &self,
        content: &ContentRef,
        len: u64,
        visit: &VisitData<'_>,
    ) -> Result<(), SnapshotError> {
        let open = self.content(content)?;
        let failed = |error| io_error("read", self.name_of(content))(error);
        let end = rustix::fs::fstat(&open.file).map(|stat| stat.st_size as u64);
        let fits = end.is_ok_and(|end| {
            if open.is_alone {
                end == len
            } else {
                open.start.checked_add(len).is_some_and(|last| last <= end)
            }
        });
        if fits && id_of_visited(open.slice(), len, visit).map_err(failed)? == content.id {
            Ok(())
        } else {
            Err(SnapshotError::Hash(self.name_of(content)))
        }
    }

    /// Returns the bytes that content takes on the disk, without its holes; `None` if it is in a pack.
    ///
    /// # Errors
    /// If it is missing.
    pub(crate) fn allocated(&self, content: &ContentRef) -> Result<Option<u64>, SnapshotError> {
        let open = self.content(content)?;
        let stat = rustix::fs::fstat(&open.file);
        let stat = stat.map_err(|error| io_error("look at", self.name_of(content))(error.into()))?;
        Ok(open.is_alone.then_some(stat.st_blocks as u64 * 512))
    }

    /// Names an object for messages.
    pub fn name_of(&self, content: &ContentRef) -> String {
        match content.home {
            Home::Own => self.path_of(StoreFolder::Content).join(own_path(&content.id)).display().to_string(),
            Home::Pack { pack, offset } => self.name_of_pack(pack, offset),
        }
    }

    fn name_of_pack(&self, pack: u64, offset: u64) -> String {
        format!("{} at byte {offset}", self.pack_path(pack).display())
    }

    fn pack_path(&self, pack: u64) -> PathBuf {
        self.path_of(StoreFolder::Packs).join(SnapshotId(pack).to_string())
    }

    /// Opens an object at its place, or in the folder of an unsettled publication, under the name that `name_there`
    /// returns. A writer may move it meanwhile, so the first place is tried twice.
    fn at_home_or_new<'n>(
        &self,
        home: StoreFolder,
        path: &str,
        name_there: impl Fn(&str) -> Option<&'n str>,
    ) -> io::Result<OwnedFd> {
        let at_home = || open_file(self.within(home)?, path);
        let first = match at_home() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => error,
            result => return result,
        };
        for publication in names(self.dir(), StoreFolder::New.name()).unwrap_or_default() {
            let Some(name) = name_there(&publication) else { continue };
            let there = self.within(StoreFolder::New);
            if let Ok(file) = there.and_then(|new| open_file(new, &format!("{publication}/{name}"))) {
                return Ok(file);
            }
        }
        at_home().map_err(|_| first)
    }
}
