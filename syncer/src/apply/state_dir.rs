//! `.volferry/` on the destination: the lock, the id, the epoch and the staging folder. `syncer/doc/format.md`
//! describes it.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use contract::{Shard, VolumeId};
use rustix::{
    fs::{AtFlags, FlockOperation, Mode, OFlags, Stat, StatxFlags},
    io::Errno,
};

use super::{
    apply_error::ApplyError,
    attr_writer,
    dirty_mark::DirtyMark,
    epoch::{EPOCH, Epoch},
    private::{Private, Replaced},
    shard_board::{BoardDir, ShardBoard},
    staging_names::{beside, blocks_name, is_tried, key_of, part_key, part_of_blocks, tried_name},
    state_files::{JOURNAL, LOCK, SHARDS, STAGING, empty, remove_dir},
    volume,
};
use crate::{
    entry::Time,
    path::{OWN_DIR, RelPath},
    root::{Root, open_child},
    stat::changed,
};

/// The open `.volferry/` of a destination, locked for this run.
#[derive(Debug)]
pub struct StateDir {
    /// Where the destination is, for messages.
    path: PathBuf,
    root: OwnedFd,
    dir: Private,
    staging: Private,
    journal: Private,
    volume: VolumeId,
    epoch: Epoch,
    /// When the epoch was written.
    opened: Time,
    dirty: DirtyMark,
    is_first: bool,
    /// Where several processes share the run.
    team: Option<ShardBoard>,
    /// What a run that was cut off left of large files, by their keys.
    leftovers: Mutex<HashMap<String, String>>,
    /// Whether the run got to its end, so that nothing is left to go on from.
    is_over: AtomicBool,
    /// What the report says of how the folder was found.
    notes: Vec<String>,
    /// Held for its lock, which the kernel gives back when the process ends, however it ends.
    lock: Arc<OwnedFd>,
    next: AtomicU64,
}

