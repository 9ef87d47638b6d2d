//! Keeps `.volferry/` the syncer's own: it is used only if it belongs to the user that this process writes as and
//! nobody else can write to it.
//!
//! A volume has other users: the owner of its root can rename and replace anything in it, and where Kubernetes applies
//! an `fsGroup`, every file becomes writable for a group at each mount. What is the syncer's own is repaired, another
//! user's folder is made anew where this process may remove it, and anything else is refused. [`Private::trusts`]
//! remembers whether others could write, and then believes nothing that was found.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use contract::VolumeId;
use rustix::{
    fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat},
    io::Errno,
    process::geteuid,
};

use super::{epoch::fill_random, meta, state_files, volume};
use crate::{
    path::{OWN_DIR, SNAPSHOTS},
    root::open_child,
};

/// The bits that let others than the owner write.
const OTHERS_WRITE: u32 = 0o022;

/// The bits that let others than the owner do anything.
const OTHERS: u32 = 0o077;

/// The folders in `.volferry/`.
const FOLDERS: [&[u8]; 3] = [state_files::STAGING, state_files::JOURNAL, state_files::SHARDS];

/// An open folder that belongs to this process's user.
#[derive(Debug)]
pub(super) struct Private {
    fd: OwnedFd,
    identity: Identity,
    path: PathBuf,
    /// The user that files made on this volume belong to.
    user: u32,
    /// Others could write to it, or to the folder that it is in, when it was opened.
    was_open: bool,
    /// The file system keeps no permissions, so that nothing on it can be kept from others.
    has_no_modes: bool,
}

/// What tells one inode from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Of what was looked at.
    pub(super) fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

impl AsFd for Private {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Private {
    /// Opens `.volferry/` of the destination at `root`, whose `path` is for messages, and makes it where it is missing.
    /// Also returns what is to be kept of another user's folder that was in its place and was removed.
    ///
    /// # Errors
    /// [`NotOwn`] where it, or something in it, is not this user's; `WOULDBLOCK` when a run of another user works in
    /// it.
    pub(super) fn open(root: BorrowedFd<'_>, path: &Path) -> io::Result<(Self, Option<Replaced>)> {
        let own_path = path.join(".volferry");
        let mut replaced = None;
        loop {
            let (fd, stat) = open_or_make(root, OWN_DIR, &own_path)?;
            let user = user_of(root, &stat)?;
            if stat.st_uid == user {
                let private = Self::keep(fd, &stat, own_path, user)?;
                private.vet(OWN_DIR)?;
                return Ok((private, replaced));
            }
            match take_apart(root, &fd) {
                Ok(volume) if replaced.is_none() => {
                    replaced = Some(Replaced { user: stat.st_uid, volume });
                }
                Err(Errno::WOULDBLOCK) => return Err(Errno::WOULDBLOCK.into()),
                _ => return Err(NotOwn::anothers(&own_path, &stat, user)),
            }
        }
    }

    /// Opens the folder `name` in any folder, and makes it where it is missing. It has to be the `user`'s; its `path`
    /// is for messages.
    pub(super) fn adopt(parent: BorrowedFd<'_>, name: &[u8], path: &Path, user: u32) -> io::Result<Self> {
        let (fd, stat) = open_or_make(parent, name, path)?;
        if stat.st_uid != user {
            return Err(io::Error::other(format!(
                "it {}, and this run works as user {user}: name a folder of that user, or a new one",
                belongs(&stat)
            )));
        }
        Self::keep(fd, &stat, path.into(), user)
    }

    /// Opens the folder `name` in this one, and makes it where it is missing.
    pub(super) fn folder(&self, name: &[u8]) -> io::Result<Self> {
        let path = self.path.join(String::from_utf8_lossy(name).as_ref());
        let (fd, stat) = open_or_make(self.as_fd(), name, &path)?;
        if stat.st_uid != self.user {
            return Err(NotOwn::anothers(&path, &stat, self.user));
        }
        let folder = Self::keep(fd, &stat, path, self.user)?;
        Ok(Self { was_open: folder.was_open || self.was_open, ..folder })
    }

    /// Takes a folder of this user's, and takes from everybody else what they may do in it.
    fn keep(fd: OwnedFd, stat: &Stat, path: PathBuf, user: u32) -> io::Result<Self> {
        let identity = Identity::of(stat);
        let was_open = stat.st_mode & OTHERS_WRITE != 0;
        let mut folder = Self { fd, identity, path, user, was_open, has_no_modes: false };
        if stat.st_mode & OTHERS != 0 || stat.st_mode & 0o700 != 0o700 {
            close_to_others(folder.as_fd(), stat, Mode::RWXU)?;
            folder.has_no_modes = rustix::fs::fstat(&folder.fd)?.st_mode & OTHERS_WRITE != 0;
        }
        Ok(folder)
    }

    /// Whether the file system keeps no permissions.
    pub(super) fn has_no_modes(&self) -> bool {
        self.has_no_modes
    }

    /// The user that files made on this volume belong to.
    pub(super) fn user(&self) -> u32 {
        self.user
    }

    /// Closes the folder to others again, where somebody has opened it to them since: Kubernetes does that whenever it
    /// mounts the volume into another pod with an `fsGroup`.
    pub(super) fn stay_private(&self) -> io::Result<()> {
        let stat = rustix::fs::fstat(&self.fd)?;
        match stat.st_mode & OTHERS_WRITE != 0 && !self.has_no_modes {
            true => close_to_others(self.as_fd(), &stat, Mode::RWXU),
            false => Ok(()),
        }
    }

    /// Whether it still has its `name` in `parent`.
    pub(super) fn is_still(&self, parent: BorrowedFd<'_>, name: &[u8]) -> bool {
        let there = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
        there.is_ok_and(|stat| Identity::of(&stat) == self.identity)
    }

