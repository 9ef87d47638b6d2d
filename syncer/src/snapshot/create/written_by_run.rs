//! Records the files that a run has written, so that the snapshot after it need not read them again.
//!
//! Small contents of new files go straight into the pack of that snapshot. It has no name yet, so nothing is left of it
//! if the run fails or takes no snapshot.

use std::{collections::HashMap, ops::Range, os::fd::BorrowedFd, sync::OnceLock};

use contract::SnapshotEngine;
use parking_lot::Mutex;
use rustix::{fs::Stat, io::Errno};

use crate::{
    destination::Destination,
    entry::Time,
    hash::ContentId,
    path::RelPath,
    scan::{EarlierScan, WrittenEntries, WrittenEntry, WrittenNames, stamp_of_stat},
    snapshot::store::{BegunPack, Engine, choose_engine},
    sys::stat::{changed, meta_of, modified},
};

/// The fraction (1/n) of the free space that a pack begun by a run may take: the run needs the rest.
const SHARE_OF_ROOM: u64 = 8;

/// Knowledge of a run about its destination, which the snapshot after it need not gather again.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KnownFromRun<'a> {
    /// The run's scan, and what may have changed since.
    pub scan: Option<EarlierScan<'a>>,
    /// The files that the run has written.
    pub written: Option<&'a WrittenFiles>,
}

/// Later than any time of a file: all get a stamp.
const ALL: Time = Time { seconds: i64::MAX, nanos: 0 };

/// The files that a run has written.
#[derive(Debug)]
pub(crate) struct WrittenFiles {
    engine: Engine,
    /// The file system of the destination's root.
    device: u64,
    packed: Mutex<PackedFiles>,
    /// Other files by their stamps after the write. Any later change of a file changes its stamp.
    unpacked: Mutex<HashMap<u64, UnpackedFile>>,
    /// The files of `packed` once the run is over.
    sorted: OnceLock<HashMap<RelPath, PackedDir>>,
}

/// New files whose content is packed.
#[derive(Debug)]
struct PackedFiles {
    /// `None` if it could not be created or written to, or a snapshot has taken it.
    pack: Option<BegunPack>,
    dirs: HashMap<RelPath, PackedDir>,
}

/// The packed files of one directory.
#[derive(Debug, Default)]
struct PackedDir {
    /// All names, one after the other.
    names: Vec<u8>,
    /// The files by the places of their names in `names`; `None` for a file that was forgotten.
    files: Vec<(Range<usize>, Option<PackedFile>)>,
    /// Whether new files in it were seen to inherit no attributes.
    is_bare: bool,
}

