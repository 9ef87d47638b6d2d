//! `.volferry/` on the destination: the lock, the id, the epoch and the staging folder. `syncer/doc/format.md`
//! describes it.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use contract::{Shard, VolumeId};
use parking_lot::{Mutex, MutexGuard};
use rustix::{
    fs::{AtFlags, FlockOperation, OFlags, Stat},
    io::Errno,
};

use crate::{
    destination::{
        destination_error::ApplyError,
        metadata::set_xattrs,
        state::{
            dirty_mark::DirtyMark,
            leftovers::{Leftover, blocks, drop_file, parts_before, sweep, unlink},
            lock_still_held::{EPOCH, Epoch, Stamp},
            made_beside::beside,
            made_mark,
            motion_notes::MotionNotes,
            own_file::open_own,
            private_dir::{OpenedOwn, Private, Replaced},
            shard_board::{BoardDir, ShardBoard},
            staging_names::{blocks_name, is_tried, key_of, part_key, part_of_blocks, tried_name},
            state_names::{JOURNAL, LOCK, SHARDS, STAGING, empty, is_one_mount, remove_dir},
            volume_id::{self, OwnVolume},
        },
    },
    entry::Time,
    path::{OWN_DIR, RelPath},
    sys::{
        root::{Root, open_child},
        stat::changed,
    },
};

/// A shard of the run of this name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunShard<'a> {
    pub run: &'a str,
    pub shard: Shard,
}

/// The open `.volferry/` of a destination, locked for this run.
#[derive(Debug)]
pub struct StateDir {
    /// The path of the destination, for messages.
    path: PathBuf,
    root: OwnedFd,
    dir: Private,
    staging: Private,
    journal: Private,
    volume: VolumeId,
    /// Whether a run has begun to write to the destination before.
    is_adopted: bool,
    epoch: Epoch,
    /// When the epoch was written.
    opened: Time,
    dirty: DirtyMark,
    motion: MotionNotes,
    is_first: bool,
    /// The board, if several processes share the run.
    team: Option<ShardBoard>,
    /// The names of the partial files that earlier runs left, by their keys.
    leftovers: Mutex<HashMap<String, String>>,
    /// Whether the run was completed, so that nothing is left to continue with.
    is_over: AtomicBool,
    /// Notes for the report about the state in which the folder was found.
    notes: Vec<String>,
    /// Held for its lock, which the kernel releases when the process ends in any way.
    lock: Arc<OwnedFd>,
    next: AtomicU64,
}

impl StateDir {
    /// Creates missing parts, takes the lock, and removes the remains of an interrupted run from staging, except for
    /// partial files. Processes that each have a `shard` of one run share the lock; the first of them does the rest for
    /// all. A lock that was `held` is used if it is this folder's.
    ///
    /// # Errors
    /// [`ApplyError::Busy`] when another run holds the lock; [`ApplyError::Own`].
    pub(crate) fn open(
        root: &Root,
        path: &Path,
        shard: Option<RunShard<'_>>,
        held: Option<VolumeLock>,
    ) -> Result<Self, ApplyError> {
        let failed = |source: io::Error| match Errno::from_io_error(&source) {
            Some(Errno::WOULDBLOCK) => ApplyError::Busy { path: path.into() },
            _ => ApplyError::Own { path: path.into(), source },
        };
        Self::prepare(root, path, shard, held).map_err(failed)
    }

