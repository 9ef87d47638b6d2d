//! Reads one entry of a directory, and decides whether it takes part in the run.

use std::{ffi::CStr, io, os::fd::OwnedFd};

use rustix::{
    fs::{AtFlags, FileType, Statx, StatxFlags},
    io::Errno,
};

use crate::{
    attrs::Attrs,
    entry::{Entry, Kind, MAX_TARGET_BYTES, Meta, Owner, Time},
    filter::Rules,
    path::OWN_DIR,
    reshape::ModeOf,
    scan::{dir_queue::PendingDir, lost_found, options::ScanOptions, stamp::stamp_of},
    sys::{find_holes::blocks_leave_holes, read_xattrs::AttrReader, root::Root, stat::device_of},
    tree::dir::{Beyond, ROOT, fold_inode},
};

/// The fields of an [`Entry`], and the time that decides whether it is in doubt.
const FIELDS: StatxFlags = StatxFlags::TYPE
    .union(StatxFlags::MODE)
    .union(StatxFlags::UID)
    .union(StatxFlags::GID)
    .union(StatxFlags::INO)
    .union(StatxFlags::NLINK)
    .union(StatxFlags::MTIME)
    .union(StatxFlags::CTIME)
    .union(StatxFlags::SIZE)
    .union(StatxFlags::BLOCKS)
    .union(StatxFlags::MNT_ID);

/// The longest block of a file system, in bytes.
const LARGEST_BLOCK_BYTES: u64 = 64 << 10;

/// The entry that a name in a directory leads to.
pub(super) enum NamedEntry<'a> {
    /// Volferry's own folder, or a [bare](lost_found::is_bare) `lost+found`.
    Hidden,
    /// An entry; its device and inode if it may have other names; and further data.
    Entry(Entry<'a>, Option<(u64, u64)>, Beside),
    Socket,
    Excluded,
    Gone,
}

/// Data of an entry that its listing does not contain.
pub(super) struct Beside {
    /// See [`ScanOptions::stamps`]; 0 if none are taken.
    pub stamp: u64,
    /// See [`Dir::inodes`](crate::tree::dir::Dir::inodes).
    pub inode: u32,
    /// Its part of `Totals::sparse` of the tree.
    pub sparse: u64,
    /// Where a directory is, seen from the root.
    pub beyond: Beyond,
}

/// Buffers for the parts of an entry that have variable lengths.
#[derive(Default)]
pub(super) struct Scratch {
    pub target: Vec<u8>,
    pub attrs: Vec<u8>,
}

/// Reads the entries of one tree.
pub(super) struct Lookup<'a> {
    pub options: &'a ScanOptions,
    /// The root's file system.
    device: u64,
    /// The number of the root's mount; `None` before Linux 5.8.
    mount: Option<u64>,
    /// The inode of Volferry's own folder.
    own: Option<u64>,
}

impl<'a> Lookup<'a> {
    /// Starts below `root`, whose answer to [`stat`] is `found`.
    pub(super) fn below(root: &Root, found: &Statx, options: &'a ScanOptions) -> Self {
        let own = rustix::fs::statat(root, OWN_DIR, AtFlags::SYMLINK_NOFOLLOW).ok().map(|stat| stat.st_ino);
        Self { options, device: device_of(found), mount: mount_of(found), own }
    }

