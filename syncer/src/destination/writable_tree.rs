//! A destination that a run has locked and may write to.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use contract::{VolumeId, human::plural};
use rustix::fs::{AtFlags, OFlags};

use crate::{
    attrs::Attrs,
    destination::{
        backup_dir::BackupDir,
        destination_error::ApplyError,
        first_error::FirstError,
        metadata::{
            set_metadata::{self, Since},
            set_xattrs::LostAttrs,
            settings::Settings,
            time_precision,
        },
        remove_old_versions::{EntryAt, Retire},
        special_entries,
        staging::staged_dir::StagedDirCount,
        state::{state_dir::StateDir, volume_id},
    },
    entry::{Entry, Meta, Owner, Time},
    path::RelPath,
    sys::root::{Root, open_child},
};

/// A destination that is open for one run.
#[derive(Debug)]
pub struct Destination {
    pub(super) path: PathBuf,
    pub(super) root: Root,
    pub(super) state: StateDir,
    pub(super) settings: Settings,
    /// Removes old versions of entries.
    pub(super) retire: Retire,
    /// The folder that old versions go to, if they are kept.
    pub(super) backup: Option<Arc<BackupDir>>,
    /// The volume's time when it was opened, before it was scanned.
    pub(super) opened: Time,
    pub(super) owners_not_kept: AtomicU64,
    pub(super) times_not_kept: AtomicU64,
    pub(super) lost_attrs: LostAttrs,
    /// Whether an entry of the destination may have extended attributes that the source's does not have.
    pub(super) has_attrs: AtomicBool,
    /// The directories that are out of sight.
    pub(super) hidden: StagedDirCount,
    pub(super) not_durable: FirstError,
}

impl Destination {
    /// Begins with a locked destination.
    pub(super) fn new(
        root: Root,
        path: PathBuf,
        state: StateDir,
        settings: Settings,
        lost_attrs: LostAttrs,
    ) -> Self {
        Self {
            opened: state.opened(),
            path,
            root,
            state,
            settings,
            retire: Retire::default(),
            backup: None,
            owners_not_kept: AtomicU64::new(0),
            times_not_kept: AtomicU64::new(0),
            lost_attrs,
            has_attrs: AtomicBool::new(false),
            hidden: StagedDirCount::default(),
            not_durable: FirstError::default(),
        }
    }

    /// Keeps old versions of entries in the `backup` folder from now on.
    pub fn keep_old(&mut self, backup: BackupDir) {
        let backup = Arc::new(backup);
        self.retire.kept_by = Some(Arc::clone(&backup) as _);
        self.retire.doubt = self.state.dirty().since();
        self.backup = Some(backup);
    }

    /// Returns the folder that old versions go to.
    pub fn backup(&self) -> Option<&BackupDir> {
        self.backup.as_deref()
    }

    /// Returns the time when it was opened, by its file system's clock, before it was scanned.
    pub fn opened(&self) -> Time {
        self.opened
    }

    /// Returns the folder that Volferry keeps on the volume.
    pub fn state(&self) -> &StateDir {
        &self.state
    }

    /// Returns notes for the report about the state in which the destination was found.
    pub fn notes(&self) -> &[String] {
        self.state.notes()
    }

    /// Checks that the destination is still this run's. Every method that changes something checks for itself; this
    /// stops a run that changes nothing more.
    ///
    /// # Errors
    /// [`ApplyError::TakenOver`]; [`ApplyError::Own`] when the stamp cannot be read.
    pub fn still_held(&self) -> Result<(), ApplyError> {
        self.state.check().map_err(|source| {
            if self.state.is_lost() {
                ApplyError::TakenOver { path: self.path.clone() }
            } else {
                ApplyError::Own { path: self.path.clone(), source }
            }
        })
    }

    /// Notes the source that the copy is of from now on.
    pub fn note_source(&self, id: VolumeId) -> Result<(), ApplyError> {
        let noted = volume_id::note_source(self.state.dir(), id);
        noted.map_err(|source| ApplyError::Own { path: self.path.clone(), source })
    }

    /// Records that a run begins to write to it, after all guards have let the run pass.
    pub fn adopt(&self) -> Result<(), ApplyError> {
        self.state.adopt().map_err(|source| ApplyError::Own { path: self.path.clone(), source })
    }

    /// Returns the root, for scanning.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Returns which metadata is set.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Records that the scan has found extended attributes. Until then, they are only looked for where some are wanted.
    pub fn found_attrs(&self) {
        self.has_attrs.store(true, Relaxed);
    }

    /// Opens a directory to work in.
    pub fn dir(&self, path: &RelPath) -> io::Result<OwnedFd> {
        self.root.dir(path)
    }

    /// Opens a directory to work in, after checking that it is the planned one, because another user may have replaced
    /// it: it has to have this `inode` number, or without a number, as for a new one, belong to this process's user.
    pub fn known_dir(&self, path: &RelPath, inode: Option<u64>) -> io::Result<OwnedFd> {
        let dir = self.root.dir(path)?;
        if inode.is_none() && self.retire.case.folds() {
            self.check_new_path(path)?;
        }
        self.check_known(dir.as_fd(), inode).map(|_| dir)
    }

