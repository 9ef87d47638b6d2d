//! Sets metadata, always in the order owner, attributes, mode, time: a change of owner clears set-user-ID bits and
//! capabilities, an access control list changes the mode, and every change of content or name updates times.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, Uid},
    io::Errno,
};

use crate::{
    attrs::Attrs,
    destination::metadata::{
        set_xattrs::{self, put_off_too_large},
        settings::Settings,
    },
    entry::{Entry, Kind, Meta, Owner, Time},
    path::RelPath,
    sys::{
        root::Root,
        stat::{changed, meta_of, modified},
    },
};

/// Marks the mode that a directory gets back where permissions are not kept: without it, 0 stands for no mode.
pub(crate) const KEPT: u16 = 0o10000;

/// Sets the metadata of an open file that is not visible yet. With `inherits`, it may have inherited attributes from
/// its directory.
pub(crate) fn set_open_file(
    settings: Settings,
    file: BorrowedFd<'_>,
    wanted: &Meta,
    wanted_attrs: Attrs<'_>,
    inherits: bool,
) -> io::Result<()> {
    // Reading the metadata is cheaper than setting it, and most files are created with the right mode.
    let made = rustix::fs::fstat(file)?;
    let is_anothers = settings.owners && wanted.owner != Owner { uid: made.st_uid, gid: made.st_gid };
    if is_anothers {
        chown(file, wanted.owner)?;
    }
    let fits = put_off_too_large(set_xattrs::set_new(file, wanted_attrs, settings.attrs, inherits))?;
    let is_touched = is_anothers || inherits || !wanted_attrs.is_empty();
    if is_touched || made.st_mode & 0o7777 != u32::from(wanted.mode) {
        rustix::fs::fchmod(file, Mode::from_raw_mode(wanted.mode.into()))?;
    }
    if settings.times {
        rustix::fs::futimens(file, &times(wanted.mtime))?;
    }
    fits
}

/// Gives the owner of the file at `path` the right to read and write it, if it still has this inode number.
pub(crate) fn unlock_file(root: &Root, path: &RelPath, inode: u64) -> io::Result<()> {
    let (dir, name) = path.split_last().ok_or(Errno::ISDIR)?;
    let file = hold(root.dir(&dir)?.as_fd(), name)?;
    let stat = rustix::fs::fstat(&file)?;
    if stat.st_ino != inode {
        return Ok(());
    }
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
    chmod_held(file.as_fd(), mode | Mode::RUSR | Mode::WUSR)
}

/// Sets the metadata of the entry of this name, without following a link; its attributes only if `with_attrs`. Fails if
/// a file is not as the plan saw it ([`check_seen`]).
pub(crate) fn set_entry(
    settings: Settings,
    since: Since,
    dir: BorrowedFd<'_>,
    entry: &Entry<'_>,
    with_attrs: bool,
) -> io::Result<()> {
    let held = hold(dir, entry.name)?;
    check_seen(settings, since, held.as_fd(), entry)?;
    set_held(settings, held.as_fd(), entry, with_attrs)
}

fn set_held(settings: Settings, held: BorrowedFd<'_>, entry: &Entry<'_>, with_attrs: bool) -> io::Result<()> {
    if settings.owners {
        chown_held(held, entry.meta.owner)?;
    }
    let set_attrs = || if with_attrs { set_entry_attrs(settings, held, entry) } else { Ok(()) };
    let fits = put_off_too_large(set_attrs())?;
    // Links have no mode.
    if settings.permissions && !matches!(entry.kind, Kind::Symlink { .. }) {
        chmod_held(held, Mode::from_raw_mode(settings.mode_of(entry.kind, &entry.meta).into()))?;
    }
    if settings.times {
        touch_held(held, &times(entry.meta.mtime))?;
    }
    fits
}

/// Sets the metadata of a link, a pipe or a device that this process has just made in a folder of its own.
pub(crate) fn set_made(
    settings: Settings,
    dir: BorrowedFd<'_>,
    entry: &Entry<'_>,
    with_attrs: bool,
) -> io::Result<()> {
    set_held(settings, hold(dir, entry.name)?.as_fd(), entry, with_attrs)
}

/// The facts by which a file is recognised before its metadata is set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Since {
    /// The user of this process.
    pub user: u32,
    /// The file's modification time in the scan.
    pub seen: Option<Time>,
    /// When the volume was opened, by its own clock.
    pub opened: Time,
}

