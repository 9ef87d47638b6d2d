//! Block devices, and files that are the image of one: what is at a place, how long it is, and the parts that it is
//! synced in.
//!
//! A device is synced as a folder of files is, each of which is one part of it, [`PART_BYTES`] long but for the last.
//! What the parts are follows from the device's length alone, so nobody has to say it. Parts bound what is held in
//! memory of a device of any length, and let one part be compared while the one before is on its way.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, SeekFrom},
    io::Errno,
};
use thiserror::Error;

use crate::{
    attrs::Attrs,
    entry::{Entry, Kind, Meta},
    listing::ListingBuilder,
    root::{Root, RootError, TreeLocation},
    tree::{
        Tree,
        dir::{Dir, Totals},
    },
};

/// The length of every part but the last. A part of it has granules of 16 KiB, and 128 KiB of their names.
pub(crate) const PART_BYTES: u64 = 256 << 20;

/// The longest device: a million parts.
pub(crate) const MAX_BYTES: u64 = 256 << 40;

/// What every part's name begins with; the number of its first byte follows.
const PART_NAME: &str = "bytes from ";

/// As many digits as the numbers of bytes have at most, so that names are in the order of the parts.
const DIGITS: usize = 15;

/// Why a device or an image cannot be used.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// A folder on the way to it.
    #[error(transparent)]
    TreeLocation(#[from] RootError),
    /// The system refused.
    #[error("cannot {operation} {path}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// With what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else has it.
    #[error(
        "{path} is in use: unmount it, and stop whatever else holds it, such as swap, RAID, LVM or another run; then run again"
    )]
    Busy {
        /// What.
        path: PathBuf,
    },
    /// The source does not fit.
    #[error(
        "the destination {path} has {size} bytes, fewer than the {needed} of the source: name a destination of at least that size"
    )]
    TooSmall {
        /// The destination.
        path: PathBuf,
        /// What it has.
        size: u64,
        /// What it has to have.
        needed: u64,
    },
    /// There is nothing to be read, or more than a run can do.
    #[error(
        "{path} has {size} bytes: a device or an image has to have some, and {MAX_BYTES} at most; see that its disk is attached"
    )]
    Length {
        /// What.
        path: PathBuf,
        /// What it has.
        size: u64,
    },
    /// Something else took its place.
    #[error("{0} is neither a block device nor a regular file")]
    Neither(PathBuf),
}

/// What there is at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathKind {
    /// Nothing, as far as can be seen.
    Nothing,
    /// A block device.
    Device,
    /// A regular file that is the image of a device.
    Image,
    /// A regular file.
    File,
    /// Anything else: a folder, if it is of any use.
    Other,
}

impl PathKind {
    /// Looks at `place`, where a regular file is an image if there are `images`. Below its trusted folder no symbolic
    /// link is followed, and no device node taken for a device: who writes to a volume does not say which of the
    /// machine's devices are used.
    pub(crate) fn at(place: &TreeLocation, images: bool) -> Self {
        let found = match place.below.split_last() {
            None => rustix::fs::stat(&place.trusted).map_err(io::Error::from),
            Some((_, name)) => {
                folder(place).and_then(|dir| Ok(rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?))
            }
        };
        match found.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::BlockDevice) if place.below.is_root() => Self::Device,
            Ok(FileType::RegularFile) if images => Self::Image,
            Ok(FileType::RegularFile) => Self::File,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Nothing,
            _ => Self::Other,
        }
    }

    /// Whether it is synced as a device is.
    pub(crate) fn is_device(self) -> bool {
        matches!(self, Self::Device | Self::Image)
    }

    /// What it is, for people.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Device => "a block device",
            Self::Image | Self::File => "a file",
            Self::Nothing | Self::Other => "a folder",
        }
    }
}

/// The folder that the last name of a place below a trusted one is in.
fn folder(place: &TreeLocation) -> io::Result<Root> {
    Root::enter(&folder_of(place)).map_err(|error| match error {
        RootError::Missing(_) => io::ErrorKind::NotFound.into(),
        error => io::Error::other(error),
    })
}

