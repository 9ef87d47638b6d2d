//! Metadata, always in the order owner, attributes, mode, time: a change of owner clears set-user-ID bits and capabilities, an access
//! control list changes the mode, and every change of content or name moves times.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid},
    io::Errno,
};

use super::{Settings, attrs, redo::Redo};
use crate::{
    attrs::Attrs,
    entry::{Entry, Kind, Meta, Owner, Time},
    path::RelPath,
    root::Root,
};

/// `CAP_CHOWN` in the capability masks of `/proc/self/status` (`linux/capability.h`).
const CAP_CHOWN_BIT: u32 = 0;

/// `CAP_SYS_ADMIN` there.
pub(super) const CAP_SYS_ADMIN_BIT: u32 = 21;

/// The mode that a new file gets where permissions are not kept.
const DEFAULT_FILE_MODE: u16 = 0o644;

/// Whether this process may give files to other users.
pub fn may_change_owners() -> bool {
    has_capability(CAP_CHOWN_BIT)
}

/// Whether this process has the capability of this number.
pub(super) fn has_capability(bit: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.map_or_else(|| rustix::process::geteuid().is_root(), |mask| mask >> bit & 1 == 1)
}

/// Sets the metadata of an open file that nobody sees yet. `inherits` is whether it may have attributes of its directory's.
pub(super) fn set_open_file(
    settings: Settings,
    file: BorrowedFd<'_>,
    wanted: &Meta,
    wanted_attrs: Attrs<'_>,
    inherits: bool,
) -> io::Result<()> {
    // Looking costs less than setting, and most files are made as they shall be.
    let made = rustix::fs::fstat(file)?;
    let is_anothers = settings.owners && wanted.owner != Owner { uid: made.st_uid, gid: made.st_gid };
    if is_anothers {
        let (user, group) = ids(wanted.owner);
        rustix::fs::fchown(file, user, group)?;
    }
    attrs::set_new(file, wanted_attrs, settings.attrs, inherits)?;
    let is_touched = is_anothers || inherits || !wanted_attrs.is_empty();
    if is_touched || made.st_mode & 0o7777 != u32::from(wanted.mode) {
        rustix::fs::fchmod(file, Mode::from_raw_mode(wanted.mode.into()))?;
    }
    if settings.times {
        rustix::fs::futimens(file, &times(wanted.mtime))?;
    }
    Ok(())
}

/// Sets the metadata of a file that was written in place, and that is `name` in `dir`. What writing takes away is given again.
pub(super) fn set_rewritten(
    redo: &Redo,
    file: BorrowedFd<'_>,
    dir: BorrowedFd<'_>,
    name: &[u8],
) -> io::Result<()> {
    if let Some(owner) = redo.owner {
        let (user, group) = ids(owner);
        rustix::fs::fchown(file, user, group)?;
    }
    if let Some((classes, wanted)) = &redo.attrs {
        attrs::replace(&attrs::path_of(dir, name), wanted.as_attrs(), *classes)?;
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(redo.mode.into()))?;
    if let Some(mtime) = redo.mtime {
        rustix::fs::futimens(file, &times(mtime))?;
    }
    Ok(())
}

/// Gives the owner of a file the right to read and to write it.
pub(super) fn unlock_file(root: &Root, path: &RelPath) -> io::Result<()> {
    let (dir, name) = path.split_last().ok_or(Errno::ISDIR)?;
    let dir = root.dir(&dir)?;
    let stat = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    chmod(dir.as_fd(), name, Mode::from_raw_mode(stat.st_mode & 0o7777) | Mode::RUSR | Mode::WUSR)
}