/// A new file as the run left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackedFile {
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
    /// Starts to record the files that are written to `destination`. Returns `None` if its snapshot will fail, or the
    /// run sets no times, by which a later write by another program is noticed.
    pub(crate) fn begin(destination: &Destination, wanted: SnapshotEngine) -> Option<Self> {
        if !destination.settings().times {
            return None;
        }
        let dir = destination.state().staging();
        let device = destination.root().device().ok()?;
        let engine = choose_engine(wanted, dir)?;
        let free = rustix::fs::fstatvfs(dir).map_or(0, |at| at.f_bavail.saturating_mul(at.f_frsize));
        let pack = BegunPack::begin(dir, free / SHARE_OF_ROOM).ok();
        let packed = Mutex::new(PackedFiles { pack, dirs: HashMap::new() });
        Some(Self { engine, device, packed, unpacked: Mutex::default(), sorted: OnceLock::new() })
    }

    /// Returns whether the snapshot will take the content of a new file of `len` bytes from memory, if it is given to
    /// [`Self::add_new`].
    pub(crate) fn packs(&self, len: u64) -> bool {
        self.engine.packs(len)
    }

    /// Returns whether it helps to know the id of a file of `len` bytes: one that is cloned need not be read then.
    pub(crate) fn wants_id(&self, len: u64) -> bool {
        self.engine == Engine::Clone && len > 0 && !self.packs(len)
    }

    /// Packs the content of a new file that was just written and published with the time `mtime` and without
    /// attributes, so that the snapshot neither looks at the file nor reads it. Leaves out files that have inherited
    /// attributes, have several names, or were written to since: the snapshot has to look at them.
    pub(crate) fn add_new(
        &self,
        dir: &RelPath,
        name: &[u8],
        file: BorrowedFd<'_>,
        mtime: Time,
        content: &[u8],
    ) {
        let is_own = |entry: &WrittenEntry| (entry.size, entry.meta.mtime) == (content.len() as u64, mtime);
        let Some(entry) = entry_of(file, self.device).filter(is_own) else { return };
        let id = ContentId::of(content);
        let mut packed = self.packed.lock();
        let PackedFiles { pack, dirs } = &mut *packed;
        let Some(files) = bare_dir(dirs, dir, file) else { return };
        if let Some(offset) = append(pack, id, content) {
            files.push(name, Some(PackedFile { entry, id, offset }));
        }
    }

    /// Remembers the id of a file of `len` bytes that was just written and published with the time `mtime`, and is not
    /// packed. Leaves out files that were written to since.
    pub(crate) fn add(&self, file: BorrowedFd<'_>, len: u64, mtime: Time, id: ContentId) {
        let is_own = |stat: &Stat| (stat.st_size as u64, modified(stat)) == (len, mtime);
        let Some(stat) = rustix::fs::fstat(file).ok().filter(is_own) else { return };
        let unpacked = UnpackedFile { id, len, mtime };
        self.unpacked.lock().insert(stamp_of_stat(&stat, ALL, self.device), unpacked);
    }

    /// Forgets a new file that gets another name.
    pub(crate) fn forget(&self, path: &RelPath) {
        let Some((dir, name)) = path.split_last() else { return };
        if let Some(files) = self.packed.lock().dirs.get_mut(&dir) {
            files.push(name, None);
        }
    }

    /// Returns the id of an open file's content, if it is as the run left it.
    pub(crate) fn id_of(&self, stat: &Stat) -> Option<ContentId> {
        let file = self.unpacked.lock().get(&stamp_of_stat(stat, ALL, self.device)).copied()?;
        ((file.len, file.mtime) == (stat.st_size as u64, modified(stat))).then_some(file.id)
    }

    /// Returns the new files of a directory of which the pack has the content, from the first of these names on, by
    /// ascending names. The run must be over: files that are added later are not among them.
    pub(crate) fn packed<'a>(
        &'a self,
        dir: &RelPath,
        first: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], PackedFile)> + use<'a> {
        let sorted = self.sorted.get_or_init(|| {
            let dirs = std::mem::take(&mut self.packed.lock().dirs);
            dirs.into_iter().map(|(path, files)| (path, files.sorted())).collect()
        });
        sorted.get(dir).map(|files| files.from(first)).into_iter().flatten()
    }

    /// Hands over the pack, once.
    pub(crate) fn take_pack(&self) -> Option<BegunPack> {
        self.packed.lock().pack.take()
    }
}

impl WrittenEntries for WrittenFiles {
    fn files(&self, dir: &RelPath) -> WrittenNames<'_> {
        Box::new(self.packed(dir, b"").map(|(name, file)| (name, file.entry)))
    }
}

impl PackedDir {
    fn push(&mut self, name: &[u8], file: Option<PackedFile>) {
        let start = self.names.len();
        self.names.extend_from_slice(name);
        self.files.push((start..self.names.len(), file));
    }

    /// Sorts the files by name. Of one name, the last record counts.
    fn sorted(mut self) -> Self {
        let name = |at: &Range<usize>| &self.names[at.clone()];
        self.files.sort_by(|(one, _), (other, _)| name(one).cmp(name(other)));
        self.files.dedup_by(|later, earlier| {
            let is_same = name(&later.0) == name(&earlier.0);
            if is_same {
                earlier.1 = later.1;
            }
            is_same
        });
        self
    }

    /// Yields the sorted files from the first of this name on.
    fn from<'a>(&'a self, first: &[u8]) -> impl Iterator<Item = (&'a [u8], PackedFile)> + use<'a> {
        let start = self.files.partition_point(|(at, _)| &self.names[at.clone()] < first);
        self.files[start..].iter().filter_map(|(at, file)| Some((&self.names[at.clone()], (*file)?)))
    }
}

/// Returns the record of a directory if new files in it inherit no attributes. Looks at the first of its files: all
/// inherit the same.
fn bare_dir<'d>(
    dirs: &'d mut HashMap<RelPath, PackedDir>,
    dir: &RelPath,
    file: BorrowedFd<'_>,
) -> Option<&'d mut PackedDir> {
    if !dirs.contains_key(dir) {
        dirs.insert(dir.clone(), PackedDir::default());
    }
    let files = dirs.get_mut(dir)?;
    if !files.is_bare {
        files.is_bare = matches!(rustix::fs::flistxattr_query(file), Ok(0) | Err(Errno::OPNOTSUPP));
    }
    files.is_bare.then_some(files)
}