/// Returns whether a file would get another owner, set-id bits or capabilities, but may not be the file that the scan
/// saw. Any later change, rename or link moves a file's change time past `opened`; its directory is checked by inode.
pub(crate) fn is_unseen(settings: Settings, entry: &Entry<'_>, stat: &Stat, opened: Time) -> bool {
    let grants = matches!(entry.kind, Kind::File { .. }) && settings.grants(entry, &meta_of(stat));
    grants && changed(stat) >= opened
}

/// Checks that the held entry is the one that the plan compared: of the kind of `entry`, and if a file, of its length
/// and with the time that was `seen`. A file that gets another owner, set-id bits or capabilities also has to belong to
/// this process's user, be writable by no other user, and be as the scan saw it ([`is_unseen`]).
fn check_seen(settings: Settings, since: Since, held: BorrowedFd<'_>, entry: &Entry<'_>) -> io::Result<()> {
    let Since { user, seen, opened } = since;
    let stat = rustix::fs::fstat(held)?;
    let is_as_seen = match (entry.kind, FileType::from_raw_mode(stat.st_mode)) {
        (Kind::File { size }, FileType::RegularFile) => {
            stat.st_size as u64 == size && seen.is_none_or(|seen| is_time(seen, &stat))
        }
        (Kind::Symlink { .. }, FileType::Symlink)
        | (Kind::Fifo, FileType::Fifo)
        | (Kind::CharDevice { .. }, FileType::CharacterDevice)
        | (Kind::BlockDevice { .. }, FileType::BlockDevice) => true,
        _ => false,
    };
    let now = meta_of(&stat);
    let grants = matches!(entry.kind, Kind::File { .. }) && settings.grants(entry, &now);
    let is_trusted = !grants || !is_anothers(&now, user) && !is_unseen(settings, entry, &stat, opened);
    if is_as_seen && is_trusted {
        Ok(())
    } else {
        Err(io::Error::other("another process changed it at the destination during the run; run again"))
    }
}

/// Returns whether the listing gave the file the time `seen`, possibly marked as in doubt.
fn is_time(seen: Time, stat: &Stat) -> bool {
    seen.of_the_file() == modified(stat)
}

/// Returns whether a user other than `user` can write to a file.
fn is_anothers(file: &Meta, user: u32) -> bool {
    file.owner.uid != user || file.mode & 0o022 != 0
}

fn set_entry_attrs(settings: Settings, held: BorrowedFd<'_>, entry: &Entry<'_>) -> io::Result<()> {
    let set = || set_xattrs::replace(held, entry.attrs, settings.attrs);
    let denied = match set() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => error,
        result => return result,
    };
    if matches!(entry.kind, Kind::Symlink { .. }) {
        return Err(denied);
    }
    // The owner of a read-only file may change its mode, but not its attributes.
    let mode = Mode::from_raw_mode(rustix::fs::fstat(held)?.st_mode & 0o7777);
    chmod_held(held, mode | Mode::RUSR | Mode::WUSR)?;
    let set = set();
    if !settings.permissions {
        chmod_held(held, mode)?;
    }
    set
}

/// Returns the mode that a file of this name gets: the run's, or, where permissions are not kept, the mode of the file
/// that has the name already.
pub(crate) fn file_mode(
    settings: Settings,
    dir: BorrowedFd<'_>,
    name: &[u8],
    wanted: &Meta,
) -> io::Result<u16> {
    if settings.permissions {
        return Ok(new_file_mode(settings, wanted));
    }
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        // Set-id bits belong to the old file's owner, and a new file does not get them.
        Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_file() => Ok((stat.st_mode & 0o777) as u16),
        Ok(_) | Err(Errno::NOENT) => Ok(new_file_mode(settings, wanted)),
        Err(error) => Err(error.into()),
    }
}

/// Returns the mode of a file whose name is new.
pub(crate) fn new_file_mode(settings: Settings, wanted: &Meta) -> u16 {
    if settings.permissions {
        settings.mode_of(Kind::File { size: 0 }, wanted)
    } else {
        settings.new_file_mode
    }
}

/// Sets the metadata of a directory, its attributes only if there are `wanted_attrs`. Where permissions are not kept, a
/// wanted mode of 0 leaves the directory's mode alone.
pub(crate) fn set_dir(
    settings: Settings,
    dir: BorrowedFd<'_>,
    wanted: &Meta,
    wanted_attrs: Option<Attrs<'_>>,
) -> io::Result<()> {
    if settings.owners {
        chown_held(dir, wanted.owner)?;
    }
    let fits = wanted_attrs.map_or(Ok(()), |attrs| set_dir_attrs(settings, dir, attrs));
    let fits = put_off_too_large(fits)?;
    if settings.permissions || wanted.mode != 0 {
        chmod_held(dir, Mode::from_raw_mode((wanted.mode & !KEPT).into()))?;
    }
    if settings.times {
        touch_held(dir, &times(wanted.mtime))?;
    }
    fits
}

