//! Keeps `.volferry/` private to the syncer: it is used only if it belongs to the user that this process writes as, and
//! no other user can write to it.
//!
//! A volume has other users. The owner of its root can rename and replace anything in it, and where Kubernetes applies
//! an `fsGroup`, every file becomes writable for a group at each mount. So the modes of the syncer's own files are
//! repaired, another user's folder is removed and made again where this process may do that, and anything else is
//! refused. [`Private::trusts`] remembers whether others could write; files found in such a folder are not trusted.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use contract::VolumeId;
use rustix::{
    fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat},
    io::Errno,
    process::geteuid,
};

use crate::{
    destination::{
        metadata::set_metadata,
        state::{
            made_mark,
            state_names::{self, FOLDERS},
            volume_id,
        },
    },
    path::{OWN_DIR, SNAPSHOTS},
    sys::{
        random::fill_random,
        root::{each_name, open_child},
        stat::Identity,
    },
};

/// The permission bits that let other users write.
const OTHERS_WRITE: u32 = 0o022;

/// The permission bits of all users but the owner.
const OTHERS: u32 = 0o077;

/// An open folder that belongs to this process's user.
#[derive(Debug)]
pub(crate) struct Private {
    fd: OwnedFd,
    identity: Identity,
    path: PathBuf,
    /// The user that files made on this volume belong to.
    user: u32,
    /// Others could write to it, or to the folder that it is in, when it was opened.
    was_open: bool,
    /// The file system keeps no permissions, so nothing on it can be protected from other users.
    has_no_modes: bool,
}

impl AsFd for Private {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Private {
    /// Opens `.volferry/` of the destination at `root`, and makes it where it is missing; `path` is for messages.
    ///
    /// # Errors
    /// [`NotOwn`] where the folder, or an entry of it, does not belong to this user; those of [`made_mark::check`];
    /// `WOULDBLOCK` when a run of another user works in it.
    pub(crate) fn open(root: BorrowedFd<'_>, path: &Path) -> io::Result<OpenedOwn> {
        let own_path = path.join(".volferry");
        let mut replaced = None;
        loop {
            let fd = open_or_make(root, OWN_DIR, &own_path)?;
            let stat = rustix::fs::fstat(&fd)?;
            let user = user_of(root, &stat)?;
            if stat.st_uid == user {
                let is_marked = made_mark::check(fd.as_fd(), &stat, &own_path)?;
                let dir = Self::wrap(fd, &stat, own_path, user)?;
                dir.vet(OWN_DIR)?;
                return Ok(OpenedOwn { dir, is_marked, replaced });
            }
            made_mark::check(fd.as_fd(), &stat, &own_path)
                .map_err(|_| NotOwn::anothers(&own_path, &stat, user))?;
            match take_apart(root, &fd, stat.st_uid) {
                Ok(taken) if replaced.is_none() => replaced = Some(taken),
                Err(Errno::WOULDBLOCK) => return Err(Errno::WOULDBLOCK.into()),
                _ => return Err(NotOwn::anothers(&own_path, &stat, user)),
            }
        }
    }

    /// Opens the folder `name` in any folder, and makes it where it is missing. It has to be the `user`'s; its `path`
    /// is for messages.
    pub(crate) fn adopt(parent: BorrowedFd<'_>, name: &[u8], path: &Path, user: u32) -> io::Result<Self> {
        let fd = open_or_make(parent, name, path)?;
        let stat = rustix::fs::fstat(&fd)?;
        if stat.st_uid != user {
            return Err(io::Error::other(format!(
                "it {}, and this run works as user {user}: name a folder of that user, or a new one",
                belongs(&stat)
            )));
        }
        Self::wrap(fd, &stat, path.into(), user)
    }

