//! Files of the source, opened so that a change during the read is noticed.

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    buffer::spare_capacity,
    fs::{Mode, OFlags, Stat},
    io::Errno,
};

use crate::{
    attrs::Attrs,
    delta::checked::FileVersion,
    entry::{FullMeta, Meta, Owner, Time},
    hash::{ContentId, TransferHash},
    kept_xattrs::Classes,
    measure::monitor::Monitor,
    path::RelPath,
    reshape::{ModeOf, Reshape},
    snapshot::store::id_of_file,
    source::{file_version, settled_times::settled},
    sys::{
        block_device::{DevicePart, Opened},
        file_part::Slice,
        find_holes::has_holes,
        in_motion,
        joined_ranges::JoinedRanges,
        read_xattrs::of_open,
        root::Root,
        stat::{FileState, modified, regular},
    },
    tree::dir::DirId,
};

/// The error for a file whose content in a store does not have its hash.
pub(crate) const DAMAGED: &str =
    "its content in the snapshot is damaged; at the source, `volferry snapshot verify` names all damage";

/// The directory that a worker used last. Files come in the order of directories, so the next one is usually in it.
#[derive(Debug, Default)]
pub(crate) struct LastDir(Option<(DirId, OwnedFd)>);

impl LastDir {
    /// Returns the directory at `path`, and opens it if it is not the last one.
    pub(crate) fn open(&mut self, root: &Root, id: DirId, path: &RelPath) -> io::Result<BorrowedFd<'_>> {
        self.open_with(id, || root.dir(path))
    }

    /// Returns the directory with this number, and calls `open` if it is not the last one.
    pub(crate) fn open_with(
        &mut self,
        id: DirId,
        open: impl FnOnce() -> io::Result<OwnedFd>,
    ) -> io::Result<BorrowedFd<'_>> {
        let entry = match self.0.take().filter(|(last, _)| *last == id) {
            Some(entry) => entry,
            None => (id, open()?),
        };
        Ok(self.0.insert(entry).1.as_fd())
    }
}

/// The place that files are read from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// A tree.
    Tree(&'a Root),
    /// The file of this name in a folder, which may have another name at the destination.
    File(&'a Root, &'a [u8]),
    /// A device, or the image of one; its parts are the files.
    Device(&'a Opened),
    /// A snapshot, whose files' content is in a store.
    Stored(&'a dyn Stored),
}

/// Opens the files of a snapshot.
pub(crate) trait Stored: fmt::Debug + Sync {
    /// Opens the file `name` of the directory with this number.
    fn open(&self, dir: DirId, name: &[u8]) -> io::Result<SourceFile>;
}

impl<'a> Origin<'a> {
    pub(crate) fn is_device(self) -> bool {
        matches!(self, Self::Device(_))
    }

    /// Returns the number of files to report: 0 for parts of a device, which counts as one file.
    pub(crate) fn files(self, files: u64) -> u64 {
        if self.is_device() { 0 } else { files }
    }

    /// Returns the root of the tree.
    ///
    /// # Errors
    /// When it is a device or a snapshot.
    pub(crate) fn root(self) -> io::Result<&'a Root> {
        match self {
            Self::Tree(root) | Self::File(root, _) => Ok(root),
            Self::Device(_) | Self::Stored(_) => Err(Errno::NOTDIR.into()),
        }
    }

    /// Opens the file `name` of the directory of this number and `path`.
    pub(crate) fn file(
        self,
        id: DirId,
        path: &RelPath,
        name: &[u8],
        monitor: &Monitor,
    ) -> io::Result<SourceFile> {
        self.file_in(&mut LastDir::default(), id, path, name, monitor)
    }

    /// Opens a file as [`Self::file`] does, and keeps its directory open in `dir`.
    pub(crate) fn file_in(
        self,
        dir: &mut LastDir,
        id: DirId,
        path: &RelPath,
        name: &[u8],
        monitor: &Monitor,
    ) -> io::Result<SourceFile> {
        match self {
            Self::Tree(root) => SourceFile::open(root, dir.open(root, id, path)?, path, name, monitor),
            Self::File(root, own) => SourceFile::open(root, dir.open(root, id, path)?, path, own, monitor),
            Self::Device(device) => SourceFile::part(device, name),
            Self::Stored(stored) => stored.open(id, name),
        }
    }
}

/// The conditions under which a listing's metadata still holds. Those of a device and a snapshot always do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AsListed {
    /// The kinds of attributes that it contains.
    pub classes: Classes,
    /// The time when the scan began, in seconds since 1970.
    pub since: i64,
    /// The changes with which entries were listed.
    pub reshape: Reshape,
}