impl StateDir {
    /// Makes what is missing, takes the lock, and empties staging of what a run that was cut off left there, but for
    /// parts of large files. Processes that each have a `shard` of the run of this name hold the lock together; the
    /// first of them does the rest for all. A lock that was `held` is used if it is this folder's.
    pub fn open(
        root: &Root,
        path: &Path,
        shard: Option<(&str, Shard)>,
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
        shard: Option<(&str, Shard)>,
        held: Option<VolumeLock>,
    ) -> io::Result<Self> {
        let (dir, replaced) = Private::open(root.as_fd(), path)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&dir, LOCK, flags, Mode::RUSR | Mode::WUSR)?;
        let held = held.filter(|held| shard.is_none() && held.is_of(&lock));
        let lock = held.map_or_else(|| Arc::new(lock), |VolumeLock(held)| held);
        let entering = Entering { root: root.as_fd().try_clone_to_owned()?, path, dir, replaced, lock };
        let Some((run, shard)) = shard else {
            rustix::fs::flock(&entering.lock, FlockOperation::NonBlockingLockExclusive)?;
            let epoch = Epoch::raise(entering.dir.as_fd())?;
            return entering.enter(epoch, 0, true);
        };
        let table = BoardDir::open(entering.dir.folder(SHARDS)?)?;
        let meeting = table.meet()?;
        let is_first = rustix::fs::flock(&entering.lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        let epoch = match is_first {
            true => Epoch::raise(entering.dir.as_fd())?,
            false => Epoch::join(entering.dir.as_fd())?,
        };
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

    /// The lock, for the next run of the same session; `None` where several processes share it.
    pub fn lock(&self) -> Option<VolumeLock> {
        self.team.is_none().then(|| VolumeLock(Arc::clone(&self.lock)))
    }

    /// The folder itself, to open and rename files in.
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Where the destination is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder for what is about to be written in place.
    pub(super) fn journal(&self) -> &Private {
        &self.journal
    }

    /// What the report says of how the folder was found.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Takes note of something for the report.
    pub(super) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// The user that files made on this volume belong to.
    pub fn user(&self) -> u32 {
        self.dir.user()
    }

    /// Whether an entry of this name in the root would be the folder itself: other names than its own are where the
    /// file system folds case. Some give each name of a folder another inode number, so its content counts, too.
    pub(super) fn is_named(&self, name: &[u8]) -> bool {
        let is_stamped =
            || open_child(&self.root, name, OFlags::PATH).is_ok_and(|dir| self.epoch.is_in(dir.as_fd()));
        self.dir.is_still(self.root.as_fd(), name) || is_stamped()
    }

    /// What the destination is known by from run to run.
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// Whether no other process of this run came before.
    pub(super) fn is_first(&self) -> bool {
        self.is_first
    }

    /// The other processes of this run, where there are any.
    pub fn shard_board(&self) -> Option<&ShardBoard> {
        self.team.as_ref()
    }

    /// Whether this process does what is done once in a run, however many processes share it.
    pub fn leads(&self) -> bool {
        self.team.as_ref().is_none_or(|team| team.shard().index == 0)
    }

    /// Looks, from time to time, whether the destination is still this run's; to be called before anything on it is
    /// changed.
    ///
    /// # Errors
    /// When another run has taken it over, or nothing can be said.
    pub fn check(&self) -> io::Result<()> {
        self.epoch.check(self.dir(), || self.stay_private())
    }

    /// Looks whether the folder is still in its place, and closes to others what somebody has opened to them meanwhile.
    fn stay_private(&self) -> io::Result<()> {
        if !self.dir.is_still(self.root.as_fd(), OWN_DIR) {
            let folder = self.path.join(".volferry");
            return Err(io::Error::other(format!(
                "somebody moved or replaced {} while the run worked in it",
                folder.display()
            )));
        }
        [&self.dir, &self.staging, &self.journal].into_iter().try_for_each(Private::stay_private)
    }

    /// Whether another run was seen to have taken the destination over.
    pub fn is_lost(&self) -> bool {
        self.epoch.is_lost()
    }

    /// Whether what runs have changed is on the disk.
    pub(super) fn dirty(&self) -> &DirtyMark {
        &self.dirty
    }

    /// The folder for files that are not visible yet.
    pub fn staging(&self) -> BorrowedFd<'_> {
        self.staging.as_fd()
    }

    /// Whether a file that was found in staging can only have been written to by this process's user.
    pub(super) fn trusts_staged(&self, file: &Stat) -> bool {
        self.staging.trusts(file)
    }

    /// A name for an entry that is made beside its place, on a file system that is mounted inside the destination.
    pub fn name_beside(&self) -> String {
        beside(&self.fresh_name())
    }