/// Sets the metadata of the entry of this name, which is not followed if it is a link; its attributes only where `with_attrs`.
pub(super) fn set_entry(
    settings: Settings,
    dir: BorrowedFd<'_>,
    entry: &Entry<'_>,
    with_attrs: bool,
) -> io::Result<()> {
    let Meta { mtime, owner, .. } = entry.meta;
    if settings.owners {
        let (user, group) = ids(owner);
        rustix::fs::chownat(dir, entry.name, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    if with_attrs {
        set_entry_attrs(settings, dir, entry)?;
    }
    // Links have no mode.
    if settings.permissions && !matches!(entry.kind, Kind::Symlink { .. }) {
        chmod(dir, entry.name, Mode::from_raw_mode(entry.meta.mode.into()))?;
    }
    if settings.times {
        rustix::fs::utimensat(dir, entry.name, &times(mtime), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

fn set_entry_attrs(settings: Settings, dir: BorrowedFd<'_>, entry: &Entry<'_>) -> io::Result<()> {
    let path = attrs::path_of(dir, entry.name);
    let set = || attrs::replace(&path, entry.attrs, settings.attrs);
    let denied = match set() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => error,
        result => return result,
    };
    if matches!(entry.kind, Kind::Symlink { .. }) {
        return Err(denied);
    }
    // Who owns a file that may not be written to may change its mode, but not its attributes.
    let stat = rustix::fs::statat(dir, entry.name, AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
    chmod(dir, entry.name, mode | Mode::RUSR | Mode::WUSR)?;
    let set = set();
    if !settings.permissions {
        chmod(dir, entry.name, mode)?;
    }
    set
}

/// The mode that a file of this name gets: what the run wants, or, where permissions are not kept, what a file that is there has.
pub(super) fn file_mode(
    settings: Settings,
    dir: BorrowedFd<'_>,
    name: &[u8],
    wanted: &Meta,
) -> io::Result<u16> {
    if settings.permissions {
        return Ok(wanted.mode);
    }
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_file() => Ok((stat.st_mode & 0o7777) as u16),
        Ok(_) | Err(Errno::NOENT) => Ok(new_file_mode(settings, wanted)),
        Err(error) => Err(error.into()),
    }
}

/// The mode that a file gets where nothing was.
pub(super) fn new_file_mode(settings: Settings, wanted: &Meta) -> u16 {
    if settings.permissions { wanted.mode } else { DEFAULT_FILE_MODE }
}

/// Sets the metadata of a directory, its attributes only where there are `wanted_attrs`. Where permissions are not kept, a mode of 0
/// leaves it the one that it has.
pub(super) fn set_dir(
    settings: Settings,
    root: &Root,
    path: &RelPath,
    wanted: &Meta,
    wanted_attrs: Option<Attrs<'_>>,
) -> io::Result<()> {
    let dir = root.dir(path)?;
    if settings.owners {
        let (user, group) = ids(wanted.owner);
        rustix::fs::chownat(&dir, c"", user, group, AtFlags::EMPTY_PATH)?;
    }
    if let Some(attrs) = wanted_attrs {
        set_dir_attrs(settings, dir.as_fd(), attrs)?;
    }
    if settings.permissions || wanted.mode != 0 {
        chmod_dir(dir.as_fd(), Mode::from_raw_mode(wanted.mode.into()))?;
    }
    if settings.times {
        touch_dir(dir.as_fd(), &times(wanted.mtime))?;
    }
    Ok(())
}

fn set_dir_attrs(settings: Settings, dir: BorrowedFd<'_>, wanted: Attrs<'_>) -> io::Result<()> {
    let path = attrs::path_of(dir, b".");
    let set = || attrs::replace(&path, wanted, settings.attrs);
    match set() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        result => return result,
    }
    let mode = Mode::from_raw_mode(rustix::fs::fstat(dir)?.st_mode & 0o7777);
    chmod_dir(dir, mode | Mode::RWXU)?;
    let set = set();
    if !settings.permissions {
        chmod_dir(dir, mode)?;
    }
    set
}

/// Gives the owner of a directory all its rights. Returns the mode that it had.
pub(super) fn unlock_dir(root: &Root, path: &RelPath) -> io::Result<u16> {
    let dir = root.dir(path)?;
    let now = Mode::from_raw_mode(rustix::fs::fstat(&dir)?.st_mode & 0o7777);
    if !now.contains(Mode::RWXU) {
        chmod_dir(dir.as_fd(), now | Mode::RWXU)?;
    }
    Ok(now.as_raw_mode() as u16)
}

/// Takes back what [`unlock_dir`] gave.
pub(super) fn lock_dir(root: &Root, path: &RelPath, mode: u16) -> io::Result<()> {
    let mode = Mode::from_raw_mode(mode.into());
    match mode.contains(Mode::RWXU) {
        true => Ok(()),
        false => chmod_dir(root.dir(path)?.as_fd(), mode),
    }
}

/// `fchmod` does not take the descriptors that directories are held by, so this goes by `.`, which needs the right to search the
/// directory, and by `/proc` where that right is what is missing.
fn chmod_dir(dir: BorrowedFd<'_>, mode: Mode) -> io::Result<()> {
    match rustix::fs::chmodat(dir, c".", mode, AtFlags::empty()) {
        Err(Errno::ACCESS) => Ok(rustix::fs::chmodat(CWD, proc_path(dir), mode, AtFlags::empty())?),
        result => Ok(result?),
    }
}

/// The same for times.
fn touch_dir(dir: BorrowedFd<'_>, times: &Timestamps) -> io::Result<()> {
    match rustix::fs::utimensat(dir, c".", times, AtFlags::empty()) {
        Err(Errno::ACCESS) => Ok(rustix::fs::utimensat(CWD, proc_path(dir), times, AtFlags::empty())?),
        result => Ok(result?),
    }
}

fn proc_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Changes a mode without following a link: by a descriptor of the entry itself, because `fchmodat` cannot refuse links on every kernel.
fn chmod(dir: BorrowedFd<'_>, name: &[u8], mode: Mode) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let entry = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    Ok(rustix::fs::chmodat(CWD, proc_path(entry.as_fd()), mode, AtFlags::empty())?)
}

fn ids(owner: Owner) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))
}

fn times(mtime: Time) -> Timestamps {
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let mtime = Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanos.into() };
    Timestamps { last_access: omit, last_modification: mtime }
}