    /// Whether a file that was found in it is this user's, has no other name, and neither it nor the folder could be
    /// written to by others.
    pub(super) fn trusts(&self, file: &Stat) -> bool {
        !self.was_open && self.problem_of(file).is_none() && file.st_mode & OTHERS_WRITE == 0
    }

    /// Looks at all that is in it but folders of staged files and of updates, which are looked at where they are used.
    fn vet(&self, name: &[u8]) -> io::Result<()> {
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let file = entry.file_name();
            match file.to_bytes() {
                b"." | b".." => {}
                folder if name == OWN_DIR && folder == state_files::SHARDS => {
                    self.folder(folder)?.vet(folder)?;
                }
                folder if name == OWN_DIR && FOLDERS.contains(&folder) => {}
                folder if name == OWN_DIR && folder == SNAPSHOTS => drop(self.folder(folder)?),
                _ => self.vet_file(file)?,
            }
        }
        Ok(())
    }

    fn vet_file(&self, name: &CStr) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            // Another shard of the run has replaced or removed it.
            Err(Errno::NOENT) => return Ok(()),
            result => result?,
        };
        let stat = rustix::fs::fstat(&file)?;
        if let Some(problem) = self.problem_of(&stat).filter(|_| stat.st_nlink > 0) {
            let path = self.path.join(name.to_string_lossy().as_ref());
            return Err(io::Error::other(NotOwn { path, problem, user: self.user }));
        }
        match stat.st_mode & OTHERS != 0 && !self.has_no_modes {
            true => close_to_others(file.as_fd(), &stat, Mode::RUSR | Mode::WUSR),
            false => Ok(()),
        }
    }

    /// What is wrong with a file in it, if anything is.
    fn problem_of(&self, stat: &Stat) -> Option<String> {
        match () {
            () if !FileType::from_raw_mode(stat.st_mode).is_file() => Some("is not a regular file".into()),
            () if stat.st_uid != self.user => Some(belongs(stat)),
            () if stat.st_nlink > 1 => Some(format!("has {} names (hard links)", stat.st_nlink)),
            () => None,
        }
    }
}

/// A folder of another user's that was in the place of this one.
#[derive(Debug)]
pub(super) struct Replaced {
    user: u32,
    /// The id that it had.
    pub(super) volume: Option<VolumeId>,
}

impl Replaced {
    /// What a report says of it.
    pub(super) fn note(&self) -> String {
        format!(
            "the destination's .volferry belonged to user {} and was made anew: what an interrupted run of that user had left is lost",
            self.user
        )
    }
}

/// Something in the place of Volferry's own that is not this process's user's.
#[derive(Debug, thiserror::Error)]
#[error(
    "{path} {problem}, and this run works as user {user}: what is in it cannot be trusted. Run as the user of the earlier runs again, or remove \
     it as its owner or as root: that loses the destination's id, what an interrupted run has left and all snapshots, and no file of the tree"
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

/// The error of looking into the `.volferry/` of `root`: where it may not be looked into because it is another user's,
/// that is said.
pub(super) fn explain(root: BorrowedFd<'_>, path: &Path, error: io::Error) -> io::Error {
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

/// Opens a folder, never through a link; one that its own user may not read is still theirs to change.
fn open_or_make(parent: BorrowedFd<'_>, name: &[u8], path: &Path) -> io::Result<(OwnedFd, Stat)> {
    match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
        Err(error) if error != Errno::EXIST => return Err(error.into()),
        _ => {}
    }
    let opened = open_child(parent, name, OFlags::RDONLY).or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => unlock(parent, name, path),
        _ => Err(error),
    });
    let fd = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NOTDIR | Errno::LOOP) => {
            let path = path.display();
            io::Error::other(format!("{path} is no folder: remove it, or rename it at both ends"))
        }
        _ => error,
    })?;
    let stat = rustix::fs::fstat(&fd)?;
    Ok((fd, stat))
}

/// Opens a folder that may not be read: this user's by giving its owner's rights back, another's for looking at it
/// only.
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

/// Leaves an entry with its owner's rights alone. A file system without permissions may refuse that.
fn close_to_others(entry: BorrowedFd<'_>, stat: &Stat, owners: Mode) -> io::Result<()> {
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7700) | owners;
    match meta::chmod_held(entry, mode) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => Ok(()),
        result => result,
    }
}

/// The user that files made in `root` belong to: this process's own, or the one that a server makes of it. Asked only
/// where `found` is another's.
fn user_of(root: BorrowedFd<'_>, found: &Stat) -> io::Result<u32> {
    let state = geteuid().as_raw();
    if found.st_uid == state {
        return Ok(state);
    }
    Ok(made_as(root)?.unwrap_or(state))
}

/// Makes a file in `root` to see to whom it belongs, and removes it. `None` where none may be made.
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

/// Removes the `.volferry/` of another user, which is open as `folder`, and what runs make in it. Returns its id.
///
/// # Errors
/// `WOULDBLOCK` when a run works in it; else where it cannot be removed, or holds anything else.
fn take_apart(root: BorrowedFd<'_>, folder: &OwnedFd) -> Result<Option<VolumeId>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let lock = match rustix::fs::openat(folder, state_files::LOCK, flags, Mode::empty()) {
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
    let volume = volume::read(folder.as_fd()).ok().flatten();
    let failed = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    for name in FOLDERS {
        match open_child(folder, name, OFlags::RDONLY) {
            Ok(inner) => {
                state_files::empty(&inner, |_| true).map_err(failed)?;
                rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    state_files::empty(folder, state_files::is_made_by_runs).map_err(failed)?;
    rustix::fs::unlinkat(root, OWN_DIR, AtFlags::REMOVEDIR)?;
    Ok(volume)
}