    fn prepare(
        root: &Root,
        path: &Path,
        shard: Option<RunShard<'_>>,
        held: Option<VolumeLock>,
    ) -> io::Result<Self> {
        let OpenedOwn { dir, is_marked, replaced } = Private::open(root.as_fd(), path)?;
        let lock = open_own(dir.as_fd(), LOCK, OFlags::RDWR | OFlags::CREATE)?;
        let held = held.filter(|held| shard.is_none() && held.is_of(&lock));
        let lock = held.map_or_else(|| Arc::new(lock), |VolumeLock(held)| held);
        let root = root.as_fd().try_clone_to_owned()?;
        let entering = Entering { root, path, dir, is_marked, replaced, lock };
        let Some(RunShard { run, shard }) = shard else {
            rustix::fs::flock(&entering.lock, FlockOperation::NonBlockingLockExclusive)?;
            let epoch = Epoch::raise(entering.dir.as_fd())?;
            return entering.enter(epoch, 0, true);
        };
        let table = BoardDir::open(entering.dir.folder(SHARDS)?)?;
        let meeting = table.meet()?;
        let is_first = rustix::fs::flock(&entering.lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        let epoch =
            if is_first { Epoch::raise(entering.dir.as_fd())? } else { Epoch::join(entering.dir.as_fd())? };
        if is_first {
            meeting.begin(epoch.stamp(), run, shard.count)?;
        }
        rustix::fs::flock(&entering.lock, FlockOperation::NonBlockingLockShared)?;
        let alive = meeting.join(epoch.stamp(), run, shard)?;
        let mut state = entering.enter(epoch, shard.index, is_first)?;
        drop(meeting);
        state.team = Some(ShardBoard::new(table, state.epoch.stamp(), shard, alive));
        Ok(state)
    }

    /// Returns the lock, for the next run of the same session; `None` where several processes share it.
    pub fn lock(&self) -> Option<VolumeLock> {
        self.team.is_none().then(|| VolumeLock(Arc::clone(&self.lock)))
    }

    /// Returns the folder itself, to open and rename files in.
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Returns the path of the destination.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder of committed updates in place.
    pub(crate) fn journal(&self) -> &Private {
        &self.journal
    }

    /// Removes all rights of other users to an open `folder` below this one.
    ///
    /// # Errors
    /// If it belongs to another user.
    pub(crate) fn close_inner(&self, folder: BorrowedFd<'_>) -> io::Result<()> {
        self.dir.close_inner(folder)
    }

    /// Returns notes for the report about the state in which the folder was found.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Adds a note to the report.
    pub(crate) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Returns whether the file system keeps no permissions, so that every user of the volume can write to the folder.
    pub fn has_no_modes(&self) -> bool {
        self.dir.has_no_modes()
    }

    /// Returns the user that files made on this volume belong to.
    pub fn user(&self) -> u32 {
        self.dir.user()
    }

    /// Returns whether an entry of this name in the root would be the folder itself, which happens where the file
    /// system folds case. Also compares the stamp, because some file systems give a folder another number for each
    /// name.
    pub(crate) fn is_named(&self, name: &[u8]) -> bool {
        let is_stamped =
            || open_child(&self.root, name, OFlags::PATH).is_ok_and(|dir| self.epoch.is_in(dir.as_fd()));
        self.dir.is_still(self.root.as_fd(), name) || is_stamped()
    }

    /// Returns the id by which the destination is known from run to run.
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// Records that a run begins to write to the destination.
    pub(crate) fn adopt(&self) -> io::Result<()> {
        if self.is_adopted { Ok(()) } else { volume_id::adopt(self.dir()) }
    }

    /// Returns whether this is the first process of its run.
    pub(crate) fn is_first(&self) -> bool {
        self.is_first
    }

    /// Returns the board, if several processes share the run.
    pub fn shard_board(&self) -> Option<&ShardBoard> {
        self.team.as_ref()
    }

    /// Returns whether this process does the work that is done once in a run of several processes.
    pub fn leads(&self) -> bool {
        self.team.as_ref().is_none_or(|team| team.shard().index == 0)
    }

    /// Checks, at intervals, that the destination is still this run's. Callers do this before they change anything on
    /// it.
    ///
    /// # Errors
    /// When another run has taken it over, or the stamp cannot be read.
    pub fn check(&self) -> io::Result<()> {
        self.epoch.check(self.dir(), || self.stay_private())
    }

    /// Checks that the folder is still in its place, and removes rights that others got to it meanwhile.
    fn stay_private(&self) -> io::Result<()> {
        if !self.dir.is_still(self.root.as_fd(), OWN_DIR) {
            let folder = self.path.join(".volferry");
            return Err(io::Error::other(format!(
                "another process moved or replaced {} during the run",
                folder.display()
            )));
        }
        [&self.dir, &self.staging, &self.journal].into_iter().try_for_each(Private::stay_private)
    }

    /// Returns whether another run was seen to have taken the destination over.
    pub fn is_lost(&self) -> bool {
        self.epoch.is_lost()
    }

    /// Returns the mark for changes that may not be on the disk.
    pub(crate) fn dirty(&self) -> &DirtyMark {
        &self.dirty
    }

    /// Returns the notes of the files that were in motion when they were read.
    pub(crate) fn motion(&self) -> &MotionNotes {
        &self.motion
    }

    /// Returns the folder for files that are not visible yet.
    pub fn staging(&self) -> BorrowedFd<'_> {
        self.staging.as_fd()
    }

