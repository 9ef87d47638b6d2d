//! Records the files that a run has written, so that the snapshot after it need not read them again.
//!
//! Small contents of new files go straight into the pack of that snapshot. It has no name yet, so nothing is left of it
//! if the run fails or takes no snapshot.

use std::{
    collections::HashMap,
    num::NonZeroU64,
    os::fd::BorrowedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use contract::SnapshotEngine;
use rustix::fs::Stat;

use super::{choose_engine::choose_engine, pack::BegunPack, roots::Engine};
use crate::{
    apply::Destination,
    entry::Time,
    hash::ContentId,
    scan::{EarlierScan, stamp_of_stat},
    stat::modified,
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
    state: Mutex<Remembered>,
}

#[derive(Debug)]
struct Remembered {
    /// Files by their stamps after the write. Any later change of a file changes its stamp.
    files: HashMap<u64, WrittenFile>,
    /// The begun pack; `None` if it could not be created, or a snapshot has taken it.
    pack: Option<BegunPack>,
}

/// A file as the run left it.
#[derive(Debug, Clone, Copy)]
struct WrittenFile {
    id: ContentId,
    len: u64,
    /// The time that the run has set, so any later write changes it, also within a tick of the clock.
    mtime: Time,
    /// The offset of its content in the pack, if it is packed.
    offset: Option<NonZeroU64>,
}

impl WrittenFiles {
    /// Starts to record the files that are written to `destination`. Returns `None` if its snapshot will fail.
    pub fn begin(destination: &Destination, wanted: SnapshotEngine) -> Option<Self> {
        let dir = destination.state().staging();
        let engine = choose_engine(wanted, dir)?;
        let free = rustix::fs::fstatvfs(dir).map_or(0, |at| at.f_bavail.saturating_mul(at.f_frsize));
        let pack = BegunPack::begin(dir, free / SHARE_OF_ROOM).ok();
        let state = Remembered { files: HashMap::new(), pack };
        Some(Self { engine, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the snapshot will take the content of a file of `len` bytes from memory, if it is given to
    /// [`Self::add`].
    pub fn packs(&self, len: u64) -> bool {
        self.engine.packs(len)
    }

    /// Returns whether it helps to know the id of a file of `len` bytes: one that is cloned need not be read then.
    pub fn wants_id(&self, len: u64) -> bool {
        self.engine == Engine::Clone && len > 0 && !self.packs(len)
    }

    /// Remembers a file that was just written and published. `content` goes into the pack if it is small.
    pub fn add(&self, file: BorrowedFd<'_>, id: ContentId, content: Option<&[u8]>) {
        let Ok(stat) = rustix::fs::fstat(file) else { return };
        let Remembered { files, pack } = &mut *self.lock();
        let added = content.zip(pack.as_mut()).map_or(Ok(None), |(bytes, pack)| pack.add(id, bytes));
        let offset = added.unwrap_or_else(|error| {
            tracing::debug!(%error, "the snapshot packs small contents after the run");
            *pack = None;
            None
        });
        let (len, mtime) = (stat.st_size as u64, modified(&stat));
        let offset = offset.and_then(NonZeroU64::new);
        files.insert(stamp_of_stat(&stat, ALL), WrittenFile { id, len, mtime, offset });
    }

    /// Returns the id of an open file's content, if it is as the run left it.
    pub(super) fn id_of(&self, stat: &Stat) -> Option<ContentId> {
        self.find(stamp_of_stat(stat, ALL), stat.st_size as u64, modified(stat)).map(|file| file.id)
    }

    /// Returns the id of a file's content and its offset in the pack, if it is as the run left it.
    pub(super) fn packed(&self, stat: &Stat) -> Option<(ContentId, u64)> {
        self.packed_of(stamp_of_stat(stat, ALL), stat.st_size as u64, modified(stat))
    }

    /// Does the same for a file that a scan found with this stamp, length and modification time.
    pub(super) fn packed_of(&self, stamp: u64, len: u64, mtime: Time) -> Option<(ContentId, u64)> {
        self.find(stamp, len, mtime).and_then(|file| Some((file.id, file.offset?.get())))
    }

    fn find(&self, stamp: u64, len: u64, mtime: Time) -> Option<WrittenFile> {
        self.lock().files.get(&stamp).copied().filter(|file| (file.len, file.mtime) == (len, mtime))
    }

    /// Hands over the pack, once.
    pub(super) fn take_pack(&self) -> Option<BegunPack> {
        self.lock().pack.take()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::fd::AsFd as _};

    use contract::Preserve;
    use rustix::fs::AtFlags;

    use super::*;
    use crate::apply::{Candidate, Settings};

    fn destination(dir: &std::path::Path) -> Destination {
        let settings = Settings::resolve(&Preserve::default()).unwrap();
        Candidate::open(&dir.into()).unwrap().take(settings, None, None).unwrap()
    }

    #[test]
    fn a_file_is_known_until_it_changes_in_any_way() {
        let dir = tempfile::tempdir().unwrap();
        let destination = destination(dir.path());
        let written = WrittenFiles::begin(&destination, SnapshotEngine::Copy).unwrap();
        let stat =
            |name: &str| rustix::fs::statat(destination.root(), name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        let add = |name: &str, content: &str| {
            let path = dir.path().join(name);
            fs::write(&path, content).unwrap();
            let past = rustix::fs::Timespec { tv_sec: 1_000_000, tv_nsec: 0 };
            let times = rustix::fs::Timestamps { last_access: past, last_modification: past };
            let file = fs::File::open(&path).unwrap();
            rustix::fs::futimens(&file, &times).unwrap();
            let id = ContentId::of(content.as_bytes());
            written.add(file.as_fd(), id, Some(content.as_bytes()));
            id
        };
        let id = add("one", "same");
        add("other", "same");
        assert_eq!(written.packed(&stat("one")), Some((id, 8)));
        assert_eq!(written.packed(&stat("other")), Some((id, 8)), "equal contents are packed once");
        add("third", "different");
        assert_eq!(written.packed(&stat("third")).map(|(_, offset)| offset), Some(12));
        fs::write(dir.path().join("one"), "SAME").unwrap();
        assert_eq!(written.id_of(&stat("one")), None);
        assert!(written.packs(64 << 10) && !written.packs((64 << 10) + 1) && !written.packs(0));
        assert!(!written.wants_id(1 << 20), "what is copied is read anyway");
        assert!(written.take_pack().is_some() && written.take_pack().is_none());
    }
}
