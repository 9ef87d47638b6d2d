//! Marks a destination while changes of a run may not be on the disk, as file systems do in their superblock.
//!
//! A run makes the mark before its first change, and removes it when all is durable. It does not wait for the mark: a
//! journaling file system keeps the order of metadata, so after a crash the mark exists if any later entry does. The
//! data of such entries may be missing, although their lengths and times are in the journal. A run that finds a mark
//! therefore trusts no file that changed since the time of the mark to have the content that its length and time stand
//! for. Each sync moves that time forward.
//!
//! A run that looks at a part of the tree only settles what runs of the same part left in doubt. So a mark's name says
//! which part that was: unlike content, a name is on the disk when the mark is.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use contract::{Compare, RunParams};
use parking_lot::Mutex;
use rustix::{
    fs::{AtFlags, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT},
    io::Errno,
};

use crate::{
    destination::state::own_file::open_own,
    entry::Time,
    sys::{root::each_name, stat::modified},
};

/// The prefix of a mark's name; the number of the shard that made it follows, 0 where there is one process.
const PREFIX: &str = "dirty-";

/// The part of the tree that a run looks at, as the part of a mark's name that stands for it: nothing for all of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Scope(String);

impl Scope {
    /// Returns the scope of a run with these parameters. Runs have the same one if the same entries are left out.
    pub(crate) fn of(params: &RunParams) -> Self {
        let RunParams { include, exclude, filter, demands, restore_paths, .. } = params;
        let limits = (params.min_size, params.max_size, params.ignore_files, params.one_file_system);
        let lists = [include, exclude, filter, &demands.exclude, restore_paths];
        if lists.iter().all(|list| list.is_empty()) && limits == (None, None, false, false) {
            return Self::default();
        }
        let hash = blake3::hash(format!("{lists:?}{limits:?}").as_bytes());
        Self(format!("-{}", &hash.to_hex()[..16]))
    }
}

/// Returns whether a run with these parameters compares the content of each file in doubt in its scope.
pub(crate) fn settles_doubt(params: &RunParams) -> bool {
    !params.ignore_existing && params.compare != Compare::Size
}

/// A mark that an earlier run left.
#[derive(Debug)]
struct Found {
    shard: u32,
    scope: Scope,
    /// The time since when changes are in doubt.
    since: Time,
}

/// The marks on a destination.
#[derive(Debug)]
pub(crate) struct DirtyMark {
    shard: u32,
    found: Vec<Found>,
    /// The mark of this process, and its name.
    made: Mutex<Option<(OwnedFd, String)>>,
}