fn set_dir_attrs(settings: Settings, dir: BorrowedFd<'_>, wanted: Attrs<'_>) -> io::Result<()> {
    let set = || set_xattrs::replace(dir, wanted, settings.attrs);
    match set() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        result => return result,
    }
    let mode = Mode::from_raw_mode(rustix::fs::fstat(dir)?.st_mode & 0o7777);
    chmod_held(dir, mode | Mode::RWXU)?;
    let set = set();
    if !settings.permissions {
        chmod_held(dir, mode)?;
    }
    set
}

/// Gives the owner of a directory all its rights. Returns the mode that it had.
pub(crate) fn unlock_dir(dir: BorrowedFd<'_>) -> io::Result<u16> {
    let now = Mode::from_raw_mode(rustix::fs::fstat(dir)?.st_mode & 0o7777);
    if !now.contains(Mode::RWXU) {
        chmod_held(dir, now | Mode::RWXU)?;
    }
    Ok(now.as_raw_mode() as u16)
}

/// Sets a directory back to the mode that [`unlock_dir`] returned.
pub(crate) fn lock_dir(dir: BorrowedFd<'_>, mode: u16) -> io::Result<()> {
    let mode = Mode::from_raw_mode(mode.into());
    if mode.contains(Mode::RWXU) { Ok(()) } else { chmod_held(dir, mode) }
}

/// Sets the times of an entry that is held; a link is not followed.
fn touch_held(entry: BorrowedFd<'_>, times: &Timestamps) -> io::Result<()> {
    Ok(rustix::fs::utimensat(CWD, proc_path(entry), times, AtFlags::empty())?)
}

fn proc_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Opens the entry itself, even if it is a symbolic link. Later calls on the descriptor reach this entry, even if
/// it is renamed.
pub(crate) fn hold(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?)
}

/// Changes the mode of an entry that is held, because `fchmodat` cannot refuse links on every kernel.
pub(crate) fn chmod_held(entry: BorrowedFd<'_>, mode: Mode) -> io::Result<()> {
    Ok(rustix::fs::chmodat(CWD, proc_path(entry), mode, AtFlags::empty())?)
}

/// Changes the owner of an open file.
pub(crate) fn chown(file: BorrowedFd<'_>, Owner { uid, gid }: Owner) -> Result<(), Errno> {
    rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
}

/// Changes the owner of an entry that is held.
fn chown_held(entry: BorrowedFd<'_>, Owner { uid, gid }: Owner) -> Result<(), Errno> {
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::fs::chownat(entry, c"", Some(user), Some(group), AtFlags::EMPTY_PATH)
}

/// Returns the times with which a system call sets a modification time and leaves the access time.
pub(crate) fn times(mtime: Time) -> Timestamps {
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let mtime = Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanos.into() };
    Timestamps { last_access: omit, last_modification: mtime }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt as _};

    use rustix::fs::XattrFlags;

    use super::*;

    #[test]
    fn what_is_set_for_a_held_link_leaves_its_target_alone() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::write(&outside, "of the system").unwrap();
        std::os::unix::fs::symlink(&outside, dir.path().join("link")).unwrap();
        let state = || {
            let stat = fs::metadata(&outside).unwrap();
            (stat.mode(), stat.uid(), stat.gid(), stat.mtime(), stat.ctime(), stat.ctime_nsec())
        };
        let before = state();
        let folder = fs::File::open(dir.path()).unwrap();
        let held = hold(folder.as_fd(), b"link").unwrap();
        touch_held(held.as_fd(), &times(Time { seconds: 7, ..Time::default() })).unwrap();
        assert_eq!(fs::symlink_metadata(dir.path().join("link")).unwrap().mtime(), 7);
        let _ = chown_held(held.as_fd(), Owner { uid: 12_345, gid: 54_321 });
        // Kernels differ in whether a link has a mode and attributes of its own.
        let _ = chmod_held(held.as_fd(), Mode::RWXU | Mode::RWXO);
        let _ = unlock_dir(held.as_fd());
        for name in ["user.a", "trusted.a", "system.posix_acl_access"] {
            let _ = rustix::fs::setxattr(proc_path(held.as_fd()), name, b"1", XattrFlags::empty());
        }
        assert_eq!(state(), before);
    }
}
