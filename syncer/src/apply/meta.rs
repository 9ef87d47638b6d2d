//! Metadata, always in the order owner, mode, time: a change of owner clears set-user-ID bits, and every change of content or name
//! moves times.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::{
    fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid},
    io::Errno,
};

use super::Settings;
use crate::{
    entry::{Entry, Kind, Meta, Owner, Time},
    path::RelPath,
    root::Root,
};

/// `CAP_CHOWN` in the capability masks of `/proc/self/status` (`linux/capability.h`).
const CAP_CHOWN_BIT: u32 = 0;

/// The modes that things get where permissions are not kept.
const DEFAULT_FILE_MODE: u16 = 0o644;
const DEFAULT_DIR_MODE: u16 = 0o755;

/// Whether this process may give files to other users.
pub fn may_change_owners() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.map_or_else(|| rustix::process::geteuid().is_root(), |mask| mask >> CAP_CHOWN_BIT & 1 == 1)
}

/// Sets the metadata of an open file that nobody sees yet.
pub(super) fn set_open_file(settings: Settings, file: BorrowedFd<'_>, wanted: &Meta) -> io::Result<()> {
    if settings.owners {
        let (user, group) = ids(wanted.owner);
        rustix::fs::fchown(file, user, group)?;
    }
    rustix::fs::fchmod(file, mode(settings, wanted, DEFAULT_FILE_MODE))?;
    if settings.times {
        rustix::fs::futimens(file, &times(wanted.mtime))?;
    }
    Ok(())
}

/// Sets the metadata of the entry of this name, which is not followed if it is a link.
pub(super) fn set_entry(settings: Settings, dir: BorrowedFd<'_>, entry: &Entry<'_>) -> io::Result<()> {
    let Meta { mtime, owner, .. } = entry.meta;
    if settings.owners {
        let (user, group) = ids(owner);
        rustix::fs::chownat(dir, entry.name, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    // Links have no mode.
    if settings.permissions && !matches!(entry.kind, Kind::Symlink { .. }) {
        chmod(dir, entry.name, mode(settings, &entry.meta, DEFAULT_FILE_MODE))?;
    }
    if settings.times {
        rustix::fs::utimensat(dir, entry.name, &times(mtime), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

/// Sets the metadata of a directory.
pub(super) fn set_dir(settings: Settings, root: &Root, path: &RelPath, wanted: &Meta) -> io::Result<()> {
    let dir = root.dir(path)?;
    if settings.owners {
        let (user, group) = ids(wanted.owner);
        rustix::fs::chownat(&dir, c"", user, group, AtFlags::EMPTY_PATH)?;
    }
    chmod_dir(dir.as_fd(), mode(settings, wanted, DEFAULT_DIR_MODE))?;
    if settings.times {
        rustix::fs::utimensat(&dir, c".", &times(wanted.mtime), AtFlags::empty())?;
    }
    Ok(())
}

/// Gives the owner of a directory all its rights.
pub(super) fn unlock_dir(root: &Root, path: &RelPath) -> io::Result<()> {
    let dir = root.dir(path)?;
    let now = rustix::fs::fstat(&dir)?.st_mode;
    if now & 0o700 != 0o700 {
        chmod_dir(dir.as_fd(), Mode::from_raw_mode(now & 0o7777 | 0o700))?;
    }
    Ok(())
}

/// `fchmod` does not take the descriptors that directories are held by, so this goes by `.`, which needs the right to search the
/// directory, and by `/proc` where that right is what is missing.
fn chmod_dir(dir: BorrowedFd<'_>, mode: Mode) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    match rustix::fs::chmodat(dir, c".", mode, AtFlags::empty()) {
        Err(Errno::ACCESS) => {
            let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
            Ok(rustix::fs::chmodat(rustix::fs::CWD, path, mode, AtFlags::empty())?)
        }
        result => Ok(result?),
    }
}

/// Changes a mode without following a link: by a descriptor of the entry itself, because `fchmodat` cannot refuse links on every kernel.
fn chmod(dir: BorrowedFd<'_>, name: &[u8], mode: Mode) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let entry = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let path = format!("/proc/self/fd/{}", entry.as_raw_fd());
    Ok(rustix::fs::chmodat(rustix::fs::CWD, path, mode, AtFlags::empty())?)
}

fn mode(settings: Settings, wanted: &Meta, default: u16) -> Mode {
    let bits = if settings.permissions { wanted.mode } else { default };
    Mode::from_raw_mode(bits.into())
}

fn ids(owner: Owner) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))
}

fn times(mtime: Time) -> Timestamps {
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let mtime = Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanos.into() };
    Timestamps { last_access: omit, last_modification: mtime }
}