/// Where the folder is that the last name of a place is in.
pub(crate) fn folder_of(place: &TreeLocation) -> TreeLocation {
    let trusted = place.trusted.clone();
    match place.below.split_last() {
        Some((below, _)) => TreeLocation { trusted, below },
        None => match trusted.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => TreeLocation::from(parent),
            None => TreeLocation::from("."),
        },
    }
}

/// An open device or image.
#[derive(Debug)]
pub(crate) struct Opened {
    fd: OwnedFd,
    len: u64,
    is_block: bool,
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Opened {
    /// Opens what is at `place` as a source, to be read only. One without bytes is a disk that is not attached, or a
    /// backup that failed.
    pub(crate) fn to_read(place: &TreeLocation) -> Result<Self, DeviceError> {
        let opened = Self::look(place)?;
        match opened.len {
            1..=MAX_BYTES => Ok(opened),
            size => Err(DeviceError::Length { path: place.path(), size }),
        }
    }

    /// Opens what is at `place` to be looked at.
    pub(crate) fn look(place: &TreeLocation) -> Result<Self, DeviceError> {
        Self::open(place, OFlags::RDONLY, Mode::empty())
    }

    /// Leaves what is behind the first `len` bytes out of sight.
    pub(crate) fn limit(&mut self, len: u64) {
        self.len = len;
    }

    /// Opens what is at `place` with these flags.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] where a device is to be exclusively this process's, and cannot.
    pub(crate) fn open(place: &TreeLocation, flags: OFlags, mode: Mode) -> Result<Self, DeviceError> {
        let path = place.path();
        let refused = |operation, error: Errno| match error {
            Errno::BUSY => DeviceError::Busy { path: path.clone() },
            error => DeviceError::System { operation, path: path.clone(), source: error.into() },
        };
        let flags = flags | OFlags::CLOEXEC;
        let fd = match place.below.split_last() {
            None => rustix::fs::open(&place.trusted, flags, mode),
            Some((_, name)) => {
                let dir = Root::enter(&folder_of(place))?;
                rustix::fs::openat(&dir, name, flags | OFlags::NOFOLLOW | OFlags::NONBLOCK, mode)
            }
        };
        let fd = fd.map_err(|error| refused("open", error))?;
        let stat = rustix::fs::fstat(&fd).map_err(|error| refused("look at", error))?;
        let is_block = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => false,
            FileType::BlockDevice if place.below.is_root() => true,
            _ => return Err(DeviceError::Neither(path)),
        };
        let len = rustix::fs::seek(&fd, SeekFrom::End(0)).map_err(|error| refused("measure", error))?;
        Ok(Self { fd, len, is_block })
    }

    /// How many bytes are of interest: those that it had when it was opened, or those that it was limited to.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether it is a block device and no image.
    pub(crate) fn is_block(&self) -> bool {
        self.is_block
    }

    /// Checks that it has `needed` bytes.
    ///
    /// # Errors
    /// [`DeviceError::TooSmall`], with its `path`.
    pub(crate) fn holds(&self, needed: u64, path: &Path) -> Result<(), DeviceError> {
        match self.len < needed {
            true => Err(DeviceError::TooSmall { path: path.into(), size: self.len, needed }),
            false => Ok(()),
        }
    }

    /// Whether both are the same device, or the same file.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let key = |it: &Self| {
            let stat = rustix::fs::fstat(it).ok()?;
            Some(if it.is_block { (stat.st_rdev, 0) } else { (stat.st_dev, stat.st_ino) })
        };
        self.is_block == other.is_block && key(self).is_some() && key(self) == key(other)
    }
}

/// One part of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DevicePart {
    /// Its first byte.
    pub start: u64,
    /// Its length in bytes.
    pub len: u64,
}

impl DevicePart {
    /// The part of this name, of a device of `len` bytes.
    pub(crate) fn named(name: &[u8], len: u64) -> Option<Self> {
        let digits = std::str::from_utf8(name.strip_prefix(PART_NAME.as_bytes())?).ok()?;
        let start = digits.parse().ok().filter(|start| start % PART_BYTES == 0 && *start < len)?;
        Some(Self { start, len: (len - start).min(PART_BYTES) })
    }