impl DirtyMark {
    /// Reads the marks in the `.volferry/` that is open as `dir`, for the process of this shard.
    pub(crate) fn inspect(dir: BorrowedFd<'_>, shard: u32) -> io::Result<Self> {
        let mut found = Vec::new();
        each_name(dir, |name| {
            let text = name.to_string_lossy();
            let Some(rest) = text.strip_prefix(PREFIX) else { return Ok(()) };
            let (shard, scope) = rest.split_at(rest.find('-').unwrap_or(rest.len()));
            let Ok(shard) = shard.parse() else { return Ok(()) };
            match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => {}
                result => found.push(Found { shard, scope: Scope(scope.into()), since: modified(&result?) }),
            }
            Ok(())
        })?;
        Ok(Self { shard, found, made: Mutex::default() })
    }

    /// Returns the time since when changes may not be on the disk; `None` if no earlier run left a mark.
    pub(crate) fn since(&self) -> Option<Time> {
        self.found.iter().map(|mark| mark.since).min()
    }

    /// Makes the mark, if this process has not made it yet. It keeps the time of the oldest mark that was found.
    pub(crate) fn mark(&self, dir: BorrowedFd<'_>, scope: &Scope) -> io::Result<()> {
        let mut made = self.made.lock();
        if made.is_none() {
            let name = name(self.shard, scope);
            let file = open_own(dir, &name, OFlags::WRONLY | OFlags::CREATE)?;
            if let Some(since) = self.since() {
                set_since(&file, since)?;
            }
            *made = Some((file, name));
        }
        Ok(())
    }

    /// Calls `sync`, which makes all changes until now durable, and moves the time of the mark forward to the start of
    /// that call. The time stays if an earlier run left a mark, or this one made none.
    pub(crate) fn moving_on(&self, sync: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let time_of = |(mark, _): &(OwnedFd, String)| now_of(mark);
        let now = self.made.lock().as_ref().filter(|_| self.found.is_empty()).map(time_of).transpose();
        sync()?;
        // If the mark's time cannot be set, more than necessary stays in doubt, which is safe.
        if let (Ok(Some(now)), Some((file, _))) = (now, self.made.lock().as_ref()) {
            let _ = set_since(file, now);
        }
        Ok(())
    }

    /// Returns whether there is any mark.
    pub(crate) fn is_marked(&self) -> bool {
        !self.found.is_empty() || self.made.lock().is_some()
    }

    /// Returns whether marks of runs stay that have looked at more, or at something else, than a run of this scope.
    pub(crate) fn outlives(&self, scope: &Scope) -> bool {
        self.found.iter().any(|mark| !mark.is_settled_by(scope))
    }

    /// Removes the mark of this process, because all is durable. Shard 0 also removes the marks of shards beyond the
    /// `shards` of this run. Earlier marks go if a run of the scope `settled` has looked at all that is in doubt there.
    pub(crate) fn clear(&self, dir: BorrowedFd<'_>, settled: Option<&Scope>, shards: u32) -> io::Result<()> {
        let is_ours = |mark: &&Found| mark.shard == self.shard || self.shard == 0 && mark.shard >= shards;
        let is_settled = |mark: &&Found| settled.is_some_and(|scope| mark.is_settled_by(scope));
        let found = self.found.iter().filter(is_ours).filter(is_settled);
        let own = self.made.lock().as_ref().map(|(_, name)| name.clone());
        found.map(|mark| name(mark.shard, &mark.scope)).chain(own).try_for_each(|name| {
            match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
                Err(Errno::NOENT) => Ok(()),
                result => Ok(result?),
            }
        })
    }
}

impl Found {
    fn is_settled_by(&self, scope: &Scope) -> bool {
        *scope == Scope::default() || *scope == self.scope
    }
}

fn name(shard: u32, Scope(scope): &Scope) -> String {
    format!("{PREFIX}{shard}{scope}")
}

/// Returns the present time, by the clock of the file system.
fn now_of(mark: &OwnedFd) -> Result<Time, Errno> {
    let times = Timestamps { last_access: special(UTIME_NOW), last_modification: special(UTIME_OMIT) };
    rustix::fs::futimens(mark, &times)?;
    let stat = rustix::fs::fstat(mark.as_fd())?;
    Ok(Time { seconds: stat.st_atime, nanos: stat.st_atime_nsec as u32 })
}

fn set_since(mark: &OwnedFd, since: Time) -> Result<(), Errno> {
    let since = Timespec { tv_sec: since.seconds, tv_nsec: since.nanos.into() };
    let times = Timestamps { last_access: special(UTIME_OMIT), last_modification: since };
    rustix::fs::futimens(mark, &times)
}

