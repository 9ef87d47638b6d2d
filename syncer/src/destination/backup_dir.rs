//! Keeps the entries that a run replaces, rewrites or deletes in a folder of the user's choice, below the same relative
//! paths.
//!
//! The old version is saved before the entry loses its name, so a crash leaves it in one of the two places. On the
//! destination's file system it is linked, or moved where there are no hard links; to another file system it is copied
//! durably.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use contract::Preserve;
use parking_lot::{Mutex, MutexGuard};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
    process::geteuid,
};

use crate::{
    attrs::AttrsBuf,
    destination::{
        copy_bytes,
        destination_error::ApplyError,
        metadata::{
            probe_file::ProbeFile,
            set_metadata,
            set_xattrs::{self, LostAttrs},
            settings::Settings,
        },
        remove_old_versions::{EntryAt, OldVersions, SavedEntry},
        special_entries,
        staging::staged_file::link_held,
        state::{private_dir::Private, staging_names::OWNERS},
    },
    entry::{Entry, FullMeta, Kind, Meta},
    measure::monitor::Monitor,
    path::RelPath,
    sys::{
        random::fill_random,
        read_xattrs,
        root::{Root, TreeLocation, open_child},
        stat::{Identity, meta_of},
    },
};

/// The prefix of the temporary names of entries that are not complete yet.
const NEW: &str = ".volferry-new-";

/// An open backup folder, which only this process's user may use.
#[derive(Debug)]
pub struct BackupDir {
    root: Root,
    device: u64,
    settings: Settings,
    /// Attributes that cannot be set here.
    pub(super) lost_attrs: LostAttrs,
    /// The folders that this run has made or opened in it.
    folders: Mutex<BTreeSet<RelPath>>,
    next: AtomicU64,
    /// Random, so that no name is that of what a run left which was killed.
    word: u64,
}

impl BackupDir {
    /// Opens the folder `name` in the folder at `parent`, and makes it with mode 0700 if it is missing. No link is
    /// followed.
    ///
    /// # Errors
    /// [`ApplyError::Backup`] if it cannot be made or belongs to another user.
    pub fn open(parent: &TreeLocation, name: &[u8]) -> Result<Self, ApplyError> {
        let path = parent.path().join(String::from_utf8_lossy(name).as_ref());
        let parent = Root::prepare(parent)?;
        Self::open_in(&parent, name, &path).map_err(|source| ApplyError::Backup { path, source })
    }

    fn open_in(parent: &Root, name: &[u8], path: &Path) -> io::Result<Self> {
        let folder = Private::adopt(parent.as_fd(), name, path, geteuid().as_raw())?;
        let root = Root::of_dir(open_child(&folder, b".", OFlags::RDONLY)?);
        set_xattrs::drop_default_acl(root.as_fd());
        let mut settings = Settings::resolve(&Preserve::default()).map_err(io::Error::other)?;
        let wanted = settings.attrs;
        let name = format!("{NEW}probe");
        let file = ProbeFile::make(root.as_fd(), Some(&name));
        settings.attrs = set_xattrs::probe(file.as_ref(), wanted).settable;
        drop(file);
        let lost_attrs = LostAttrs::of(wanted.without(settings.attrs));
        let device = rustix::fs::fstat(&root)?.st_dev;
        let (folders, next) = (Mutex::default(), AtomicU64::new(0));
        let mut word = [0; 8];
        fill_random(&mut word)?;
        let word = u64::from_le_bytes(word);
        Ok(Self { root, device, settings, lost_attrs, folders, next, word })
    }

    /// Sets the metadata of the folders that this run made here to that of the destination's folders, the deepest
    /// first. `of` returns the metadata of the named folders in the folder at a path.
    ///
    /// # Errors
    /// The first error, after all folders were tried.
    pub fn finish(&self, of: impl Fn(&RelPath, &[&[u8]]) -> Vec<Option<FullMeta>>) -> io::Result<()> {
        let folders = std::mem::take(&mut *self.folders());
        let mut by_parent: HashMap<RelPath, Vec<&[u8]>> = HashMap::new();
        for path in &folders {
            if let Some((parent, name)) = path.split_last() {
                by_parent.entry(parent).or_default().push(name);
            }
        }
        let mut known = HashMap::new();
        for (parent, names) in &by_parent {
            for (name, meta) in names.iter().zip(of(parent, names)) {
                known.extend(meta.map(|meta| ((parent, *name), meta)));
            }
        }
        let mut result = Ok(());
        for path in folders.iter().rev() {
            let Some((parent, name)) = path.split_last() else { continue };
            if let Some(FullMeta { meta, attrs }) = known.get(&(&parent, name)) {
                let set = self.root.dir(path).and_then(|dir| {
                    set_metadata::set_dir(self.settings, dir.as_fd(), meta, Some(attrs.as_attrs()))
                });
                result = result.and(set);
            }
        }
        result
    }

