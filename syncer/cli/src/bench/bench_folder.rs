//! The folder that a bench makes on a volume, and how one that an earlier bench left is known.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, Timespec, Timestamps};

use super::bench_error::BenchError;
use crate::{refuse_own_folder, report_file::random_word};

/// The prefix of the names of these folders; sixteen hexadecimal digits follow.
const PREFIX: &str = ".volferry-bench-";

/// The file in such a folder that says that a bench made it: its inode number and its owner. Another user of the volume
/// can give any folder such a name, and no such file.
const MARK: &str = "made-by-bench";
const MARK_BYTES: u64 = 64;

/// The folder beside the mark that a bench works in.
const WORK: &str = "work";

/// A new folder on a volume, which is removed with all its content. The volume's root gets its old times back.
#[derive(Debug)]
pub(super) struct OwnFolder {
    path: PathBuf,
    work: PathBuf,
    volume: PathBuf,
    /// The times of the volume's root before the folder was made, and after.
    times: [Times; 2],
    is_there: bool,
    /// The folder, held for its lock, by which other benches see that this one runs.
    held: File,
}

/// The access and modification times of a folder, in seconds and nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    read: (i64, i64),
    changed: (i64, i64),
}

impl OwnFolder {
    /// Makes a folder, and removes the folders of benches that were killed.
    pub(super) fn make(volume: &Path) -> Result<Self, BenchError> {
        let failed = |source| BenchError::Folder { path: volume.into(), source };
        refuse_own_folder::check(volume).map_err(failed)?;
        let before = Times::of(volume).map_err(failed)?;
        remove_leftovers(volume)?;
        let path = volume.join(format!("{PREFIX}{}", random_word()));
        let made = fs::create_dir(&path).and_then(|()| lock(&path));
        let made = made.and_then(|held| {
            File::create_new(path.join(MARK))?.write_all(mark_of(&held)?.as_bytes())?;
            fs::create_dir(path.join(WORK))?;
            Ok((held, Times::of(volume)?))
        });
        let (held, since) = made.map_err(|source| BenchError::Make { path: path.clone(), source })?;
        let work = path.join(WORK);
        Ok(Self { path, work, volume: volume.into(), times: [before, since], is_there: true, held })
    }

    /// Returns the empty folder in it to work in.
    pub(super) fn work(&self) -> &Path {
        &self.work
    }

    /// Removes the folder. Returns a note if the root's times could not be restored.
    pub(super) fn remove(mut self) -> Result<Option<String>, BenchError> {
        self.clear()
    }

    fn clear(&mut self) -> Result<Option<String>, BenchError> {
        if !std::mem::take(&mut self.is_there) {
            return Ok(None);
        }
        let volume = |source| BenchError::Folder { path: self.volume.clone(), source };
        let [before, since] = self.times;
        let is_ours = Times::of(&self.volume).map_err(volume)?.changed == since.changed;
        remove(&self.volume, &self.path, &self.held)?;
        let note = |why: &str| format!("the times of {} are not as they were: {why}", self.volume.display());
        if !is_ours {
            return Ok(Some(note("something else changed it meanwhile")));
        }
        let put_back = rustix::fs::utimensat(CWD, &self.volume, &before.timestamps(), AtFlags::empty());
        Ok(put_back.err().map(|error| note(&error.to_string())))
    }
}

/// Removes the folder if a bench fails before it has run.
impl Drop for OwnFolder {
    fn drop(&mut self) {
        if let Err(error) = self.clear() {
            tracing::warn!(path = %self.path.display(), %error, "a bench's folder is left");
        }
    }
}

impl Times {
    fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        let read = (found.atime(), found.atime_nsec());
        Ok(Self { read, changed: (found.mtime(), found.mtime_nsec()) })
    }

    fn timestamps(self) -> Timestamps {
        let [last_access, last_modification] =
            [self.read, self.changed].map(|(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec });
        Timestamps { last_access, last_modification }
    }
}

