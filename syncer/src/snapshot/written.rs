//! Records the files that a run has written, so that the snapshot after it need not read them again.
//!
//! Small contents of new files go straight into the pack of that snapshot. It has no name yet, so nothing is left of it
//! if the run fails or takes no snapshot.

use std::{
    collections::HashMap,
    os::fd::BorrowedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use contract::SnapshotEngine;
use rustix::{fs::Stat, io::Errno};

use super::{choose_engine::choose_engine, pack::BegunPack, roots::Engine};
use crate::{
    apply::Destination,
    entry::Time,
    hash::ContentId,
    path::RelPath,
    scan::{EarlierScan, WrittenEntries, WrittenEntry, stamp_of_stat},
    stat::{changed, meta_of, modified},
};

/// The fraction (1/n) of the free space that a pack begun by a run may take: the run needs the rest.
const SHARE_OF_ROOM: u64 = 8;

/// Knowledge of a run about its destination, which the snapshot after it need not gather again.
#[derive(Debug, Clone, Copy, Default)]
pub struct KnownFromRun<'a> {
    /// The run's scan, and what may have changed since.
    pub scan: Option<EarlierScan<'a>>,
    /// The files that the run has written.
    pub written: Option<&'a WrittenFiles>,
}

/// Later than any time of a file: all get a stamp.
const ALL: Time = Time { seconds: i64::MAX, nanos: 0 };

/// The files that a run has written.
#[derive(Debug)]
pub struct WrittenFiles {
    engine: Engine,
    /// `None` if it could not be created or written to, or a snapshot has taken it.
    pack: Mutex<Option<BegunPack>>,
    files: Mutex<Remembered>,
}

#[derive(Debug, Default)]
struct Remembered {
    /// New files whose content is packed, by directory and name.
    packed: HashMap<RelPath, HashMap<Box<[u8]>, PackedFile>>,
    /// Other files by their stamps after the write. Any later change of a file changes its stamp.
    unpacked: HashMap<u64, UnpackedFile>,
}

/// A new file as the run left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PackedFile {
    /// Its entry in a listing.
    pub entry: WrittenEntry,
    /// Its content.
    pub id: ContentId,
    /// The offset of its content in the pack.
    pub offset: u64,
}

/// A file whose content is in no pack, as the run left it.
#[derive(Debug, Clone, Copy)]
struct UnpackedFile {
    id: ContentId,
    len: u64,
    /// The time that the run has set, so any later write changes it, also within a tick of the clock.
    mtime: Time,
}

impl WrittenFiles {
    /// Starts to record the files that are written to `destination`. Returns `None` if its snapshot will fail.
    pub fn begin(destination: &Destination, wanted: SnapshotEngine) -> Option<Self> {
        let dir = destination.state().staging();
        let engine = choose_engine(wanted, dir)?;
        let free = rustix::fs::fstatvfs(dir).map_or(0, |at| at.f_bavail.saturating_mul(at.f_frsize));
        let pack = BegunPack::begin(dir, free / SHARE_OF_ROOM).ok();
        Some(Self { engine, pack: Mutex::new(pack), files: Mutex::default() })
    }

    /// Returns whether the snapshot will take the content of a new file of `len` bytes from memory, if it is given to
    /// [`Self::add_new`].
    pub fn packs(&self, len: u64) -> bool {
        self.engine.packs(len)
    }

    /// Returns whether it helps to know the id of a file of `len` bytes: one that is cloned need not be read then.
    pub fn wants_id(&self, len: u64) -> bool {
        self.engine == Engine::Clone && len > 0 && !self.packs(len)
    }

    /// Packs the content of a new file that was just written and published, so that the snapshot neither looks at the
    /// file nor reads it. Leaves out files with attributes or several names, which the snapshot has to look at.
    pub fn add_new(&self, (dir, name): (&RelPath, &[u8]), file: BorrowedFd<'_>, content: &[u8]) {
        let Some(entry) = entry_of(file).filter(|entry| entry.size == content.len() as u64) else { return };
        let id = ContentId::of(content);
        let Some(offset) = self.pack(id, content) else { return };
        let packed = &mut lock(&self.files).packed;
        let file = PackedFile { entry, id, offset };
        match packed.get_mut(dir) {
            Some(files) => drop(files.insert(name.into(), file)),
            None => drop(packed.insert(dir.clone(), [(name.into(), file)].into())),
        }
    }

    /// Appends content to the pack, and returns its offset. Drops the pack if it cannot be written to: the snapshot
    /// packs all contents then.
    fn pack(&self, id: ContentId, content: &[u8]) -> Option<u64> {
        let mut pack = lock(&self.pack);
        let added = pack.as_mut().map_or(Ok(None), |pack| pack.add(id, content));
        added.unwrap_or_else(|error| {
            tracing::debug!(%error, "the snapshot packs small contents after the run");
            *pack = None;
            None
        })
    }

    /// Remembers the id of a file that was just written and published, and is not packed.
    pub fn add(&self, file: BorrowedFd<'_>, id: ContentId) {
        let Ok(stat) = rustix::fs::fstat(file) else { return };
        let unpacked = UnpackedFile { id, len: stat.st_size as u64, mtime: modified(&stat) };
        lock(&self.files).unpacked.insert(stamp_of_stat(&stat, ALL), unpacked);
    }