/// Appends content to the pack, and returns its offset. Drops the pack if it cannot be written to: the snapshot packs
/// all contents then.
fn append(pack: &mut Option<BegunPack>, id: ContentId, content: &[u8]) -> Option<u64> {
    let added = pack.as_mut().map_or(Ok(None), |pack| pack.add(id, content));
    added.unwrap_or_else(|error| {
        tracing::debug!(%error, "the snapshot packs small contents after the run");
        *pack = None;
        None
    })
}

/// Returns the entry of an open file without attributes, if it has one name.
fn entry_of(file: BorrowedFd<'_>, device: u64) -> Option<WrittenEntry> {
    let stat = rustix::fs::fstat(file).ok().filter(|stat| stat.st_nlink == 1)?;
    Some(WrittenEntry {
        size: stat.st_size as u64,
        meta: meta_of(&stat),
        changed: changed(&stat),
        stamp: stamp_of_stat(&stat, ALL, device),
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::fd::AsFd as _, path::Path};

    use rustix::fs::XattrFlags;

    use super::*;

    fn written(dir: &Path, engine: SnapshotEngine) -> WrittenFiles {
        WrittenFiles::begin(&Destination::of_test(dir), engine).unwrap()
    }

    fn create(path: &Path, content: &str) -> fs::File {
        fs::write(path, content).unwrap();
        fs::File::open(path).unwrap()
    }

    fn set_mtime(path: &Path) {
        let past = rustix::fs::Timespec { tv_sec: 1_000_000, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: past, last_modification: past };
        rustix::fs::futimens(fs::File::open(path).unwrap(), &times).unwrap();
    }

    #[test]
    fn new_files_are_packed_unless_the_snapshot_has_to_look_at_them() {
        let dir = tempfile::tempdir().unwrap();
        let written = written(dir.path(), SnapshotEngine::Copy);
        let folder = RelPath::parse(b"folder").unwrap();
        let add = |name: &str, content: &str, prepare: &dyn Fn(&Path)| {
            let path = dir.path().join(name);
            let file = create(&path, content);
            let mtime = modified(&rustix::fs::fstat(&file).unwrap());
            prepare(&path);
            written.add_new(&folder, name.as_bytes(), file.as_fd(), mtime, content.as_bytes());
        };
        add("with attributes", "a", &|path| {
            rustix::fs::setxattr(path, "user.a", b"b", XattrFlags::empty()).unwrap();
        });
        add("third", "same", &|_| {});
        add("second", "different", &|_| {});
        add("one", "same", &|_| {});
        add("first", "gone", &|_| {});
        add("second", "again", &|_| {});
        add("with two names", "a", &|path| fs::hard_link(path, path.with_extension("2")).unwrap());
        add("longer", "a", &|path| fs::write(path, "ab").unwrap());
        add("written to", "a", &|path| set_mtime(path));
        written.forget(&folder.join(b"first").unwrap());
        let packed = |first: &str| -> Vec<_> {
            let files = written.packed(&folder, first.as_bytes());
            files
                .map(|(name, file)| (String::from_utf8_lossy(name).into_owned(), file.id, file.offset))
                .collect()
        };
        let file =
            |name: &str, content: &str, offset| (name.to_string(), ContentId::of(content.as_bytes()), offset);
        let all = [file("one", "same", 8), file("second", "again", 25), file("third", "same", 8)];
        assert_eq!(
            packed(""),
            all,
            "equal contents are packed once, and of one name the last content counts"
        );
        assert_eq!(packed("p"), all[1..]);
        assert_eq!(written.packed(&RelPath::root(), b"").count(), 0);
        assert!(written.packs(64 << 10) && !written.packs((64 << 10) + 1) && !written.packs(0));
        assert!(!written.wants_id(1 << 20), "what is copied is read anyway");
        assert!(written.take_pack().is_some() && written.take_pack().is_none());
    }

    #[test]
    fn the_id_of_a_file_is_known_until_the_file_changes() {
        let dir = tempfile::tempdir().unwrap();
        let (written, path) = (written(dir.path(), SnapshotEngine::Copy), dir.path().join("one"));
        let file = create(&path, "same");
        set_mtime(&path);
        let set = |seconds| Time { seconds, nanos: 0 };
        written.add(file.as_fd(), 4, set(1_000_001), ContentId::of(b"other"));
        written.add(file.as_fd(), 5, set(1_000_000), ContentId::of(b"other"));
        let id = || written.id_of(&rustix::fs::fstat(&file).unwrap());
        assert_eq!(id(), None, "it was written to since");
        written.add(file.as_fd(), 4, set(1_000_000), ContentId::of(b"same"));
        assert_eq!(id(), Some(ContentId::of(b"same")));
        fs::write(path, "SAME").unwrap();
        assert_eq!(id(), None);
    }
}