    fn folders(&self) -> MutexGuard<'_, BTreeSet<RelPath>> {
        self.folders.lock()
    }

    /// Opens the folder at `path` of the backup folder. `live` is the folder at the same path of the destination.
    fn folder(&self, live: BorrowedFd<'_>, path: &RelPath) -> io::Result<OwnedFd> {
        if path.is_root() || self.folders().contains(path) {
            return self.root.dir(path);
        }
        let mut at = self.root.dir(&RelPath::root())?;
        let (mut done, count) = (RelPath::root(), path.names().count());
        for (nth, name) in path.names().enumerate() {
            done = done.join(name).map_err(io::Error::other)?;
            let up = "../".repeat(count - nth - 1) + ".";
            at = self.enter(&at, name, &rustix::fs::statat(live, &up, AtFlags::SYMLINK_NOFOLLOW)?)?;
            self.folders().insert(done.clone());
        }
        Ok(at)
    }

    /// Opens a folder of the backup folder and gives it the metadata of the `live` one at once: after a crash, no
    /// folder may stay closed to its users if a user moves it back.
    fn enter(&self, above: &OwnedFd, name: &[u8], live: &Stat) -> io::Result<OwnedFd> {
        let dir = self.enter_new(above, name)?;
        let wanted = meta_of(live);
        set_metadata::set_dir(
            self.settings,
            dir.as_fd(),
            &Meta { mode: wanted.mode | 0o700, ..wanted },
            None,
        )?;
        Ok(dir)
    }

    /// Opens a folder of the backup folder. Makes it if it is missing, or if another kind of entry has its name.
    fn enter_new(&self, above: &OwnedFd, name: &[u8]) -> io::Result<OwnedFd> {
        match rustix::fs::mkdirat(above, name, Mode::RWXU) {
            Err(Errno::EXIST) => {}
            result => result?,
        }
        let opened = open_child(above, name, OFlags::PATH).or_else(|error| {
            // An old version of another kind, from an earlier run, is removed, as in rsync.
            match Errno::from_io_error(&error) {
                Some(Errno::NOTDIR | Errno::LOOP) => {
                    EntryAt::staged(above.as_fd(), name).unlink()?;
                    rustix::fs::mkdirat(above, name, Mode::RWXU)?;
                    open_child(above, name, OFlags::PATH)
                }
                _ => Err(error),
            }
        })?;
        set_metadata::unlock_dir(opened.as_fd())?;
        Ok(opened)
    }

    fn fresh_name(&self) -> String {
        format!("{NEW}{:016x}-{}", self.word, self.next.fetch_add(1, Relaxed))
    }

    /// Gives the held entry one more name: `name` in `folder`.
    fn link(&self, held: &OwnedFd, folder: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        match link_held(held.as_fd(), folder.as_fd(), name) {
            Err(Errno::EXIST) => {}
            result => return result,
        }
        let first = self.fresh_name();
        let first = EntryAt::staged(folder.as_fd(), first.as_bytes());
        link_held(held.as_fd(), first.dir, first.name)?;
        let named = self.rename(first, EntryAt::staged(folder.as_fd(), name));
        // Renaming one name of a file to another name of the same file does nothing and reports success.
        let _ = first.unlink();
        named
    }

    /// Moves an entry here, for file systems without hard links.
    fn take(&self, at: EntryAt<'_>, folder: OwnedFd) -> io::Result<SavedEntry> {
        self.rename(at, EntryAt::staged(folder.as_fd(), at.name))?;
        let stat = rustix::fs::statat(&folder, at.name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(SavedEntry { folder, name: at.name.into(), identity: Identity::of(&stat), was_moved: true })
    }

    /// Renames an entry, replacing what an earlier run left under the new name. Fails with `NOTEMPTY` if that is a
    /// folder with old versions of other paths.
    fn rename(&self, from: EntryAt<'_>, to: EntryAt<'_>) -> Result<(), Errno> {
        match from.rename(to) {
            Err(Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY) => {
                rustix::fs::unlinkat(to.dir, to.name, AtFlags::REMOVEDIR)?;
                from.rename(to)
            }
            result => result,
        }
    }

    /// Copies an entry here, durably. Returns the copy's identity.
    fn copy(
        &self,
        at: EntryAt<'_>,
        held: &OwnedFd,
        folder: &OwnedFd,
        monitor: &Monitor,
    ) -> io::Result<Identity> {
        let first = self.fresh_name();
        let first = EntryAt::staged(folder.as_fd(), first.as_bytes());
        let copied = self.copy_as(at, held, first, monitor);
        let copied = copied.and_then(|identity| {
            self.rename(first, EntryAt::staged(folder.as_fd(), at.name))?;
            // The descriptor of the folder is an `O_PATH` one, which cannot be synced.
            let readable = open_child(folder, b".", OFlags::RDONLY)?;
            rustix::fs::fsync(readable)?;
            Ok(identity)
        });
        copied.inspect_err(|_| drop(first.unlink()))
    }

    fn copy_as(
        &self,
        at: EntryAt<'_>,
        held: &OwnedFd,
        to: EntryAt<'_>,
        monitor: &Monitor,
    ) -> io::Result<Identity> {
        let stat = rustix::fs::fstat(held)?;
        if FileType::from_raw_mode(stat.st_mode).is_file() {
            return self.copy_file(at, &stat, to, monitor);
        }
        let target;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                target = rustix::fs::readlinkat(held, c"", Vec::new())?.into_bytes();
                Kind::Symlink { target: &target }
            }
            FileType::Fifo => Kind::Fifo,
            FileType::CharacterDevice => Kind::CharDevice { rdev: stat.st_rdev },
            FileType::BlockDevice => Kind::BlockDevice { rdev: stat.st_rdev },
            _ => return Err(io::Error::other("an entry of this kind cannot be copied to the backup folder")),
        };
        special_entries::create(to.dir, to.name, &kind)?;
        let attrs = self.attrs_of(held.as_fd())?;
        let entry = Entry { name: to.name, kind, meta: meta_of(&stat), attrs: attrs.as_attrs() };
        set_metadata::set_made(self.settings, to.dir, &entry, !entry.attrs.is_empty())?;
        Ok(Identity::of(&rustix::fs::statat(to.dir, to.name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// Returns the attributes of an entry, and counts those that its copy will not have.
    fn attrs_of(&self, entry: BorrowedFd<'_>) -> io::Result<AttrsBuf> {
        let attrs = read_xattrs::of_open(entry, self.settings.attrs | self.lost_attrs.classes())?;
        self.lost_attrs.count(attrs.as_attrs());
        Ok(attrs)
    }

    fn copy_file(
        &self,
        at: EntryAt<'_>,
        seen: &Stat,
        to: EntryAt<'_>,
        monitor: &Monitor,
    ) -> io::Result<Identity> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let from = rustix::fs::openat(at.dir, at.name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&from)?;
        if Identity::of(&stat) != Identity::of(seen) {
            return Err(io::Error::other(
                "another process replaced it while it was copied to the backup folder",
            ));
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let copy = rustix::fs::openat(to.dir, to.name, flags, OWNERS)?;
        copy_bytes::content(from.as_fd(), copy.as_fd(), stat.st_size as u64, true, monitor)?;
        let attrs = self.attrs_of(from.as_fd())?;
        set_metadata::set_open_file(self.settings, copy.as_fd(), &meta_of(&stat), attrs.as_attrs(), false)?;
        rustix::fs::fsync(&copy)?;
        Ok(Identity::of(&rustix::fs::fstat(&copy)?))
    }

    fn save_entry(
        &self,
        at: EntryAt<'_>,
        path: &RelPath,
        monitor: &Monitor,
    ) -> io::Result<Option<SavedEntry>> {
        let Some(held) = hold(at)? else { return Ok(None) };
        let stat = rustix::fs::fstat(&held)?;
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            return Err(Errno::ISDIR.into());
        }
        let folder = self.folder(at.dir, path)?;
        if stat.st_dev == self.device {
            match self.link(&held, &folder, at.name) {
                Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK | Errno::ACCESS) => {
                    return self.take(at, folder).map(Some);
                }
                Err(Errno::XDEV) => {}
                linked => {
                    linked?;
                    let identity = Identity::of(&stat);
                    return Ok(Some(SavedEntry { folder, name: at.name.into(), identity, was_moved: false }));
                }
            }
        }
        let identity = self.copy(at, &held, &folder, monitor)?;
        Ok(Some(SavedEntry { folder, name: at.name.into(), identity, was_moved: false }))
    }
}