impl AsListed {
    /// Returns the metadata and attributes of an open file, if they may differ from the listing's. Any change since the
    /// scan began has moved the change time; only its seconds count, because some file systems keep no more.
    pub(crate) fn fresh(self, file: impl AsFd, stat: &Stat, listed: &Meta) -> io::Result<Option<FullMeta>> {
        let meta = meta_of(stat, listed);
        let reshaped = |attrs| self.reshape.apply(meta, ModeOf::File, attrs);
        if reshaped(Attrs::default()) == *listed && stat.st_ctime < self.since {
            return Ok(None);
        }
        let attrs = of_open(file.as_fd(), self.classes)?;
        Ok(Some(FullMeta { meta: reshaped(attrs.as_attrs()), attrs }))
    }
}

/// An open file of the source, with its state when it was opened.
#[derive(Debug)]
pub(crate) struct SourceFile {
    fd: OwnedFd,
    stat: Stat,
    of: Of,
}

/// The place of a file's content.
#[derive(Debug)]
enum Of {
    /// The file itself, which may be in doubt.
    Itself { in_doubt: bool },
    /// A device.
    Device(OfDevice),
    /// An object of a store, which never changes.
    Store(OfStore),
}

/// The place of a file's content in a store, and the file's own length and time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfStore {
    /// The offset of its first byte in the object.
    pub start: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Its modification time.
    pub mtime: Time,
    /// The hash of its content; none if it is empty.
    pub id: Option<ContentId>,
}

/// The part of a device that serves as a file.
#[derive(Debug)]
struct OfDevice {
    part: DevicePart,
    row: Option<Arc<JoinedRanges>>,
    is_block: bool,
}

impl AsFd for SourceFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl SourceFile {
    /// Opens `name` in the directory at `path`, which is open as `dir`, without following a link.
    ///
    /// # Errors
    /// When the system cannot open or read it, and when it is not a regular file any more.
    pub(crate) fn open(
        root: &Root,
        dir: BorrowedFd<'_>,
        path: &RelPath,
        name: &[u8],
        monitor: &Monitor,
    ) -> io::Result<Self> {
        let fd = open_nonblocking(dir, name)?;
        let stat = settled(&fd, monitor)?;
        let in_doubt = root.doubts(path, name, &stat);
        Ok(Self { fd, stat, of: Of::Itself { in_doubt } })
    }

