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
mod tests {
    use std::{
        fs,
        os::unix::fs::{FileExt as _, PermissionsExt as _},
    };

    use super::*;
    use crate::{
        apply::{
            epoch::LOOK_EVERY,
            retire::{EntryAt, Retire},
            staged::Staged,
        },
        monitor::Monitor,
        path::RelPath,
    };

    struct TestStaging {
        dir: tempfile::TempDir,
    }

    impl TestStaging {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().unwrap() }
        }

        fn open(&self) -> Result<StateDir, ApplyError> {
            StateDir::open(&Root::open(self.dir.path()).unwrap(), self.dir.path(), None, None)
        }

        fn state(&self, name: &str) -> PathBuf {
            let state = self.dir.path().join(".volferry");
            if name.is_empty() { state } else { state.join(name) }
        }

        fn staged(&self) -> usize {
            fs::read_dir(self.state("staging")).unwrap().count()
        }

        /// Opens the destination while another has it, as if the file system had given its lock away.
        fn take_over(&self) -> StateDir {
            fs::remove_file(self.state("lock")).unwrap();
            self.open().unwrap()
        }
    }

    fn named(state: &StateDir) -> io::Result<Staged> {
        Staged::create(state, state.dir(), true, 0o600)
    }

    #[test]
    fn what_is_staged_goes_with_the_run_and_the_rest_stays() {
        let place = TestStaging::new();
        let state = place.open().unwrap();
        let volume = state.volume();
        named(&state).unwrap();
        assert_eq!(place.staged(), 1);
        assert!(matches!(place.open(), Err(ApplyError::Busy { .. })));
        drop(state);
        assert_eq!(place.staged(), 0);
        assert_eq!(place.open().unwrap().volume(), volume);
    }

    #[test]
    fn a_name_that_leads_to_the_folder_is_known_by_what_is_there() {
        let place = TestStaging::new();
        let state = place.open().unwrap();
        let other = place.dir.path().join(".VOLFERRY");
        fs::create_dir(&other).unwrap();
        assert!(state.is_named(OWN_DIR) && !state.is_named(b".VOLFERRY"));
        // As a file system shows it that folds case and numbers its folders by their names.
        fs::copy(place.state("epoch"), other.join("epoch")).unwrap();
        assert!(state.is_named(b".VOLFERRY"));
        drop(state);
        assert!(!place.open().unwrap().is_named(b".VOLFERRY"), "that was another run's stamp");
    }

    #[test]
    fn what_a_killed_run_left_in_staging_is_removed_by_the_next() {
        let place = TestStaging::new();
        drop(place.open().unwrap());
        fs::write(place.state("staging/0"), "left").unwrap();
        fs::create_dir(place.state("staging/1")).unwrap();
        fs::write(place.state("staging/1/file"), "of a hidden directory").unwrap();
        fs::create_dir_all(place.state("staging/2/of/a/folder/kept/aside")).unwrap();
        fs::create_dir_all(place.state("staging/2/leaving-1/of")).unwrap();
        fs::write(place.state("staging/2/of/a/file"), "below").unwrap();
        let _own = place.open().unwrap();
        assert_eq!(place.staged(), 0);
    }

    #[test]
    fn of_the_parts_of_one_file_the_one_with_most_in_it_is_left() {
        let place = TestStaging::new();
        drop(place.open().unwrap());
        let key = "0123456789abcdef".repeat(2);
        for (run, len) in [("1", 5_000), ("2", 500_000), ("3", 50_000), ("4", 0)] {
            fs::write(place.state(&format!("staging/{key}.{run}")), vec![1; len]).unwrap();
        }
        let state = place.open().unwrap();
        assert_eq!(place.staged(), 1);
        let (name, was_tried) = state.take_leftover(&key).unwrap();
        assert_eq!(fs::metadata(place.state(&format!("staging/{name}"))).unwrap().len(), 500_000);
        assert!(!state.has_leftover(&key) && !was_tried);
        drop(state);
        let state = place.open().unwrap();
        assert!(state.take_leftover(&key).unwrap().1, "nothing better has come since");
        drop(state);
        fs::write(place.state(&format!("staging/{key}.5")), [1; 600_000]).unwrap();
        assert!(!place.open().unwrap().take_leftover(&key).unwrap().1, "more has come");
    }

    #[test]
    fn what_is_the_users_own_is_closed_to_others_again() {
        let place = TestStaging::new();
        let volume = place.open().unwrap().volume();
        let mode = |name: &str| fs::metadata(place.state(name)).unwrap().permissions().mode() & 0o7777;
        let set = |name: &str, mode| {
            fs::set_permissions(place.state(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        let names =
            [("", 0o2770), ("staging", 0o2770), ("journal", 0o777), ("lock", 0o660), ("volume", 0o666)];
        names.iter().for_each(|(name, mode)| set(name, *mode));
        assert_eq!(place.open().unwrap().volume(), volume);
        for (name, _) in names {
            assert_eq!(mode(name) & 0o077, 0, "{name}");
        }
        let state = place.open().unwrap();
        set("staging", 0o2770);
        state.stay_private().unwrap();
        assert_eq!(mode("staging"), 0o2700, "while a run works, too");
        fs::rename(place.state(""), place.dir.path().join("aside")).unwrap();
        let error = state.stay_private().unwrap_err().to_string();
        assert!(error.contains("moved or replaced"), "{error}");
    }

    #[test]
    fn a_part_that_others_could_write_to_is_gone_on_from_in_a_new_file() {
        let place = TestStaging::new();
        drop(place.open().unwrap());
        let path = crate::path::RelPath::parse(b"large").unwrap();
        let name = format!("staging/{}.1", crate::apply::staging_names::part_key(&path));
        fs::write(place.state(&name), "what has arrived").unwrap();
        fs::set_permissions(place.state(&name), fs::Permissions::from_mode(0o660)).unwrap();
        let held = fs::OpenOptions::new().write(true).open(place.state(&name)).unwrap();
        let state = place.open().unwrap();
        let (part, _) = Staged::leftover(&state, &path, &Monitor::default()).unwrap();
        held.write_all_at(b"forged", 0).unwrap();
        let mut there = [0; 16];
        part.read_exact_at(&mut there, 0).unwrap();
        assert_eq!(&there, b"what has arrived");
        assert_eq!(place.staged(), 1);
    }

    #[test]
    fn a_run_that_is_stopped_leaves_a_part_that_it_was_copying() {
        let place = TestStaging::new();
        drop(place.open().unwrap());
        let path = RelPath::parse(b"large").unwrap();
        let name = format!("staging/{}.1", crate::apply::staging_names::part_key(&path));
        fs::write(place.state(&name), vec![7; 100_000]).unwrap();
        fs::set_permissions(place.state(&name), fs::Permissions::from_mode(0o660)).unwrap();
        let (state, monitor) = (place.open().unwrap(), Monitor::default());
        monitor.cancel();
        assert!(Staged::leftover(&state, &path, &monitor).is_none());
        drop(state);
        assert_eq!(place.staged(), 1);
        let state = place.open().unwrap();
        let (part, _) = Staged::leftover(&state, &path, &Monitor::default()).unwrap();
        assert_eq!(part.basis_len().unwrap(), 100_000);
    }

    #[test]
    fn a_file_that_a_stop_keeps_from_its_place_stays_for_the_next_run() {
        let place = TestStaging::new();
        fs::create_dir(place.dir.path().join("large")).unwrap();
        let root = Root::open(place.dir.path()).unwrap();
        let (parent, path) = (RelPath::root(), RelPath::parse(b"large").unwrap());
        for is_stopped in [false, true] {
            let (state, monitor) = (place.open().unwrap(), Monitor::default());
            let part = Staged::part(&state, &path).unwrap();
            part.write_at(&[7; 5000], 0).unwrap();
            if is_stopped {
                monitor.cancel();
            }
            let at = EntryAt::new(root.as_fd(), &parent, b"large", &monitor);
            part.publish(&state, &Retire::default(), at).unwrap_err();
            drop(state);
            assert_eq!(place.staged(), usize::from(is_stopped));
        }
    }

    #[test]
    fn what_is_not_a_file_of_the_user_with_one_name_is_refused_and_named() {
        for name in ["epoch", "volume"] {
            let place = TestStaging::new();
            drop(place.open().unwrap());
            fs::hard_link(place.state(name), place.dir.path().join("another name")).unwrap();
            let Err(ApplyError::Own { source, .. }) = place.open() else { panic!("{name} was used") };
            let text = source.to_string();
            assert!(text.contains(name) && text.contains("2 names") && text.contains("remove it"), "{text}");
        }
        let place = TestStaging::new();
        fs::create_dir(place.dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", place.state("")).unwrap();
        let Err(ApplyError::Own { source, .. }) = place.open() else { panic!("a link was followed") };
        assert!(source.to_string().contains("is no folder"), "{source}");
    }

    #[test]
    fn a_run_that_does_not_get_to_its_end_leaves_the_parts_that_have_anything_in_them() {
        let place = TestStaging::new();
        let path = |name: &str| RelPath::parse(name.as_bytes()).unwrap();
        let stage = |state: &StateDir| {
            Staged::part(state, &path("large")).unwrap().write_at(&[7; 5000], 0).unwrap();
            Staged::part(state, &path("empty")).unwrap().set_len(5000).unwrap();
            named(state).unwrap().write_at(b"small", 0).unwrap();
        };
        let state = place.open().unwrap();
        stage(&state);
        drop(state);
        assert_eq!(place.staged(), 1);
        let state = place.open().unwrap();
        stage(&state);
        state.end();
        drop(state);
        assert_eq!(place.staged(), 0);
    }

    #[test]
    fn leftovers_that_are_not_needed_go_and_the_others_stay() {
        let place = TestStaging::new();
        drop(place.open().unwrap());
        let keys = ["0", "1"].map(|digit| digit.repeat(32));
        keys.iter().for_each(|key| fs::write(place.state(&format!("staging/{key}.1")), [7; 5000]).unwrap());
        let state = place.open().unwrap();
        state.drop_leftovers(|key| key == keys[0]);
        assert_eq!(
            (state.has_leftover(&keys[0]), state.has_leftover(&keys[1]), place.staged()),
            (true, false, 1)
        );
    }

    #[test]
    fn a_run_that_was_taken_over_publishes_nothing_and_leaves_staging_alone() {
        let place = TestStaging::new();
        let old = place.open().unwrap();
        let late = named(&old).unwrap();
        late.write_at(b"late", 0).unwrap();
        let new = place.take_over();
        named(&new).unwrap();
        // Even one that has looked a moment ago, and believes that the destination is its own, has nothing left to
        // rename.
        let root = Root::open(place.dir.path()).unwrap();
        let at = EntryAt::staged(root.as_fd(), b"file");
        assert!(late.publish(&old, &Retire::default(), at).is_err());
        assert!(!place.dir.path().join("file").exists());
        // A run may go by what it has seen on the volume for so long.
        std::thread::sleep(LOOK_EVERY);
        assert!(old.check().is_err());
        assert!(old.is_lost());
        named(&old).unwrap();
        assert_eq!(place.staged(), 2);
        drop(old);
        assert_eq!(place.staged(), 1);
        new.check().unwrap();
    }
}