    /// Returns whether only this process's user can have written a file in staging.
    pub(crate) fn trusts_staged(&self, file: &Stat) -> bool {
        self.staging.trusts(file)
    }

    /// Returns a name for an entry that is made beside its place, on a file system that is mounted inside the
    /// destination.
    pub fn name_beside(&self) -> String {
        beside(&self.fresh_name())
    }

    /// Returns whether a directory is on another mount than staging, so that nothing can be renamed from one to the
    /// other.
    pub fn is_beyond(&self, dir: BorrowedFd<'_>) -> bool {
        is_one_mount(dir, self.staging()).is_ok_and(|is_one| !is_one)
    }

    /// Calls `make` to make an entry under a name in staging and rename it into `dir`. If `dir` is on another file
    /// system, calls it again for a name beside the entry's place.
    pub(crate) fn beside_or_in_staging(
        &self,
        dir: BorrowedFd<'_>,
        make: impl Fn(BorrowedFd<'_>, &str) -> io::Result<()>,
    ) -> io::Result<()> {
        match make(self.staging(), &self.fresh_name()) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => make(dir, &self.name_beside()),
            result => result,
        }
    }

    /// Returns a name in staging that is unique among all runs: a run that was taken over must not find its names given
    /// to other files.
    pub fn fresh_name(&self) -> String {
        format!("{}{}", self.mark(), self.next.fetch_add(1, Relaxed))
    }

    /// Returns the volume's own time when this run opened it.
    pub(crate) fn opened(&self) -> Time {
        self.opened
    }

    /// Names the folder in staging that is filled for `path`: the same in all processes that share a run, of which the
    /// first makes it.
    pub(crate) fn folder_name(&self, path: &RelPath) -> String {
        format!("{}{}", self.mark_of(0), part_key(path))
    }

    /// Removes a folder of staging, and returns the number of entries that it had.
    pub(crate) fn remove_folder(&self, name: &str) -> io::Result<u64> {
        remove_dir(self.staging(), name.as_bytes())
    }

    /// Removes a file of this name from staging, if it exists.
    pub(crate) fn drop_staged(&self, name: &str) -> io::Result<()> {
        drop_file(&self.staging, name)
    }

    /// Removes the record of the arrived blocks of a partial file, if there is one.
    pub(crate) fn drop_blocks(&self, part: &str) -> io::Result<()> {
        unlink(&self.staging, &blocks_name(part))
    }

    /// Returns a name for a partial file, which a later run finds by its key.
    pub(crate) fn part_name(&self, key: &str) -> String {
        format!("{key}.{}", self.fresh_name())
    }

    /// Returns whether an earlier run left a partial file with this key.
    pub(crate) fn has_leftover(&self, key: &str) -> bool {
        self.leftovers().contains_key(key)
    }

    /// Makes a leftover this run's by renaming it, and returns its new name.
    pub(crate) fn take_leftover(&self, key: &str) -> Option<Leftover<String>> {
        let old = self.leftovers().remove(key)?;
        let name = tried_name(key, &self.fresh_name());
        // The record of its blocks first: without the partial file it is ignored.
        let (noted, new) = (blocks_name(&old), blocks_name(&name));
        let _ = rustix::fs::renameat(&self.staging, noted, &self.staging, new);
        let was_tried = is_tried(&old);
        rustix::fs::renameat(&self.staging, old, &self.staging, &name).ok()?;
        Some(Leftover { part: name, was_tried })
    }

    /// Removes the leftovers of files that this run does not need, so that they do not take up room until a run is
    /// completed.
    pub(crate) fn drop_leftovers(&self, is_needed: impl Fn(&str) -> bool) {
        let mut leftovers = self.leftovers();
        leftovers.retain(|key, name| is_needed(key) || drop_file(&self.staging, name).is_err());
    }

    /// Returns whether earlier runs left partial files.
    pub(crate) fn has_leftovers(&self) -> bool {
        !self.leftovers().is_empty()
    }

