//! New directories that are filled out of sight.
//!
//! In a visible directory, a file is made without a name, and gets its name when it is complete. In a directory out of
//! sight it is made under its name, and the directory is moved to its place when all of its files are complete. That
//! saves a change of the directory for each file: `syncer/doc/design.md` has the figures.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};

use crate::{
    destination::state::{
        made_beside::{beside, note_name, note_target},
        state_dir::StateDir,
    },
    path::RelPath,
    sys::root::{DirPlace, Root, each_name, open_child},
};

/// The largest number of directories out of sight: each is held open, and is lost when the run is cut off. With at most
/// 1 MiB in each, they hold less than the 24 MiB that a peer may have in flight.
const MAX_HIDDEN: u32 = 16;

/// The number of directories out of sight.
#[derive(Debug, Default)]
pub(crate) struct StagedDirCount(AtomicU32);

/// A directory in staging that was made at its place, and is moved back there.
#[derive(Debug)]
pub struct StagedDir {
    fd: OwnedFd,
    /// Its name in staging.
    name: String,
    /// The place that it is moved back to.
    place: DirPlace,
}

/// Makes an empty directory `name` in staging that has inherited the attributes of `parent`, by making it there first.
/// `path` is the path of `parent`. Returns its inode number.
pub(crate) fn make_aside(
    state: &StateDir,
    parent: BorrowedFd<'_>,
    path: &RelPath,
    name: &str,
    mode: Mode,
) -> io::Result<u64> {
    let note = Note::write(state, path, name);
    let first = beside(name);
    rustix::fs::mkdirat(parent, &first, mode)?;
    if let Err(error) = rustix::fs::renameat(parent, &first, state.staging(), name) {
        let _ = rustix::fs::unlinkat(parent, &first, AtFlags::REMOVEDIR);
        return Err(error.into());
    }
    drop(note);
    Ok(rustix::fs::fstat(open_new(state, name)?)?.st_ino)
}

/// A note in staging, while a directory is made beside its place, from which the next run knows what a crash has left
/// there. It is a symbolic link whose target is the path of the parent, because a link is made in one step. On drop, it
/// is removed.
struct Note<'a> {
    state: &'a StateDir,
    name: String,
}

impl<'a> Note<'a> {
    /// Writes the note. A file system without links, or that refuses the path's length, gets none.
    fn write(state: &'a StateDir, parent: &RelPath, name: &str) -> Self {
        let name = note_name(name);
        let _ = rustix::fs::symlinkat(note_target(parent), state.staging(), &name);
        Self { state, name }
    }
}

impl Drop for Note<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::unlinkat(self.state.staging(), &self.name, AtFlags::empty());
    }
}

/// Opens a directory in staging. Fails if it is not empty or not of this process's user: a user who can write to the
/// directory that it was taken from could have replaced it.
fn open_new(state: &StateDir, name: &str) -> io::Result<OwnedFd> {
    let fd = open_child(state.staging(), name.as_bytes(), OFlags::RDONLY)?;
    let is_own = rustix::fs::fstat(&fd)?.st_uid == state.user();
    let mut is_empty = true;
    each_name(&fd, |_| {
        is_empty = false;
        Ok(())
    })?;
    if is_own && is_empty {
        Ok(fd)
    } else {
        Err(io::Error::other("another process put another directory in the place of the new one"))
    }
}

impl StagedDir {
    /// Moves the new directory at `path` to staging. It was made at its place so that it inherits the attributes of its
    /// parent.
    ///
    /// # Errors
    /// When too many are out of sight, and when it is not this user's or not empty: then it stays at its place.
    pub(crate) fn take(
        state: &StateDir,
        root: &Root,
        path: &RelPath,
        count: &StagedDirCount,
    ) -> io::Result<Self> {
        let place = root.place_of(path)?;
        if count.0.fetch_add(1, Relaxed) >= MAX_HIDDEN {
            count.0.fetch_sub(1, Relaxed);
            return Err(Errno::MFILE.into());
        }
        Self::take_from(state, place).inspect_err(|_| {
            count.0.fetch_sub(1, Relaxed);
        })
    }

    fn take_from(state: &StateDir, place: DirPlace) -> io::Result<Self> {
        let name = state.fresh_name();
        rustix::fs::renameat(&place.parent, &*place.name, state.staging(), &name)?;
        match open_new(state, &name) {
            Ok(fd) => Ok(Self { fd, name, place }),
            Err(error) => {
                let _ = rustix::fs::renameat(state.staging(), &name, &place.parent, &*place.name);
                Err(error)
            }
        }
    }

    /// Moves the directory with its content back to the parent that it was taken from. The parent is held open, so
    /// replacing it does not move the directory elsewhere.
    pub(crate) fn show(&self, state: &StateDir, count: &StagedDirCount) -> io::Result<()> {
        count.0.fetch_sub(1, Relaxed);
        Ok(rustix::fs::renameat(state.staging(), &self.name, &self.place.parent, &*self.place.name)?)
    }