    /// Opens the folder `name` in this one, and makes it where it is missing.
    pub(crate) fn folder(&self, name: &[u8]) -> io::Result<Self> {
        let path = self.path.join(String::from_utf8_lossy(name).as_ref());
        let fd = open_or_make(self.as_fd(), name, &path)?;
        let stat = rustix::fs::fstat(&fd)?;
        if stat.st_uid != self.user {
            return Err(NotOwn::anothers(&path, &stat, self.user));
        }
        if !state_names::is_one_mount(self.as_fd(), fd.as_fd())? {
            let path = path.display();
            return Err(io::Error::other(format!(
                "{path} is a mount\nhint: unmount it: nothing is cleaned up there"
            )));
        }
        let folder = Self::wrap(fd, &stat, path, self.user)?;
        Ok(Self { was_open: folder.was_open || self.was_open, ..folder })
    }

    /// Removes all rights of other users to an open `folder` below this one.
    ///
    /// # Errors
    /// If it belongs to another user.
    pub(crate) fn close_inner(&self, folder: BorrowedFd<'_>) -> io::Result<()> {
        let stat = rustix::fs::fstat(folder)?;
        if stat.st_uid != self.user {
            let (is, user) = (belongs(&stat), self.user);
            return Err(io::Error::other(format!("it {is}, and this run works as user {user}")));
        }
        if stat.st_mode & OTHERS != 0 || stat.st_mode & 0o700 != 0o700 {
            close_to_others(folder, &stat, Mode::RWXU)?;
        }
        Ok(())
    }

    /// Wraps an open folder of this user, and removes all rights of other users to it.
    fn wrap(fd: OwnedFd, stat: &Stat, path: PathBuf, user: u32) -> io::Result<Self> {
        let identity = Identity::of(stat);
        let was_open = stat.st_mode & OTHERS_WRITE != 0;
        let mut folder = Self { fd, identity, path, user, was_open, has_no_modes: false };
        if stat.st_mode & OTHERS != 0 || stat.st_mode & 0o700 != 0o700 {
            close_to_others(folder.as_fd(), stat, Mode::RWXU)?;
            folder.has_no_modes = rustix::fs::fstat(&folder.fd)?.st_mode & OTHERS_WRITE != 0;
        }
        if stat.st_mode & 0o700 != 0o700 {
            // Without these rights, it may be open with `O_PATH`, which reads no names.
            folder.fd = open_child(&folder.fd, b".", OFlags::RDONLY)?;
        }
        Ok(folder)
    }

    /// Returns whether the file system keeps no permissions.
    pub(crate) fn has_no_modes(&self) -> bool {
        self.has_no_modes
    }

    /// Returns the user that files made on this volume belong to.
    pub(crate) fn user(&self) -> u32 {
        self.user
    }

    /// Removes write permissions of other users that the folder got since it was opened. Kubernetes adds them whenever
    /// it mounts the volume into another pod with an `fsGroup`.
    pub(crate) fn stay_private(&self) -> io::Result<()> {
        let stat = rustix::fs::fstat(&self.fd)?;
        if stat.st_mode & OTHERS_WRITE != 0 && !self.has_no_modes {
            close_to_others(self.as_fd(), &stat, Mode::RWXU)
        } else {
            Ok(())
        }
    }

    /// Returns whether the folder still has the `name` in `parent`.
    pub(crate) fn is_still(&self, parent: BorrowedFd<'_>, name: &[u8]) -> bool {
        let there = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
        there.is_ok_and(|stat| Identity::of(&stat) == self.identity)
    }

    /// Returns whether only this user can have written a file in the folder: it is this user's, has one name, and
    /// neither it nor the folder was writable for others.
    pub(crate) fn trusts(&self, file: &Stat) -> bool {
        !self.was_open && self.problem_of(file).is_none() && file.st_mode & OTHERS_WRITE == 0
    }

    /// Checks all entries, except for the folders of staged files and updates, which are checked where they are used.
    fn vet(&self, name: &[u8]) -> io::Result<()> {
        each_name(&self.fd, |file| match file.to_bytes() {
            folder if name == OWN_DIR && folder == state_names::SHARDS => self.folder(folder)?.vet(folder),
            folder if name == OWN_DIR && FOLDERS.contains(&folder) => Ok(()),
            folder if name == OWN_DIR && folder == SNAPSHOTS => self.folder(folder).map(drop),
            _ => self.vet_file(file),
        })
    }