    /// Checks that each part of the path of a new folder is listed as it is.
    fn check_new_path(&self, path: &RelPath) -> io::Result<()> {
        let mut at = path.clone();
        while let Some((parent, name)) = at.split_last() {
            self.retire.case.check_new(self.root.dir(&parent)?.as_fd(), name)?;
            at = parent;
        }
        Ok(())
    }

    /// Checks an open directory as [`Self::known_dir`] does. Returns its inode number.
    pub fn check_known(&self, dir: BorrowedFd<'_>, inode: Option<u64>) -> io::Result<u64> {
        let stat = rustix::fs::fstat(dir)?;
        if inode.map_or(stat.st_uid == self.state.user(), |inode| stat.st_ino == inode) {
            Ok(stat.st_ino)
        } else {
            Err(io::Error::other("another process put another folder in its place during the run"))
        }
    }

    /// Makes a symbolic link, a pipe or a device, replacing the entry that has its name.
    pub fn make_node(&self, at: EntryAt<'_>, entry: &Entry<'_>) -> io::Result<()> {
        self.state.check()?;
        special_entries::make(&self.state, &self.retire, at, entry, |at, staged| {
            self.set_meta(at, staged, None)
        })
    }

    /// Makes the entry a hard link to `target` in `target_dir`, replacing the entry that has its name. A symbolic link
    /// is not followed. Where owners are kept, the target has to have this `owner`: another user who can write to its
    /// directory could have put a file of theirs in its place.
    pub fn link(
        &self,
        target_dir: BorrowedFd<'_>,
        target: &[u8],
        owner: Option<Owner>,
        at: EntryAt<'_>,
    ) -> io::Result<()> {
        self.state.check()?;
        let owner = owner.filter(|_| self.settings.owners);
        special_entries::link(&self.state, &self.retire, target_dir, target, owner, at)
    }

    /// Returns whether the metadata of a file can only be set together with new content: it would get another owner,
    /// set-id bits or capabilities, and has changed, or got its name, since this run opened the destination. A file
    /// with several names keeps its content; setting its metadata then fails.
    pub fn needs_content(&self, dir: BorrowedFd<'_>, entry: &Entry<'_>) -> bool {
        let held = set_metadata::hold(dir, entry.name).and_then(|held| Ok(rustix::fs::fstat(held)?));
        held.is_ok_and(|now| {
            now.st_nlink == 1 && set_metadata::is_unseen(self.settings, entry, &now, self.opened)
        })
    }

    /// Sets the metadata of an existing entry. A file has to have the time that was `seen`.
    pub fn set_meta(&self, dir: BorrowedFd<'_>, entry: &Entry<'_>, seen: Option<Time>) -> io::Result<()> {
        self.state.check()?;
        self.count_not_kept(&entry.meta, entry.attrs);
        let since = Since { user: self.state.user(), seen, opened: self.opened };
        set_metadata::set_entry(self.settings, since, dir, entry, self.sets_attrs(entry.attrs))
    }

    pub(super) fn sets_attrs(&self, wanted: Attrs<'_>) -> bool {
        !self.settings.attrs.is_empty() && (!wanted.is_empty() || self.has_attrs.load(Relaxed))
    }

    /// Returns the inode number of an entry that was staged aside.
    pub fn inode_of_aside(&self, aside: EntryAt<'_>) -> io::Result<u64> {
        Ok(rustix::fs::statat(aside.dir, aside.name, AtFlags::SYMLINK_NOFOLLOW)?.st_ino)
    }

    /// Moves an entry that was staged `aside` to its place. Fails if the entry does not have this inode number.
    pub fn publish_aside(&self, aside: EntryAt<'_>, inode: u64, at: EntryAt<'_>) -> io::Result<()> {
        self.state.check()?;
        if self.inode_of_aside(aside)? != inode {
            return Err(io::Error::other("another process replaced it before it was published"));
        }
        self.retire.rename_over(aside, at, false)?;
        if rustix::fs::statat(at.dir, at.name, AtFlags::SYMLINK_NOFOLLOW)?.st_ino == inode {
            Ok(())
        } else {
            Err(io::Error::other("another process put another entry in its place"))
        }
    }

    /// Removes an entry that was staged aside and is not published.
    pub fn drop_entry_aside(&self, aside: EntryAt<'_>) {
        let _ = aside.unlink();
    }

