//! The only place that removes old versions of the destination's entries: every call that replaces, deletes or rewrites
//! an entry goes through [`Retire`].

use std::{
    fmt::Debug,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::Arc,
};

use parking_lot::MutexGuard;
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, RenameFlags},
    io::Errno,
};

use crate::{
    destination::case_folding::CaseFolding,
    entry::Time,
    measure::monitor::Monitor,
    path::RelPath,
    sys::stat::{Identity, changed, modified},
};

/// An entry by its name in an open directory.
#[derive(Debug, Clone, Copy)]
pub struct EntryAt<'a> {
    pub(super) dir: BorrowedFd<'a>,
    pub(super) name: &'a [u8],
    /// The directory's path in the destination, and the monitor that can stop a copy; `None` in staging, which has no
    /// old versions.
    place: Option<(&'a RelPath, &'a Monitor)>,
    pub(super) is_new: bool,
}

impl<'a> EntryAt<'a> {
    /// Names an entry of the destination's directory at `path`, which is open as `dir`.
    pub fn new(dir: BorrowedFd<'a>, path: &'a RelPath, name: &'a [u8], monitor: &'a Monitor) -> Self {
        Self { dir, name, place: Some((path, monitor)), is_new: false }
    }

    /// Notes whether no entry had the name when the plan was made.
    pub fn planned_as_new(self, is_new: bool) -> Self {
        Self { is_new, ..self }
    }

    /// Names an entry of a directory that only this run uses.
    pub fn staged(dir: BorrowedFd<'a>, name: &'a [u8]) -> Self {
        Self { dir, name, place: None, is_new: false }
    }

    /// Returns the entry's path, for messages; its directory's if the path would be too long.
    pub fn path(&self) -> RelPath {
        let dir = self.place.map(|(path, _)| path.clone()).unwrap_or_default();
        dir.join(self.name).unwrap_or(dir)
    }

    /// Returns whether the run of this entry was told to stop.
    pub(super) fn is_stopped(self) -> bool {
        self.place.is_some_and(|(_, monitor)| monitor.cancelled())
    }

    pub(super) fn rename(self, to: EntryAt<'_>) -> Result<(), Errno> {
        rustix::fs::renameat(self.dir, self.name, to.dir, to.name)
    }

    fn rename_with(self, to: EntryAt<'_>, flags: RenameFlags) -> Result<(), Errno> {
        rustix::fs::renameat_with(self.dir, self.name, to.dir, to.name, flags)
    }

    /// Removes a name that only this run uses, such as one in staging.
    pub(super) fn unlink(self) -> io::Result<()> {
        gone_is_fine(rustix::fs::unlinkat(self.dir, self.name, AtFlags::empty()))
    }
}

