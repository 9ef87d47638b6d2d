//! New directories that are filled where nobody sees them.
//!
//! In a directory that others see, a file is made without a name, and gets its name when it is complete. In one that nobody sees it is made
//! under its name, and the directory is moved to its place when all of its files are complete. That saves a change of the directory for each file:
//! `syncer/doc/design.md` has the figures.

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

use super::own::OwnDir;
use crate::{
    path::RelPath,
    root::{Root, open_child},
};

/// So many may be out of sight at once: each is held open, and is lost with a run that is cut off. With 1 MiB at most in each, that is less
/// than the 24 MiB that a peer may have under way.
const MAX_HIDDEN: u32 = 16;

/// How many directories are out of sight.
#[derive(Debug, Default)]
pub(super) struct HiddenCount(AtomicU32);

/// A directory in staging that was made at its place, and goes back there.
#[derive(Debug)]
pub struct HiddenDir {
    fd: OwnedFd,
    /// In staging.
    name: String,
}

impl HiddenDir {
    /// Moves the new directory at `path` to staging. It was made at its place, so that it has inherited what a directory there does.
    pub(super) fn take(own: &OwnDir, root: &Root, path: &RelPath, count: &HiddenCount) -> io::Result<Self> {
        let (parent, place) = path.split_last().ok_or(Errno::BUSY)?;
        let parent = root.dir(&parent)?;
        if count.0.fetch_add(1, Relaxed) >= MAX_HIDDEN {
            count.0.fetch_sub(1, Relaxed);
            return Err(Errno::MFILE.into());
        }
        let name = own.fresh_name();
        let taken = rustix::fs::renameat(&parent, place, own.staging(), &name)
            .map_err(io::Error::from)
            .and_then(|()| open_child(own.staging(), name.as_bytes(), OFlags::PATH));
        match taken {
            Ok(fd) => Ok(Self { fd, name }),
            Err(error) => {
                count.0.fetch_sub(1, Relaxed);
                // It may be that it was not moved at all.
                let _ = rustix::fs::renameat(own.staging(), &name, &parent, place);
                Err(error)
            }
        }
    }

    /// Moves it back to `path`, with all that is in it.
    pub(super) fn show(
        &self,
        own: &OwnDir,
        root: &Root,
        path: &RelPath,
        count: &HiddenCount,
    ) -> io::Result<()> {
        count.0.fetch_sub(1, Relaxed);
        let (parent, place) = path.split_last().ok_or(Errno::BUSY)?;
        Ok(rustix::fs::renameat(own.staging(), &self.name, root.dir(&parent)?, place)?)
    }

    /// To work in.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The name of a file in a hidden directory, which goes with this unless the file was completed.
#[derive(Debug)]
pub(super) struct Inside {
    dir: Arc<HiddenDir>,
    name: Box<[u8]>,
    stays: AtomicBool,
}

impl Inside {
    /// Makes the file.
    pub(super) fn create(dir: &Arc<HiddenDir>, name: &[u8], mode: Mode) -> io::Result<(OwnedFd, Self)> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(dir.fd(), name, flags, mode)?;
        Ok((fd, Self { dir: Arc::clone(dir), name: name.into(), stays: AtomicBool::new(false) }))
    }

    /// Leaves the file where it is.
    pub(super) fn keep(&self) {
        self.stays.store(true, Relaxed);
    }

    /// Removes the file.
    pub(super) fn remove(&self) {
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
    use crate::apply::Staged;

    fn own(dir: &Path) -> (Root, OwnDir) {
        let root = Root::open(dir).unwrap();
        let own = OwnDir::open(&root, dir, None).unwrap();
        (root, own)
    }

    #[test]
    fn a_directory_comes_back_with_the_files_that_were_completed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, own) = own(dir.path());
        let (path, count) = (RelPath::parse(b"new").unwrap(), HiddenCount::default());
        fs::create_dir(dir.path().join("new")).unwrap();
        let hidden = Arc::new(HiddenDir::take(&own, &root, &path, &count).unwrap());
        assert!(!dir.path().join("new").exists());
        for (name, completed) in [(b"a", true), (b"b", false), (b"c", true)] {
            let staged = Staged::inside(&hidden, name, 0o640).unwrap();
            staged.write_at(name, 0).unwrap();
            if completed {
                staged.publish(&own, hidden.fd(), name).unwrap();
            }
        }
        let given_up = Staged::inside(&hidden, b"d", 0o640).unwrap();
        given_up.unlink(&own);
        let again = Staged::inside(&hidden, b"d", 0o640).unwrap();
        again.publish(&own, hidden.fd(), b"d").unwrap();
        drop((given_up, again));
        hidden.show(&own, &root, &path, &count).unwrap();
        let mut names: Vec<_> =
            fs::read_dir(dir.path().join("new")).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a", "c", "d"]);
    }

    #[test]
    fn no_more_than_a_few_are_held_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (root, own) = own(dir.path());
        let count = HiddenCount::default();
        let path = |number: u32| RelPath::parse(number.to_string().as_bytes()).unwrap();
        (0..=MAX_HIDDEN).for_each(|number| fs::create_dir(dir.path().join(number.to_string())).unwrap());
        let take = |number| HiddenDir::take(&own, &root, &path(number), &count);
        let held: Vec<_> = (0..MAX_HIDDEN).map(|number| take(number).unwrap()).collect();
        assert!(take(MAX_HIDDEN).is_err());
        assert!(dir.path().join(MAX_HIDDEN.to_string()).exists());
        held[0].show(&own, &root, &path(0), &count).unwrap();
        take(MAX_HIDDEN).unwrap();
    }
}