    fn vet_file(&self, name: &CStr) -> io::Result<()> {
        let needs_nothing = |stat: &Stat| {
            self.problem_of(stat).is_none() && (stat.st_mode & OTHERS == 0 || self.has_no_modes)
        };
        // Nearly all files are as they should be, and need not be held open to be changed.
        if rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| needs_nothing(&stat))
        {
            return Ok(());
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            // Another process of the run has replaced or removed it.
            Err(Errno::NOENT) => return Ok(()),
            result => result?,
        };
        let stat = rustix::fs::fstat(&file)?;
        if let Some(problem) = self.problem_of(&stat).filter(|_| stat.st_nlink > 0) {
            let path = self.path.join(name.to_string_lossy().as_ref());
            return Err(io::Error::other(NotOwn { path, problem, user: self.user }));
        }
        if stat.st_mode & OTHERS != 0 && !self.has_no_modes {
            close_to_others(file.as_fd(), &stat, Mode::RUSR | Mode::WUSR)
        } else {
            Ok(())
        }
    }

    /// Describes why a file in the folder cannot be used; `None` if it can.
    fn problem_of(&self, stat: &Stat) -> Option<String> {
        match () {
            () if !FileType::from_raw_mode(stat.st_mode).is_file() => Some("is not a regular file".into()),
            () if stat.st_uid != self.user => Some(belongs(stat)),
            () if stat.st_nlink > 1 => Some(format!("has {} names (hard links)", stat.st_nlink)),
            () => None,
        }
    }
}

/// The open `.volferry/` of a destination.
pub(crate) struct OpenedOwn {
    pub(crate) dir: Private,
    /// Whether it has a valid mark.
    pub(crate) is_marked: bool,
    /// The facts that are kept about another user's folder that had its place and was removed.
    pub(crate) replaced: Option<Replaced>,
}

/// Another user's folder that was removed from the place of this one.
#[derive(Debug)]
pub(crate) struct Replaced {
    user: u32,
    /// The id that it had.
    pub(crate) volume: Option<VolumeId>,
    /// The id of the source that the copy is of.
    pub(crate) source: Option<VolumeId>,
}

impl Replaced {
    /// Returns the note about it for the report.
    pub(crate) fn note(&self) -> String {
        format!(
            "the destination's .volferry belonged to user {} and was made anew: the leftovers of an interrupted run of that user are lost",
            self.user
        )
    }
}

/// An entry in the place of Volferry's own that does not belong to this process's user.
#[derive(Debug, thiserror::Error)]
#[error(
    "{path} {problem}, and this run works as user {user}: its content cannot be trusted. Run as the user of the earlier runs again, or remove \
     it as its owner or as root: that loses the destination's id, the leftovers of an interrupted run and all snapshots, but no file of the tree"
)]
struct NotOwn {
    path: PathBuf,
    problem: String,
    user: u32,
}

impl NotOwn {
    fn anothers(path: &Path, stat: &Stat, user: u32) -> io::Error {
        io::Error::other(Self { path: path.into(), problem: belongs(stat), user })
    }
}

/// Turns an error of reading the `.volferry/` of `root` into [`NotOwn`], if the cause is that it belongs to another
/// user.
pub(crate) fn explain(root: BorrowedFd<'_>, path: &Path, error: io::Error) -> io::Error {
    let user = geteuid().as_raw();
    match rustix::fs::statat(root, OWN_DIR, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if error.kind() == io::ErrorKind::PermissionDenied && stat.st_uid != user => {
            NotOwn::anothers(&path.join(".volferry"), &stat, user)
        }
        _ => error,
    }
}

fn belongs(stat: &Stat) -> String {
    format!("belongs to user {} (mode {:04o})", stat.st_uid, stat.st_mode & 0o7777)
}