    /// Forgets a new file that gets another name.
    pub fn forget(&self, path: &RelPath) {
        let Some((dir, name)) = path.split_last() else { return };
        lock(&self.files).packed.get_mut(&dir).map(|files| files.remove(name));
    }

    /// Returns the id of an open file's content, if it is as the run left it.
    pub(super) fn id_of(&self, stat: &Stat) -> Option<ContentId> {
        let file = lock(&self.files).unpacked.get(&stamp_of_stat(stat, ALL)).copied()?;
        ((file.len, file.mtime) == (stat.st_size as u64, modified(stat))).then_some(file.id)
    }

    /// Returns a new file of which the pack has the content.
    pub(super) fn packed(&self, dir: &RelPath, name: &[u8]) -> Option<PackedFile> {
        lock(&self.files).packed.get(dir)?.get(name).copied()
    }

    /// Hands over the pack, once. Without a pack, its files are forgotten.
    pub(super) fn take_pack(&self) -> Option<BegunPack> {
        let pack = lock(&self.pack).take();
        if pack.is_none() {
            lock(&self.files).packed.clear();
        }
        pack
    }
}

impl WrittenEntries for WrittenFiles {
    fn file(&self, dir: &RelPath, name: &[u8]) -> Option<WrittenEntry> {
        self.packed(dir, name).map(|file| file.entry)
    }
}

/// Returns the entry of an open file, if it has one name and no attributes.
fn entry_of(file: BorrowedFd<'_>) -> Option<WrittenEntry> {
    let stat = rustix::fs::fstat(file).ok().filter(|stat| stat.st_nlink == 1)?;
    let is_bare = matches!(rustix::fs::flistxattr_query(file), Ok(0) | Err(Errno::OPNOTSUPP));
    is_bare.then(|| WrittenEntry {
        size: stat.st_size as u64,
        meta: meta_of(&stat),
        changed: changed(&stat),
        stamp: stamp_of_stat(&stat, ALL),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::fd::AsFd as _, path::Path};

    use contract::Preserve;
    use rustix::fs::XattrFlags;

    use super::*;
    use crate::apply::{Candidate, Settings};

    fn written(dir: &Path, engine: SnapshotEngine) -> WrittenFiles {
        let settings = Settings::resolve(&Preserve::default()).unwrap();
        let destination = Candidate::open(&dir.into()).unwrap().take(settings, None, None).unwrap();
        WrittenFiles::begin(&destination, engine).unwrap()
    }

    fn create(path: &Path, content: &str) -> fs::File {
        fs::write(path, content).unwrap();
        fs::File::open(path).unwrap()
    }

    #[test]
    fn new_files_are_packed_unless_the_snapshot_has_to_look_at_them() {
        let dir = tempfile::tempdir().unwrap();
        let written = written(dir.path(), SnapshotEngine::Copy);
        let folder = RelPath::parse(b"folder").unwrap();
        let add = |name: &str, content: &str, prepare: &dyn Fn(&Path)| {
            let path = dir.path().join(name);
            let file = create(&path, content);
            prepare(&path);
            written.add_new((&folder, name.as_bytes()), file.as_fd(), content.as_bytes());
        };
        let offset = |name: &str| written.packed(&folder, name.as_bytes()).map(|file| file.offset);
        add("one", "same", &|_| {});
        add("other", "same", &|_| {});
        add("third", "different", &|_| {});
        assert_eq!((offset("one"), offset("other")), (Some(8), Some(8)), "equal contents are packed once");
        assert_eq!(offset("third"), Some(12));
        let packed = written.packed(&folder, b"third").unwrap();
        assert_eq!((packed.id, packed.entry.size), (ContentId::of(b"different"), 9));
        assert_eq!(written.packed(&RelPath::root(), b"third"), None);
        add("with attributes", "a", &|path| {
            rustix::fs::setxattr(path, "user.a", b"b", XattrFlags::empty()).unwrap();
        });
        add("with two names", "a", &|path| fs::hard_link(path, path.with_extension("2")).unwrap());
        add("longer", "a", &|path| fs::write(path, "ab").unwrap());
        written.forget(&folder.join(b"one").unwrap());
        for name in ["with attributes", "with two names", "longer", "one"] {
            assert_eq!(offset(name), None, "{name}");
        }
        assert!(written.packs(64 << 10) && !written.packs((64 << 10) + 1) && !written.packs(0));
        assert!(!written.wants_id(1 << 20), "what is copied is read anyway");
        assert!(written.take_pack().is_some() && written.take_pack().is_none());
        assert_eq!(offset("third"), None, "its content is in no pack");
    }

    #[test]
    fn the_id_of_a_file_is_known_until_the_file_changes() {
        let dir = tempfile::tempdir().unwrap();
        let (written, path) = (written(dir.path(), SnapshotEngine::Copy), dir.path().join("one"));
        let file = create(&path, "same");
        let past = rustix::fs::Timespec { tv_sec: 1_000_000, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: past, last_modification: past };
        rustix::fs::futimens(&file, &times).unwrap();
        written.add(file.as_fd(), ContentId::of(b"same"));
        let id = || written.id_of(&rustix::fs::fstat(&file).unwrap());
        assert_eq!(id(), Some(ContentId::of(b"same")));
        fs::write(path, "SAME").unwrap();
        assert_eq!(id(), None);
    }
}