    /// Reads the entry `name` of the directory `work`, which is open as `fd`.
    ///
    /// # Errors
    /// If the entry or its attributes cannot be read, or its path is too long.
    pub(super) fn entry<'b>(
        &self,
        work: &PendingDir,
        fd: &OwnedFd,
        name: &'b CStr,
        rules: Option<&Rules>,
        attrs: &mut AttrReader,
        scratch: &'b mut Scratch,
    ) -> io::Result<NamedEntry<'b>> {
        let stat = match stat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(NamedEntry::Gone),
            result => result?,
        };
        let file_type = FileType::from_raw_mode(stat.stx_mode.into());
        let is_dir = file_type == FileType::Directory;
        // If the file system folds case, another name may also lead to Volferry's own folder.
        if work.id == ROOT && is_dir && self.own == Some(stat.stx_ino) {
            return Ok(NamedEntry::Hidden);
        }
        if self.excludes(work, name, is_dir, rules) {
            return Ok(NamedEntry::Excluded);
        }
        if work.id == ROOT && is_dir && lost_found::is_bare(fd, name, stat.stx_uid) {
            return Ok(NamedEntry::Hidden);
        }
        let kind = match file_type {
            FileType::RegularFile => Kind::File { size: stat.stx_size },
            FileType::Directory if work.path.join(name.to_bytes()).is_err() => {
                return Err(Errno::NAMETOOLONG.into());
            }
            FileType::Directory => Kind::Dir,
            FileType::Symlink => {
                scratch.target = read_link(fd, name)?;
                Kind::Symlink { target: &scratch.target }
            }
            FileType::Socket if !self.options.list_sockets => return Ok(NamedEntry::Socket),
            FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice | FileType::Socket
                if self.options.ignore_specials =>
            {
                return Ok(NamedEntry::Excluded);
            }
            FileType::Fifo => Kind::Fifo,
            FileType::CharacterDevice => Kind::CharDevice { rdev: rdev(&stat) },
            FileType::BlockDevice => Kind::BlockDevice { rdev: rdev(&stat) },
            FileType::Socket => Kind::Socket,
            FileType::Unknown => return Ok(NamedEntry::Socket),
        };
        if kind != Kind::Socket {
            attrs.read(name, &mut scratch.attrs)?;
        }
        let mut meta = meta_of(&stat, self.options, Attrs::trusted(&scratch.attrs));
        if matches!(kind, Kind::File { .. }) {
            meta.mtime = self.time_to_compare(work, name, &stat, meta.mtime);
        }
        let entry = Entry { name: name.to_bytes(), kind, meta, attrs: Attrs::trusted(&scratch.attrs) };
        let may_share = self.options.hard_links && stat.stx_nlink > 1 && !self.options.sizes.exclude(kind);
        let identity = (may_share && !matches!(kind, Kind::Dir | Kind::Socket))
            .then(|| (device_of(&stat), stat.stx_ino));
        Ok(NamedEntry::Entry(entry, identity, self.beside(&stat, kind)))
    }

    fn beside(&self, stat: &Statx, kind: Kind<'_>) -> Beside {
        let stamps = self.options.stamps.filter(|_| matches!(kind, Kind::File { .. }));
        let stamp = stamps.map_or(0, |before| stamp_of(stat, before, self.device));
        let sparse = if blocks_leave_holes(stat.stx_size, stat.stx_blocks) {
            stat.stx_size.saturating_add(LARGEST_BLOCK_BYTES)
        } else {
            0
        };
        let beyond = if kind == Kind::Dir { self.beyond(stat) } else { Beyond::default() };
        Beside { stamp, inode: fold_inode(stat.stx_ino), sparse, beyond }
    }

    fn excludes(&self, work: &PendingDir, name: &CStr, is_dir: bool, rules: Option<&Rules>) -> bool {
        let by_rules =
            |rules: &Rules| work.path.join(name.to_bytes()).is_ok_and(|path| rules.excludes(&path, is_dir));
        self.options.filter.excludes(&work.path, name.to_bytes(), is_dir) || rules.is_some_and(by_rules)
    }

    /// Changes the time of a file whose content has to be compared whatever its metadata says.
    fn time_to_compare(&self, work: &PendingDir, name: &CStr, stat: &Statx, mtime: Time) -> Time {
        let noted = &self.options.noted;
        match () {
            () if self.is_doubtful(stat) => mtime.in_doubt(),
            () if !noted.is_empty() && noted.holds(&work.path, name.to_bytes(), mtime) => mtime.to_compare(),
            () => mtime,
        }
    }

    /// Returns where a directory is. Without numbers of mounts, another file system stands for another mount.
    fn beyond(&self, stat: &Statx) -> Beyond {
        let file_system = device_of(stat) != self.device;
        let mounts = self.mount.zip(mount_of(stat));
        Beyond { file_system, mount: mounts.map_or(file_system, |(root, here)| root != here) }
    }

    fn is_doubtful(&self, stat: &Statx) -> bool {
        let changed = Time { seconds: stat.stx_ctime.tv_sec, nanos: stat.stx_ctime.tv_nsec };
        self.options.doubt.is_some_and(|since| changed >= since)
    }
}

/// Reads the metadata of an entry as any program sees it. With `STATX_DONT_SYNC`, a network file system's client could
/// answer from an old cache.
pub(super) fn stat(fd: &OwnedFd, name: &CStr, flags: AtFlags) -> Result<Statx, Errno> {
    rustix::fs::statx(fd, name, flags, FIELDS)
}

fn rdev(stat: &Statx) -> u64 {
    rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor)
}

fn mount_of(stat: &Statx) -> Option<u64> {
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

pub(super) fn meta_of(stat: &Statx, options: &ScanOptions, attrs: Attrs<'_>) -> Meta {
    let mtime = Time::of_file(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec);
    let meta = Meta {
        mode: if options.ignore_permissions { 0 } else { stat.stx_mode & 0o7777 },
        mtime,
        owner: Owner { uid: stat.stx_uid, gid: stat.stx_gid },
    };
    let of = match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::Directory => ModeOf::Dir,
        FileType::Symlink => ModeOf::Link,
        _ => ModeOf::File,
    };
    options.reshape.apply(meta, of, attrs)
}

fn read_link(fd: &OwnedFd, name: &CStr) -> io::Result<Vec<u8>> {
    let target = rustix::fs::readlinkat(fd, name, Vec::with_capacity(128))?.into_bytes();
    if target.len() > MAX_TARGET_BYTES {
        return Err(Errno::NAMETOOLONG.into());
    }
    Ok(target)
}