/// Opens a folder without following links, and makes it if it is missing. Also opens a folder of this user whose mode
/// forbids reading.
fn open_or_make(parent: BorrowedFd<'_>, name: &[u8], path: &Path) -> io::Result<OwnedFd> {
    let open = || open_child(parent, name, OFlags::RDONLY);
    let opened = open().or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => open(),
            Err(error) => Err(error.into()),
        },
        io::ErrorKind::PermissionDenied => unlock(parent, name, path),
        _ => Err(error),
    });
    opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NOTDIR | Errno::LOOP) => {
            let path = path.display();
            io::Error::other(format!("{path} is no folder: remove it, or rename it at both ends"))
        }
        _ => error,
    })
}

/// Opens a folder that may not be read. If it is this user's, restores the owner's rights; if it is another user's,
/// opens it with `O_PATH`, which is enough to look at its metadata.
fn unlock(parent: BorrowedFd<'_>, name: &[u8], path: &Path) -> io::Result<OwnedFd> {
    let folder = open_child(parent, name, OFlags::PATH)?;
    let stat = rustix::fs::fstat(&folder)?;
    if stat.st_uid != geteuid().as_raw() {
        return Ok(folder);
    }
    tracing::info!(path = %path.display(), "giving its owner all rights to the folder");
    close_to_others(folder.as_fd(), &stat, Mode::RWXU)?;
    open_child(parent, name, OFlags::RDONLY)
}

/// Removes all rights of an entry but its owner's. Ignores that a file system without permissions refuses this.
fn close_to_others(entry: BorrowedFd<'_>, stat: &Stat, owners: Mode) -> io::Result<()> {
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7700) | owners;
    match set_metadata::chmod_held(entry, mode) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => Ok(()),
        result => result,
    }
}

/// Returns the user that files made in `root` belong to: this process's, or the one that a server maps it to. Makes a
/// file to find out only if `found` belongs to another user.
fn user_of(root: BorrowedFd<'_>, found: &Stat) -> io::Result<u32> {
    let state = geteuid().as_raw();
    if found.st_uid == state {
        return Ok(state);
    }
    Ok(made_as(root)?.unwrap_or(state))
}

/// Makes a file in `root` to see to which user it belongs, and removes it. `None` where no file may be made.
fn made_as(root: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::openat(root, c".", flags | OFlags::TMPFILE, Mode::RUSR) {
        return Ok(Some(rustix::fs::fstat(&file)?.st_uid));
    }
    let mut random = [0; 8];
    fill_random(&mut random)?;
    let name = format!(".volferry-{:016x}", u64::from_le_bytes(random));
    let Ok(file) = rustix::fs::openat(root, &name, flags | OFlags::CREATE | OFlags::EXCL, Mode::RUSR) else {
        return Ok(None);
    };
    let stat = rustix::fs::fstat(&file);
    rustix::fs::unlinkat(root, &name, AtFlags::empty())?;
    Ok(Some(stat?.st_uid))
}

/// Removes the `.volferry/` of another `user`, which is open as `folder`, with all entries that runs make in it.
///
/// # Errors
/// `WOULDBLOCK` when a run works in it; other errors where it cannot be removed, or has entries that runs do not make.
fn take_apart(root: BorrowedFd<'_>, folder: &OwnedFd, user: u32) -> Result<Replaced, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let lock = match rustix::fs::openat(folder, state_names::LOCK, flags, Mode::empty()) {
        Ok(lock) => Some(lock),
        Err(Errno::NOENT) => None,
        Err(error) => return Err(error),
    };
    if let Some(lock) = &lock {
        rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive)?;
    }
    if rustix::fs::statat(folder, SNAPSHOTS, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(Errno::NOTEMPTY);
    }
    let volume = volume_id::read(folder.as_fd()).ok().flatten();
    let source = volume_id::source_of(folder.as_fd()).ok().flatten();
    let failed = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    for name in FOLDERS {
        match state_names::open_inside(folder, name) {
            Ok(inner) => {
                state_names::empty(&inner, |_| true).map_err(failed)?;
                rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    state_names::empty(folder, state_names::is_made_by_runs).map_err(failed)?;
    rustix::fs::unlinkat(root, OWN_DIR, AtFlags::REMOVEDIR)?;
    Ok(Replaced { user, volume, source })
}