    /// Its name.
    pub(crate) fn name(&self) -> String {
        format!("{PART_NAME}{:0DIGITS$}", self.start)
    }
}

/// The parts of a device of `len` bytes, which is at most [`MAX_BYTES`].
pub(crate) fn parts(len: u64) -> impl Iterator<Item = DevicePart> {
    let count = len.div_ceil(PART_BYTES);
    (0..count).map(move |nth| {
        let start = nth * PART_BYTES;
        DevicePart { start, len: (len - start).min(PART_BYTES) }
    })
}

/// A device of `len` bytes, at most [`MAX_BYTES`], as a folder that has a file for each part.
pub(crate) fn tree(len: u64) -> Tree {
    let mut listing = ListingBuilder::default();
    for part in parts(len) {
        let (name, kind) = (part.name(), Kind::File { size: part.len });
        let (meta, attrs) = (Meta::default(), Attrs::default());
        listing.push(&Entry { name: name.as_bytes(), kind, meta, attrs });
    }
    let root = Dir { listing: listing.finish(), first_child: 1, ..Dir::default() };
    Tree { dirs: vec![root], totals: totals(len), ..Tree::default() }
}

/// What a run counts of a device: it is one file.
pub(crate) fn totals(len: u64) -> Totals {
    Totals { entries: 1, bytes: len, ..Totals::default() }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::path::RelPath;

    #[test]
    fn parts_cover_a_device_and_are_known_by_their_names() {
        for len in [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES + 12_345] {
            let tree = tree(len);
            let listing = &tree.dirs[0].listing;
            let mut at = 0;
            for (part, entry) in parts(len).zip(listing) {
                assert_eq!(DevicePart::named(entry.name, len), Some(part));
                assert_eq!((part.start, entry.kind), (at, Kind::File { size: part.len }));
                at += part.len;
            }
            assert_eq!((at, listing.len()), (len, parts(len).count()));
        }
        assert!(parts(MAX_BYTES).last().unwrap().name().len() == PART_NAME.len() + DIGITS);
    }

    #[test]
    fn what_is_no_parts_name_names_none() {
        let first = DevicePart { start: 0, len: 10 }.name();
        assert!(DevicePart::named(first.as_bytes(), 10).is_some());
        for name in ["", "x", PART_NAME, "bytes from 1", "bytes from 268435456", "bytes from -1"] {
            assert_eq!(DevicePart::named(name.as_bytes(), 10), None, "{name}");
        }
        assert_eq!(DevicePart::named(first.as_bytes(), 0), None);
    }

    #[test]
    fn what_is_at_a_place_is_seen_and_below_a_volume_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("image"), "content").unwrap();
        symlink("image", dir.path().join("link")).unwrap();
        let below = |name: &str| TreeLocation {
            trusted: dir.path().into(),
            below: RelPath::parse(name.as_bytes()).unwrap(),
        };
        for (place, found) in [
            (TreeLocation::from(dir.path()), PathKind::Other),
            (TreeLocation::from(&dir.path().join("link")), PathKind::Image),
            (TreeLocation::from(&dir.path().join("none")), PathKind::Nothing),
            (below("image"), PathKind::Image),
            (below("link"), PathKind::Other),
            (below("none"), PathKind::Nothing),
            (below("none/image"), PathKind::Nothing),
        ] {
            assert_eq!(PathKind::at(&place, true), found, "{place:?}");
            let plain = if found == PathKind::Image { PathKind::File } else { found };
            assert_eq!(PathKind::at(&place, false), plain, "{place:?}");
        }
        assert!(Opened::to_read(&below("link")).is_err());
        let [one, other] = [below("image"), TreeLocation::from(&dir.path().join("link"))];
        let [one, other] = [one, other].map(|place| Opened::to_read(&place).unwrap());
        assert!(one.is_same(&other) && !one.is_block() && one.len() == 7);
    }
}