/// Removes the folders of benches that no longer run. Other users' folders with such names stay.
///
/// # Errors
/// [`BenchError::NotMade`] for a folder of this user that has no mark of a bench.
fn remove_leftovers(volume: &Path) -> Result<(), BenchError> {
    let failed = |source| BenchError::Folder { path: volume.into(), source };
    for entry in fs::read_dir(volume).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_named = path.file_name().and_then(|name| name.to_str()).is_some_and(is_own_name);
        if !is_named || !is_own(&path) {
            continue;
        }
        let Ok(held) = lock(&path) else { continue };
        if !is_marked(&path, &held) {
            return Err(BenchError::NotMade(path));
        }
        remove(volume, &path, &held)?;
    }
    Ok(())
}

/// Removes the folder at `path`, which is open as `held`, and crosses no mount.
fn remove(volume: &Path, path: &Path, held: &File) -> Result<(), BenchError> {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let removed = File::open(volume).and_then(|volume| syncer::session::remove_folder(volume, name, held));
    removed.map_err(|source| BenchError::Remove { path: path.into(), source })
}

/// Returns the content of the mark in a folder.
fn mark_of(held: &File) -> io::Result<String> {
    let found = held.metadata()?;
    Ok(format!("{} {}\n", found.ino(), found.uid()))
}

/// Returns whether a bench made the folder.
fn is_marked(path: &Path, held: &File) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let read = || {
        let file = File::from(rustix::fs::open(path.join(MARK), flags, Mode::empty())?);
        let (mark, folder) = (file.metadata()?, held.metadata()?);
        let mut text = String::new();
        file.take(MARK_BYTES).read_to_string(&mut text)?;
        let is_own = mark.is_file() && mark.nlink() == 1 && mark.uid() == folder.uid();
        Ok::<_, io::Error>(is_own && text == mark_of(held)?)
    };
    read().unwrap_or(false)
}

fn is_own_name(name: &str) -> bool {
    let is_digit = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
    name.strip_prefix(PREFIX).is_some_and(|word| word.len() == 16 && word.bytes().all(is_digit))
}

/// Returns whether this user made the folder.
fn is_own(path: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == user)
}

fn lock(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(volume: &Path) -> Vec<String> {
        let entries = fs::read_dir(volume).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_a_killed_bench_left_goes_and_what_a_running_one_uses_stays() {
        let volume = tempfile::tempdir().unwrap();
        let mut killed = OwnFolder::make(volume.path()).unwrap();
        killed.is_there = false;
        let leftover = killed.path.clone();
        drop(killed);
        fs::create_dir_all(leftover.join("a/b")).unwrap();
        let alike = [".volferry-bench-x", ".volferry-bench-0123456789ABCDEF", "own"];
        alike.iter().for_each(|name| fs::create_dir(volume.path().join(name)).unwrap());
        let running = OwnFolder::make(volume.path()).unwrap();
        assert!(!leftover.exists());
        let second = OwnFolder::make(volume.path()).unwrap();
        assert_eq!(names(volume.path()).len(), alike.len() + 2);
        assert_eq!(second.remove().unwrap(), None);
        assert_eq!(running.remove().unwrap(), None);
        assert_eq!(names(volume.path()).len(), alike.len());
    }

    #[test]
    fn a_folder_that_no_bench_made_is_refused_by_name_and_stays() {
        let volume = tempfile::tempdir().unwrap();
        let other = volume.path().join(format!("{PREFIX}0123456789abcdef"));
        for mark in [None, Some("1 0\n")] {
            fs::create_dir_all(other.join("a/b")).unwrap();
            mark.into_iter().for_each(|mark| fs::write(other.join(MARK), mark).unwrap());
            let error = OwnFolder::make(volume.path()).unwrap_err();
            assert!(matches!(&error, BenchError::NotMade(path) if *path == other), "{error}");
            assert!(other.join("a/b").exists());
        }
    }

    #[test]
    fn a_root_gets_its_times_back_unless_something_else_changed_it() {
        let volume = tempfile::tempdir().unwrap();
        let root = File::open(volume.path()).unwrap();
        let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        root.set_modified(long_ago).unwrap();
        let modified = || fs::metadata(volume.path()).unwrap().modified().unwrap();
        assert_eq!(OwnFolder::make(volume.path()).unwrap().remove().unwrap(), None);
        assert_eq!(modified(), long_ago);
        let folder = OwnFolder::make(volume.path()).unwrap();
        root.set_modified(long_ago + std::time::Duration::from_secs(1)).unwrap();
        assert!(folder.remove().unwrap().unwrap().contains("something else changed it"));
        assert_ne!(modified(), long_ago);
    }
}