    /// Opens the part of a device that has this name.
    fn part(device: &Opened, name: &[u8]) -> io::Result<Self> {
        let part = device.part(name).ok_or(Errno::NOENT)?;
        let fd = device.as_fd().try_clone_to_owned()?;
        let stat = rustix::fs::fstat(&fd)?;
        if device.is_cut(&stat) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the image was cut while it was read"));
        }
        Ok(Self {
            fd,
            stat,
            of: Of::Device(OfDevice { part, row: device.row(part), is_block: device.is_block() }),
        })
    }

    /// Makes a file of an open object of a store.
    pub(crate) fn stored(fd: OwnedFd, of: OfStore) -> io::Result<Self> {
        let stat = rustix::fs::fstat(&fd)?;
        Ok(Self { fd, stat, of: Of::Store(of) })
    }

    /// Returns whether it is a part of a device.
    pub(crate) fn is_part(&self) -> bool {
        matches!(self.of, Of::Device(_))
    }

    /// Returns its length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match &self.of {
            Of::Itself { .. } => self.stat.st_size as u64,
            Of::Device(of) => of.part.len,
            Of::Store(of) => of.len,
        }
    }

    /// Returns the place of its content, for reading.
    pub(crate) fn content(&self) -> Slice<'_> {
        let (start, row) = match &self.of {
            Of::Itself { .. } => (0, None),
            Of::Device(of) => (of.part.start, of.row.as_deref()),
            Of::Store(of) => (of.start, None),
        };
        Slice { fd: self.fd.as_fd(), start, row }
    }

    /// Returns whether it may have holes.
    pub(crate) fn has_holes(&self) -> bool {
        let Slice { start, row, .. } = self.content();
        start == 0 && row.is_none() && has_holes(&self.stat)
    }

    /// Returns metadata and attributes that may differ from the listing's; `None` for a part of a device and an object
    /// of a store.
    pub(crate) fn fresh(&self, listed: &Meta, as_listed: AsListed) -> io::Result<Option<FullMeta>> {
        match self.of {
            Of::Itself { .. } => as_listed.fresh(&self.fd, &self.stat, listed),
            Of::Device(_) | Of::Store(_) => Ok(None),
        }
    }

    /// Returns its modification time.
    pub(crate) fn mtime(&self) -> Time {
        match &self.of {
            Of::Itself { .. } => modified(&self.stat),
            Of::Device(_) => Time::default(),
            Of::Store(of) => of.mtime,
        }
    }

    /// Returns its state when it was opened; `None` of a part of a device and an object of a store.
    pub(crate) fn state(&self) -> Option<FileState> {
        matches!(self.of, Of::Itself { .. }).then(|| FileState::of(&self.stat))
    }

    /// Returns an id of the version of the content; `None` of a part of a device.
    pub(crate) fn version(&self) -> Option<FileVersion> {
        match &self.of {
            Of::Itself { .. } => Some(file_version::of_file(&self.stat)),
            Of::Device(_) => None,
            Of::Store(of) => of.id.map(file_version::of_stored),
        }
    }

    /// Returns whether content with this transfer hash is undamaged: an object of a store has to have its content id,
    /// for which holes are hashed as zeros.
    pub(crate) fn is_whole(&self, hash: &TransferHash) -> bool {
        match &self.of {
            Of::Store(OfStore { id: Some(id), len, .. }) => {
                id.0 == hash.0 || id_of_file(self.content(), *len).is_ok_and(|found| found == *id)
            }
            _ => true,
        }
    }

    /// Returns whether another process may be writing to the file without a change of its times that would show it, or
    /// its content is in doubt. Callers ask before they read.
    pub(crate) fn is_in_motion(&self) -> bool {
        let Of::Itself { in_doubt } = self.of else { return false };
        in_doubt || in_motion::is_in_motion(&self.fd, &self.stat)
    }

    /// Returns whether the file has not changed since it was opened. A change of content always moves the change time,
    /// but not that of a device.
    pub(crate) fn is_unchanged(&self) -> io::Result<bool> {
        match &self.of {
            Of::Store(_) => return Ok(true),
            Of::Device(of) if of.is_block => return Ok(true),
            _ => {}
        }
        Ok(is_same(&regular(&self.fd)?, &self.stat))
    }
}

/// Returns whether two states of a file are equal: a change of content always moves the change time.
pub(crate) fn is_same(a: &Stat, b: &Stat) -> bool {
    let key = |s: &Stat| (s.st_size, s.st_mtime, s.st_mtime_nsec, s.st_ctime, s.st_ctime_nsec);
    key(a) == key(b)
}

/// Opens a file for reading.
pub(crate) fn open_nonblocking(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    // Without NONBLOCK, a pipe that took the file's place would hold the worker for ever.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?)
}

/// Returns the metadata of an open file, without the mode if the listing has none.
pub(crate) fn meta_of(stat: &Stat, listed: &Meta) -> Meta {
    let mode = if listed.mode == 0 { 0 } else { (stat.st_mode & 0o7777) as u16 };
    let owner = Owner { uid: stat.st_uid, gid: stat.st_gid };
    Meta { mode, mtime: modified(stat), owner }
}

/// Appends the first `len` bytes of the file to `out`. Returns false if the file is shorter.
pub(crate) fn append_start(fd: &OwnedFd, len: usize, out: &mut Vec<u8>) -> io::Result<bool> {
    let start = out.len();
    out.reserve(len);
    while out.len() < start + len {
        let offset = (out.len() - start) as u64;
        match rustix::io::pread(fd, spare_capacity(out), offset) {
            Ok(0) => return Ok(false),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    out.truncate(start + len);
    Ok(true)
}