/// Keeps old versions of the destination's entries.
pub(crate) trait OldVersions: Debug + Send + Sync {
    /// Gives an entry that is about to be removed, and is not a folder, a name in the backup folder; `path` is that of
    /// its directory. `None` if there is no entry.
    fn save(&self, at: EntryAt<'_>, path: &RelPath, monitor: &Monitor) -> io::Result<Option<SavedEntry>>;

    /// Returns whether the backup folder has a version of an entry, as far as it can be looked into.
    fn has(&self, at: EntryAt<'_>, path: &RelPath) -> bool;

    /// Copies a file that is about to be written in place, durably.
    fn save_copy(&self, at: EntryAt<'_>, path: &RelPath, monitor: &Monitor) -> io::Result<()>;

    /// Makes a folder in the backup folder for an empty one that is about to be removed.
    fn save_folder(&self, at: EntryAt<'_>, path: &RelPath) -> io::Result<()>;
}

/// An old version that has a name in the backup folder.
#[derive(Debug)]
pub(crate) struct SavedEntry {
    pub folder: OwnedFd,
    pub name: Box<[u8]>,
    pub identity: Identity,
    /// Whether it was moved, so that it has lost its own name.
    pub was_moved: bool,
}

impl SavedEntry {
    /// Removes the saved version again, because the entry at `at` stays after all: as two names of one file they would
    /// change together.
    fn undo(&self, at: EntryAt<'_>) {
        let saved = EntryAt::staged(self.folder.as_fd(), &self.name);
        let there = rustix::fs::statat(saved.dir, saved.name, AtFlags::SYMLINK_NOFOLLOW);
        if there.is_ok_and(|stat| Identity::of(&stat) == self.identity) {
            let undone =
                if self.was_moved { saved.rename(at).map_err(io::Error::from) } else { saved.unlink() };
            if let Err(error) = undone {
                tracing::warn!(%error, "an entry that stays is also in the backup folder");
            }
        }
    }
}

/// The only way to remove old versions of entries. Saves them first if they are kept.
#[derive(Debug, Default)]
pub(crate) struct Retire {
    pub kept_by: Option<Arc<dyn OldVersions>>,
    /// The change time from which on files may be those of a run that was cut off.
    pub doubt: Option<Time>,
    pub case: CaseFolding,
}

impl Retire {
    /// Renames an entry that is not a folder over the one at `to`, if there is one. `is_large` says that freeing the
    /// old version may take long; it is then freed in the background.
    pub(super) fn rename_over(&self, from: EntryAt<'_>, to: EntryAt<'_>, is_large: bool) -> io::Result<()> {
        let _turn = self.turn(to)?;
        let replaced = is_large.then(|| hold_to_free(to)).flatten();
        if self.is_no_old_version(from, to) {
            from.rename(to)?;
        } else {
            self.saving(to, || Ok(from.rename(to)?))?;
        }
        if let Some(replaced) = replaced {
            let_go(replaced);
        }
        Ok(())
    }

    /// Checks, before an entry gets its name, that it replaces none whose name differs in case.
    pub(super) fn turn(&self, to: EntryAt<'_>) -> io::Result<Option<MutexGuard<'_, ()>>> {
        if to.is_new { self.case.turn(to.dir, to.name) } else { Ok(None) }
    }

    /// Returns whether the file at `to` is the new version already, which a run that was cut off put there after it had
    /// saved the old one. Its content is in doubt.
    fn is_no_old_version(&self, from: EntryAt<'_>, to: EntryAt<'_>) -> bool {
        let (Some(since), Some(keeper), Some((path, _))) = (self.doubt, &self.kept_by, to.place) else {
            return false;
        };
        let stat = |at: EntryAt<'_>| rustix::fs::statat(at.dir, at.name, AtFlags::SYMLINK_NOFOLLOW);
        let (Ok(new), Ok(there)) = (stat(from), stat(to)) else { return false };
        let is_same = changed(&there) >= since
            && FileType::from_raw_mode(there.st_mode).is_file()
            && (new.st_size, modified(&new)) == (there.st_size, modified(&there));
        is_same && keeper.has(to, path)
    }

    /// Moves the folder `from` to `to`, and removes the entry there, which is not a folder. Exchanges the two names if
    /// the file system can, so that `to` always exists.
    pub(super) fn put_folder(&self, from: EntryAt<'_>, to: EntryAt<'_>) -> io::Result<()> {
        self.saving(to, || match from.rename_with(to, RenameFlags::EXCHANGE) {
            Ok(()) => from.unlink().inspect_err(|_| {
                let _ = from.rename_with(to, RenameFlags::EXCHANGE);
            }),
            Err(Errno::NOENT) => Ok(from.rename_with(to, RenameFlags::NOREPLACE)?),
            // Some FUSE file systems ignore the flag and rename.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTDIR) => swap_without_exchange(from, to),
            Err(error) => Err(error.into()),
        })
    }

    /// Moves a folder to a name that no entry has.
    pub(super) fn move_folder(&self, from: EntryAt<'_>, to: EntryAt<'_>) -> io::Result<()> {
        let _turn = self.case.turn(to.dir, to.name)?;
        match from.rename_with(to, RenameFlags::NOREPLACE) {
            // Not every file system has the flag; no entry had the name when the plan was made.
            Err(Errno::INVAL | Errno::NOSYS) => Ok(from.rename(to)?),
            result => Ok(result?),
        }
    }

    /// Removes an entry that is not a folder; succeeds if it is gone already.
    pub(super) fn remove_file(&self, at: EntryAt<'_>) -> io::Result<()> {
        self.saving(at, || at.unlink())
    }

    /// Removes an empty folder; succeeds if it is gone already.
    pub(super) fn remove_dir(&self, at: EntryAt<'_>) -> io::Result<()> {
        if let Some((keeper, (path, _))) = self.kept_by.as_ref().zip(at.place) {
            keeper.save_folder(at, path)?;
        }
        gone_is_fine(rustix::fs::unlinkat(at.dir, at.name, AtFlags::REMOVEDIR))
    }

    /// Saves a copy of a file, if old versions are kept, and calls `write`, which changes it in place.
    pub(super) fn rewrite(&self, at: EntryAt<'_>, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if let Some((keeper, (path, monitor))) = self.kept_by.as_ref().zip(at.place) {
            keeper.save_copy(at, path, monitor)?;
        }
        write()
    }

    /// Saves the old version of an entry, if old versions are kept, and calls `take`, which removes it from its place.
    /// Undoes the saving if that fails.
    fn saving(&self, at: EntryAt<'_>, take: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let Some((keeper, (path, monitor))) = self.kept_by.as_ref().zip(at.place) else { return take() };
        let saved = keeper.save(at, path, monitor)?;
        take().inspect_err(|_| saved.iter().for_each(|saved| saved.undo(at)))
    }
}

/// Moves the folder `from` to `to` where names cannot be exchanged: the entry there is renamed first, so that it can be
/// put back.
fn swap_without_exchange(from: EntryAt<'_>, to: EntryAt<'_>) -> io::Result<()> {
    let name = [from.name, b"-old"].concat();
    let old = EntryAt::staged(from.dir, &name);
    match to.rename(old) {
        Err(Errno::NOENT) => {}
        result => result?,
    }
    from.rename(to).inspect_err(|_| {
        let _ = old.rename(to);
    })?;
    old.unlink()
}

/// Opens an entry, so that removing its last name does not free it yet.
fn hold_to_free(at: EntryAt<'_>) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at.dir, at.name, flags, Mode::empty()).ok()
}

fn gone_is_fine(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        result => Ok(result?),
    }
}

/// Drops, in the background, a value that may hold the last reference to a large file.
pub(crate) fn let_go<T: Send + 'static>(held: T) {
    // Without a thread it is dropped here.
    let _ = std::thread::Builder::new().spawn(move || drop(held));
}