    /// Returns a sentence for each kind of metadata that entries did not keep because this process may not set it.
    pub fn not_kept(&self) -> Vec<String> {
        let owners = (self.owners_not_kept.load(Relaxed), "owners: only root may give files away");
        let here =
            [owners].into_iter().chain(self.lost_attrs.counted()).map(|lost| (lost, "entry", "entries"));
        let of_backup = self.backup.iter().flat_map(|backup| backup.lost_attrs.counted());
        let of_backup = of_backup
            .map(|lost| (lost, "old version in the backup folder", "old versions in the backup folder"));
        let kinds = here.chain(of_backup).filter(|((n, _), ..)| *n > 0);
        let sentence = |((n, kind), one, many): ((u64, &str), &str, &str)| {
            let entries =
                plural(n, &format!("{one} did not keep its"), &format!("{many} did not keep their"));
            format!("{entries} {kind}")
        };
        let times = self.times_not_kept.load(Relaxed);
        let of_times = time_precision::not_kept(self.settings.kept_times);
        let of_times = (times > 0).then(|| sentence(((times, &of_times), "entry", "entries")));
        kinds.map(sentence).chain(of_times).collect()
    }

    pub(super) fn count_not_kept(&self, wanted: &Meta, attrs: Attrs<'_>) {
        let Settings { count_owners, user, times, kept_times, .. } = self.settings;
        if count_owners && wanted.owner != user {
            self.owners_not_kept.fetch_add(1, Relaxed);
        }
        if times && kept_times.kept(wanted.mtime) != wanted.mtime {
            self.times_not_kept.fetch_add(1, Relaxed);
        }
        self.lost_attrs.count(attrs);
    }

    /// Removes one entry that is not a directory.
    pub fn remove_file(&self, at: EntryAt<'_>) -> io::Result<()> {
        self.state.check()?;
        self.retire.remove_file(at)
    }

    /// Ends a run that was completed: empties staging and releases the lock. Without this call, partial files stay in
    /// staging.
    pub fn close(self) {
        self.state.end();
    }
}

/// Opens a directory to work in.
pub(crate) fn open_dir_in(at: EntryAt<'_>) -> io::Result<OwnedFd> {
    open_child(at.dir, at.name, OFlags::PATH)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, FileTimes},
        os::unix::fs::{MetadataExt as _, PermissionsExt as _},
        path::Path,
        time::UNIX_EPOCH,
    };

    use super::*;
    use crate::entry::Kind;

    /// Makes a file of this process's user that differs from others only in its inode and change time.
    fn put(path: &Path) {
        fs::write(path, "content").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_times(FileTimes::new().set_modified(UNIX_EPOCH)).unwrap();
    }

    /// Waits until a change of the folder gets a later change time than the file's.
    fn await_tick(dir: &Path, file: &Path) {
        let changed = |path: &Path| fs::metadata(path).map(|meta| (meta.ctime(), meta.ctime_nsec())).unwrap();
        while changed(dir) <= changed(file) {
            std::thread::yield_now();
            fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
        }
    }

    #[test]
    fn a_file_that_came_after_the_volume_was_opened_gets_no_set_id_bits_without_content() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        ["file", "other", "linked"].into_iter().for_each(|name| put(&dir.path().join(name)));
        await_tick(dir.path(), &dir.path().join("linked"));
        let destination = Destination::of_test(dir.path());
        let root = destination.root().as_fd();
        let meta = Meta { mode: 0o4755, mtime: Time::default(), owner: destination.settings().user };
        let entry = Entry {
            name: b"file",
            kind: Kind::File { size: 7 },
            meta,
            attrs: crate::attrs::Attrs::default(),
        };
        let set = || destination.set_meta(root, &entry, Some(Time::default()));
        let mode = || fs::metadata(&file).unwrap().mode() & 0o7777;

        assert!(!destination.needs_content(root, &entry));
        set().unwrap();
        assert_eq!(mode(), 0o4755);
        fs::rename(dir.path().join("other"), &file).unwrap();
        assert!(destination.needs_content(root, &entry));
        set().unwrap_err();
        assert_eq!(mode(), 0o755, "it was moved to its name");
        fs::remove_file(&file).unwrap();
        fs::hard_link(dir.path().join("linked"), &file).unwrap();
        assert!(!destination.needs_content(root, &entry), "new content would part it from its other name");
        set().unwrap_err();
        assert_eq!(mode(), 0o755, "it was linked to its name");
    }

    #[test]
    fn what_was_exchanged_in_staging_is_not_published() {
        let dir = tempfile::tempdir().unwrap();
        let destination = Destination::of_test(dir.path());
        let root = destination.root().as_fd();
        let staging = dir.path().join(".volferry/staging");
        put(&staging.join("aside"));
        let aside = destination.state().staging();
        let aside = EntryAt::staged(aside, b"aside");
        let inode = destination.inode_of_aside(aside).unwrap();
        put(&staging.join("theirs"));
        fs::rename(staging.join("theirs"), staging.join("aside")).unwrap();
        destination.publish_aside(aside, inode, EntryAt::staged(root, b"name")).unwrap_err();
        assert!(!dir.path().join("name").exists());
        let inode = destination.inode_of_aside(aside).unwrap();
        destination.publish_aside(aside, inode, EntryAt::staged(root, b"name")).unwrap();
        assert!(dir.path().join("name").exists());
    }
}