    /// Marks the run as completed: nothing stays in staging. After any other run, partial files stay.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    fn leftovers(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.leftovers.lock()
    }

    /// Removes the files that this run staged. If it was not completed, partial files that have content stay.
    fn clear(&self) -> io::Result<()> {
        let (mark, is_over) = (self.mark(), self.is_over.load(Relaxed));
        let stays = |name: &str| !is_over && !self.is_lost() && self.is_of_use(name);
        empty(&self.staging, |name| name.contains(&mark) && !stays(name))?;
        if is_over && self.leads() {
            self.leftovers().drain().try_for_each(|(_, name)| drop_file(&self.staging, &name))
        } else {
            Ok(())
        }
    }

    /// Returns whether the next run can continue with a staged file.
    fn is_of_use(&self, name: &str) -> bool {
        let part = part_of_blocks(name).unwrap_or(name);
        key_of(part).is_some() && blocks(&self.staging, part) > 0
    }

    /// Returns this run's stamp, by which its destination is recognised.
    pub(crate) fn stamp(&self) -> Stamp {
        self.epoch.stamp()
    }

    /// Returns the text that is in the names of all files that this process stages.
    fn mark(&self) -> String {
        self.mark_of(self.team.as_ref().map_or(0, |team| team.shard().index))
    }

    fn mark_of(&self, shard: u32) -> String {
        let word = word_of(&self.epoch);
        match &self.team {
            Some(_) => format!("{word}{shard}s"),
            None => word,
        }
    }
}

/// The lock on a destination. The kernel releases it when the last holder is dropped.
#[derive(Debug)]
pub struct VolumeLock(Arc<OwnedFd>);

impl VolumeLock {
    /// Returns whether this is the lock of the given file.
    fn is_of(&self, file: &OwnedFd) -> bool {
        let id = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
        matches!((id(&self.0), id(file)), (Ok(held), Ok(there)) if held == there)
    }
}

/// A `.volferry/` whose lock is being taken.
struct Entering<'a> {
    root: OwnedFd,
    path: &'a Path,
    dir: Private,
    is_marked: bool,
    replaced: Option<Replaced>,
    lock: Arc<OwnedFd>,
}

impl Entering<'_> {
    /// Opens the folders and cleans up staging. `is_first` is whether no other process of the run has joined before.
    fn enter(self, epoch: Epoch, shard: u32, is_first: bool) -> io::Result<StateDir> {
        let Self { root, path, dir, is_marked, replaced, lock } = self;
        let dirty = DirtyMark::inspect(dir.as_fd(), shard)?;
        let motion = MotionNotes::inspect(dir.as_fd(), shard)?;
        let known = replaced.as_ref().and_then(|replaced| replaced.volume);
        let source = replaced.as_ref().and_then(|replaced| replaced.source);
        source.map_or(Ok(()), |source| volume_id::note_source(dir.as_fd(), source))?;
        let OwnVolume { id: volume, is_adopted } = volume_id::read_or_make(dir.as_fd(), known)?;
        if is_first && !is_marked {
            made_mark::write(dir.as_fd(), volume)?;
        }
        let staging = dir.folder(STAGING)?;
        let journal = dir.folder(JOURNAL)?;
        let leftovers =
            if is_first { sweep(&root, &staging)? } else { parts_before(&staging, &word_of(&epoch))? };
        let opened = changed(&rustix::fs::statat(&dir, EPOCH, AtFlags::SYMLINK_NOFOLLOW)?);
        // Staged files must not inherit an access control list from the root.
        set_xattrs::drop_default_acl(staging.as_fd());
        let mut notes: Vec<String> = replaced.iter().map(Replaced::note).collect();
        notes.extend(dir.has_no_modes().then(|| NO_MODES.into()));
        Ok(StateDir {
            path: path.into(),
            root,
            dir,
            staging,
            journal,
            volume,
            is_adopted,
            is_first,
            epoch,
            opened,
            dirty,
            motion,
            team: None,
            leftovers: Mutex::new(leftovers),
            is_over: AtomicBool::new(false),
            notes,
            lock,
            next: AtomicU64::new(0),
        })
    }
}

/// The note for the report where the file system keeps no permissions.
const NO_MODES: &str = "the destination's file system keeps no permissions: any user who can write to it can change the files that a run stages";

/// Removes the files that this run staged, except for partial files if the run was not completed: the next run
/// continues with them. Leaves all files if another run has taken the destination over.
impl Drop for StateDir {
    fn drop(&mut self) {
        if let Err(error) = self.clear() {
            tracing::warn!(%error, "the staging folder was not emptied");
        }
    }
}

/// Returns the text that is in the names of all files that a run stages.
fn word_of(epoch: &Epoch) -> String {
    format!("{:016x}-", epoch.word())
}

#[cfg(test)]
mod state_dir_tests;