    /// Whether a directory is on another mount than staging, so that nothing can be renamed from one to the other.
    pub fn is_beyond(&self, dir: BorrowedFd<'_>) -> bool {
        let place = |dir: BorrowedFd<'_>| {
            let found = rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
            Ok::<_, Errno>((found.stx_dev_major, found.stx_dev_minor, found.stx_mnt_id))
        };
        matches!((place(dir), place(self.staging())), (Ok(one), Ok(other)) if one != other)
    }

    /// Has an entry made under a name in staging and renamed into `dir`; where `dir` is on another file system, made
    /// beside its place.
    pub(super) fn beside_or_in_staging(
        &self,
        dir: BorrowedFd<'_>,
        make: impl Fn(BorrowedFd<'_>, &str) -> io::Result<()>,
    ) -> io::Result<()> {
        match make(self.staging(), &self.fresh_name()) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => make(dir, &self.name_beside()),
            result => result,
        }
    }

    /// A name in staging that nobody else uses, nor another run: one that was taken over must not find its files' names
    /// given to others.
    pub fn fresh_name(&self) -> String {
        format!("{}{}", self.mark(), self.next.fetch_add(1, Relaxed))
    }

    /// The volume's own time when this run opened it.
    pub(super) fn opened(&self) -> Time {
        self.opened
    }

    /// Names the folder in staging that is filled for `path`: the same in all processes that share a run, of which the
    /// first makes it.
    pub(super) fn folder_name(&self, path: &RelPath) -> String {
        format!("{}{}", self.mark_of(0), part_key(path))
    }

    /// Removes a folder of staging, with all that is in it.
    pub(super) fn remove_folder(&self, name: &str) -> io::Result<()> {
        remove_dir(self.staging(), name.as_bytes())
    }

    /// Removes a file of this name from staging, if it is there.
    pub(super) fn drop_staged(&self, name: &str) -> io::Result<()> {
        drop_file(&self.staging, name)
    }

    /// Removes what is noted of a part in staging, if anything is.
    pub(super) fn drop_blocks(&self, part: &str) -> io::Result<()> {
        unlink(&self.staging, &blocks_name(part))
    }

    /// The name for a part of a large file, which a later run finds by its key.
    pub(super) fn part_name(&self, key: &str) -> String {
        format!("{key}.{}", self.fresh_name())
    }

    /// Whether a run that was cut off left a part of the file with this key.
    pub(super) fn has_leftover(&self, key: &str) -> bool {
        self.leftovers().contains_key(key)
    }

    /// Makes it this run's, and returns its name, and whether a run before has gone on from it and not got beyond it.
    pub(super) fn take_leftover(&self, key: &str) -> Option<(String, bool)> {
        let old = self.leftovers().remove(key)?;
        let name = tried_name(key, &self.fresh_name());
        // First what is noted of it: alone it counts for nothing.
        let (noted, new) = (blocks_name(&old), blocks_name(&name));
        let _ = rustix::fs::renameat(&self.staging, noted, &self.staging, new);
        let was_tried = is_tried(&old);
        rustix::fs::renameat(&self.staging, old, &self.staging, &name).ok().map(|()| (name, was_tried))
    }

    /// Forgets the leftovers of files that this run does not need, so that they do not take up room until a run gets to
    /// its end.
    pub(super) fn drop_leftovers(&self, is_needed: impl Fn(&str) -> bool) {
        let mut leftovers = self.leftovers();
        leftovers.retain(|key, name| is_needed(key) || drop_file(&self.staging, name).is_err());
    }

    /// Whether an earlier run left anything.
    pub(super) fn has_leftovers(&self) -> bool {
        !self.leftovers().is_empty()
    }

    /// Ends a run that got to its end: nothing of it is kept in staging. Any other run keeps the parts of large files.
    pub(super) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    fn leftovers(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.leftovers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what this run staged. One that did not get to its end leaves the parts of large files that have anything
    /// in them.
    fn clear(&self) -> io::Result<()> {
        let (mark, is_over) = (self.mark(), self.is_over.load(Relaxed));
        let stays = |name: &str| !is_over && !self.is_lost() && self.is_of_use(name);
        empty(&self.staging, |name| name.contains(&mark) && !stays(name))?;
        match is_over && self.leads() {
            true => self.leftovers().drain().try_for_each(|(_, name)| drop_file(&self.staging, &name)),
            false => Ok(()),
        }
    }

    /// Whether the next run can go on from a staged file.
    fn is_of_use(&self, name: &str) -> bool {
        let part = part_of_blocks(name).unwrap_or(name);
        key_of(part).is_some() && blocks(&self.staging, part) > 0
    }

    /// What the names of all files hold that this process stages.
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

/// The lock on a destination. The kernel gives it back when nobody holds it any more.
#[derive(Debug)]
pub struct VolumeLock(Arc<OwnedFd>);

impl VolumeLock {
    /// Whether it is on this lock file.
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
    replaced: Option<Replaced>,
    lock: Arc<OwnedFd>,
}

impl Entering<'_> {
    /// `is_first` is whether no other process of the run is there yet.
    fn enter(self, epoch: Epoch, shard: u32, is_first: bool) -> io::Result<StateDir> {
        let Self { root, path, dir, replaced, lock } = self;
        let dirty = DirtyMark::look(dir.as_fd(), shard)?;
        let known = replaced.as_ref().and_then(|replaced| replaced.volume);
        let volume = volume::read_or_make(dir.as_fd(), known)?;
        let staging = dir.folder(STAGING)?;
        let journal = dir.folder(JOURNAL)?;
        let leftovers = match is_first {
            true => sweep(&staging)?,
            false => parts_before(&staging, &word_of(&epoch))?,
        };
        let opened = changed(&rustix::fs::statat(&dir, EPOCH, AtFlags::SYMLINK_NOFOLLOW)?);
        // What is staged shall not inherit an access control list that the root's other files get.
        attr_writer::drop_default_acl(staging.as_fd());
        let mut notes: Vec<String> = replaced.iter().map(Replaced::note).collect();
        notes.extend(dir.has_no_modes().then(|| NO_MODES.into()));
        Ok(StateDir {
            path: path.into(),
            root,
            dir,
            staging,
            journal,
            volume,
            is_first,
            epoch,
            opened,
            dirty,
            team: None,
            leftovers: Mutex::new(leftovers),
            is_over: AtomicBool::new(false),
            notes,
            lock,
            next: AtomicU64::new(0),
        })
    }
}