    /// Returns the open directory, to work in.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The name of a file in a directory out of sight, which is removed on drop unless the file was completed.
#[derive(Debug)]
pub(crate) struct Inside {
    dir: Arc<StagedDir>,
    name: Box<[u8]>,
    stays: AtomicBool,
}

impl Inside {
    /// Takes the name of a file that was just made.
    pub(crate) fn new(dir: &Arc<StagedDir>, name: &[u8]) -> Self {
        Self { dir: Arc::clone(dir), name: name.into(), stays: AtomicBool::new(false) }
    }

    /// Leaves the file where it is.
    pub(crate) fn keep(&self) {
        self.stays.store(true, Relaxed);
    }

    /// Removes the file.
    pub(crate) fn remove(&self) {
        if !self.stays.swap(true, Relaxed) {
            let _ = rustix::fs::unlinkat(self.dir.fd(), &*self.name, AtFlags::empty());
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::destination::{
        Staged,
        remove_old_versions::{EntryAt, Retire},
    };

    fn state(dir: &Path) -> (Root, StateDir) {
        let root = Root::open(dir).unwrap();
        let state = StateDir::open(&root, dir, None, None).unwrap();
        (root, state)
    }

    #[test]
    fn a_directory_comes_back_with_the_files_that_were_completed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, state) = state(dir.path());
        let (path, count) = (RelPath::parse(b"new").unwrap(), StagedDirCount::default());
        fs::create_dir(dir.path().join("new")).unwrap();
        let hidden = Arc::new(StagedDir::take(&state, &root, &path, &count).unwrap());
        assert!(!dir.path().join("new").exists());
        for (name, completed) in [(b"a", true), (b"b", false), (b"c", true)] {
            let staged = Staged::inside(&hidden, name, 0o640).unwrap();
            staged.write_at(name, 0).unwrap();
            if completed {
                staged.publish(&state, &Retire::default(), EntryAt::staged(hidden.fd(), name)).unwrap();
            }
        }
        let given_up = Staged::inside(&hidden, b"d", 0o640).unwrap();
        given_up.unlink(&state);
        let again = Staged::inside(&hidden, b"d", 0o640).unwrap();
        again.publish(&state, &Retire::default(), EntryAt::staged(hidden.fd(), b"d")).unwrap();
        drop((given_up, again));
        hidden.show(&state, &count).unwrap();
        let mut names: Vec<_> =
            fs::read_dir(dir.path().join("new")).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a", "c", "d"]);
    }

    #[test]
    fn a_directory_that_a_crash_left_beside_its_place_goes_with_the_next_run() {
        let dir = tempfile::tempdir().unwrap();
        let exists = |path: &str| dir.path().join(path).exists();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        for (path, mine) in [(RelPath::root(), ""), (RelPath::parse(b"a/b").unwrap(), "a/b/")] {
            let (root, state_dir) = state(dir.path());
            let name = state_dir.fresh_name();
            let left = format!("{mine}{}", beside(&name));
            std::mem::forget(Note::write(&state_dir, &path, &name));
            fs::create_dir(dir.path().join(&left)).unwrap();
            // A process that is killed does not empty staging: its note is restored after that.
            let note = dir.path().join(".volferry/staging").join(note_name(&name));
            let target = fs::read_link(&note).unwrap();
            drop((root, state_dir));
            std::os::unix::fs::symlink(target, &note).unwrap();
            fs::create_dir(dir.path().join(format!("{mine}.volferry-new-mine"))).unwrap();
            drop(state(dir.path()));
            assert!(!exists(&left), "{left}");
            assert!(exists(&format!("{mine}.volferry-new-mine")), "a user's folder stays");
            assert!(note.symlink_metadata().is_err());
        }
        let (root, state) = state(dir.path());
        let parent = root.dir(&RelPath::root()).unwrap();
        make_aside(&state, parent.as_fd(), &RelPath::root(), "new", Mode::RWXU).unwrap();
        assert!(exists(".volferry/staging/new") && !exists(".volferry-new-new"));
        assert!(dir.path().join(".volferry/staging/at-new").symlink_metadata().is_err());
    }

    #[test]
    fn no_more_than_a_few_are_held_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (root, state) = state(dir.path());
        let count = StagedDirCount::default();
        let path = |number: u32| RelPath::parse(number.to_string().as_bytes()).unwrap();
        (0..=MAX_HIDDEN).for_each(|number| fs::create_dir(dir.path().join(number.to_string())).unwrap());
        let take = |number| StagedDir::take(&state, &root, &path(number), &count);
        let held: Vec<_> = (0..MAX_HIDDEN).map(|number| take(number).unwrap()).collect();
        assert!(take(MAX_HIDDEN).is_err());
        assert!(dir.path().join(MAX_HIDDEN.to_string()).exists());
        held[0].show(&state, &count).unwrap();
        take(MAX_HIDDEN).unwrap();
    }
}