impl OldVersions for BackupDir {
    fn save(&self, at: EntryAt<'_>, path: &RelPath, monitor: &Monitor) -> io::Result<Option<SavedEntry>> {
        self.save_entry(at, path, monitor).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NOTEMPTY) => io::Error::other(
                "the backup folder has a folder of this name, with old versions of other paths: name another folder",
            ),
            _ => error,
        })
    }

    fn has(&self, at: EntryAt<'_>, path: &RelPath) -> bool {
        let there = |folder: OwnedFd| rustix::fs::statat(folder, at.name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        self.root.dir(path).is_ok_and(there)
    }

    fn save_copy(&self, at: EntryAt<'_>, path: &RelPath, monitor: &Monitor) -> io::Result<()> {
        let Some(held) = hold(at)? else { return Ok(()) };
        let folder = self.folder(at.dir, path)?;
        self.copy(at, &held, &folder, monitor).map(drop)
    }

    fn save_folder(&self, at: EntryAt<'_>, path: &RelPath) -> io::Result<()> {
        let above = self.folder(at.dir, path)?;
        let path = path.join(at.name).map_err(io::Error::other)?;
        let Some(held) = hold(at)? else { return Ok(()) };
        self.enter(&above, at.name, &rustix::fs::fstat(&held)?)?;
        self.folders().insert(path);
        Ok(())
    }
}

/// Opens an entry without following links; `None` if there is none.
fn hold(at: EntryAt<'_>) -> io::Result<Option<OwnedFd>> {
    match set_metadata::hold(at.dir, at.name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        held => held.map(Some),
    }
}