/// What a report says where nothing can be kept from other users.
const NO_MODES: &str = "the destination's file system keeps no permissions: whoever can write to it can change what a run stages";

/// Removes what this run staged, but for the parts of large files where the run did not get to its end: the next run
/// goes on from them. Files of a run that has taken the destination over stay.
impl Drop for StateDir {
    fn drop(&mut self) {
        if let Err(error) = self.clear() {
            tracing::warn!(%error, "the staging folder was not emptied");
        }
    }
}

/// What the names of all files hold that a run stages.
fn word_of(epoch: &Epoch) -> String {
    format!("{:016x}-", epoch.word())
}

/// Removes all files but one part for each key, the one that has most in it. The parts' names, by their keys.
fn sweep(staging: &Private) -> io::Result<HashMap<String, String>> {
    let mut parts: HashMap<String, String> = HashMap::new();
    let mut noted = Vec::new();
    empty(staging, |name| {
        if let Some(part) = part_of_blocks(name) {
            noted.push(part.to_owned());
            return false;
        }
        let Some(key) = key_of(name) else { return true };
        let Some(other) = parts.get(key) else {
            parts.insert(key.to_owned(), name.to_owned());
            return false;
        };
        // The other is removed under its own name, so that this one stays.
        if blocks(staging, name) < blocks(staging, other) || unlink(staging, other).is_err() {
            return true;
        }
        parts.insert(key.to_owned(), name.to_owned());
        false
    })?;
    let is_left = |part: &String| key_of(part).and_then(|key| parts.get(key)) == Some(part);
    noted.iter().filter(|part| !is_left(part)).try_for_each(|part| unlink(staging, &blocks_name(part)))?;
    Ok(parts)
}

/// How much is allocated for a file.
fn blocks(staging: &Private, name: &str) -> u64 {
    rustix::fs::statat(staging, name, AtFlags::SYMLINK_NOFOLLOW).map_or(0, |stat| stat.st_blocks as u64)
}

/// The names of the parts that earlier runs left, by their keys, while other processes of the run of this `word` work
/// in `staging`.
fn parts_before(staging: &Private, word: &str) -> io::Result<HashMap<String, String>> {
    let mut parts = HashMap::new();
    empty(staging, |name| {
        if let Some(key) = key_of(name).filter(|_| !name.contains(word)) {
            parts.insert(key.to_owned(), name.to_owned());
        }
        false
    })?;
    Ok(parts)
}

/// Removes a file, and what is noted of it if it is a part.
fn drop_file(staging: &Private, name: &str) -> io::Result<()> {
    if key_of(name).is_some() {
        unlink(staging, &blocks_name(name))?;
    }
    unlink(staging, name)
}

fn unlink(staging: &Private, name: &str) -> io::Result<()> {
    match rustix::fs::unlinkat(staging, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        result => Ok(result?),
    }
}

#[cfg(test)]
mod state_dir_tests;