fn special(nanos: i64) -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: nanos as _ }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;
    use crate::sys::stat;

    const LONG_AGO: Time = Time { seconds: 1_000_000_000, nanos: 7 };
    const ALL: Scope = Scope(String::new());

    fn marks(dir: &File, shard: u32) -> DirtyMark {
        DirtyMark::inspect(dir.as_fd(), shard).unwrap()
    }

    fn there(dir: &tempfile::TempDir) -> usize {
        fs::read_dir(dir.path()).unwrap().count()
    }

    #[test]
    fn a_mark_stays_until_it_is_cleared_and_keeps_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let fd = File::open(dir.path()).unwrap();
        let first = marks(&fd, 0);
        assert!(first.since().is_none() && !first.is_marked());
        first.mark(fd.as_fd(), &ALL).unwrap();
        assert!(first.is_marked());
        let second = marks(&fd, 0);
        let since = second.since().unwrap();
        second.mark(fd.as_fd(), &ALL).unwrap();
        second.moving_on(|| Ok(())).unwrap();
        assert_eq!(marks(&fd, 0).since(), Some(since), "what is in doubt stays so");
        second.clear(fd.as_fd(), Some(&ALL), 1).unwrap();
        assert_eq!((marks(&fd, 0).since(), there(&dir)), (None, 0));
    }

    #[test]
    fn what_was_made_durable_is_in_doubt_no_more_and_what_could_not_be_is() {
        let dir = tempfile::tempdir().unwrap();
        let fd = File::open(dir.path()).unwrap();
        let dirty = marks(&fd, 0);
        dirty.mark(fd.as_fd(), &ALL).unwrap();
        set_since(&dirty.made.lock().as_ref().unwrap().0, LONG_AGO).unwrap();
        assert_eq!(dirty.moving_on(|| Err(Errno::IO)), Err(Errno::IO));
        assert_eq!(marks(&fd, 0).since(), Some(LONG_AGO));
        fs::write(dir.path().join("before"), "").unwrap();
        dirty.moving_on(|| fs::write(dir.path().join("meanwhile"), "").map_err(|_| Errno::IO)).unwrap();
        let since = marks(&fd, 0).since().unwrap();
        let changed = |name: &str| stat::changed(&rustix::fs::stat(dir.path().join(name)).unwrap());
        assert!(changed("meanwhile") >= since && since >= changed("before"));
    }

    #[test]
    fn of_marks_of_several_shards_the_oldest_counts_and_each_removes_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let fd = File::open(dir.path()).unwrap();
        for shard in [0, 1, 5] {
            marks(&fd, shard).mark(fd.as_fd(), &ALL).unwrap();
        }
        fs::write(dir.path().join("dirty-no"), "").unwrap();
        set_since(&File::open(dir.path().join("dirty-5")).unwrap().into(), LONG_AGO).unwrap();
        let [first, second] = [0, 1].map(|shard| marks(&fd, shard));
        assert_eq!((first.since(), second.since()), (Some(LONG_AGO), Some(LONG_AGO)));
        first.clear(fd.as_fd(), Some(&ALL), 2).unwrap();
        assert_eq!(there(&dir), 2, "the second's stays");
        second.mark(fd.as_fd(), &ALL).unwrap();
        assert_eq!(marks(&fd, 0).since(), Some(LONG_AGO));
        second.clear(fd.as_fd(), Some(&ALL), 2).unwrap();
        assert_eq!(there(&dir), 1);
    }

    #[test]
    fn a_run_settles_what_runs_of_its_own_scope_left_in_doubt_and_one_of_all_settles_everything() {
        let dir = tempfile::tempdir().unwrap();
        let fd = File::open(dir.path()).unwrap();
        let excluding =
            |pattern: &str| Scope::of(&RunParams { exclude: vec![pattern.into()], ..RunParams::default() });
        let (one, other) = (excluding("*.tmp"), excluding("*.log"));
        assert_eq!(Scope::of(&RunParams::default()), ALL);
        marks(&fd, 0).mark(fd.as_fd(), &one).unwrap();
        let second = marks(&fd, 0);
        assert!(second.outlives(&other) && !second.outlives(&one) && !second.outlives(&ALL));
        second.mark(fd.as_fd(), &other).unwrap();
        second.clear(fd.as_fd(), Some(&other), 1).unwrap();
        let third = marks(&fd, 0);
        assert!(third.since().is_some() && there(&dir) == 1, "that of the first stays");
        third.clear(fd.as_fd(), Some(&one), 1).unwrap();
        assert_eq!(there(&dir), 0);
        marks(&fd, 0).mark(fd.as_fd(), &one).unwrap();
        marks(&fd, 0).clear(fd.as_fd(), Some(&ALL), 1).unwrap();
        assert_eq!(there(&dir), 0);
    }
}
