//! Block devices, and files that are images of them: the kind of a path's entry, its length, and the parts in which
//! it is synced.
//!
//! A device is synced like a folder of files, each of which is one part, [`PART_BYTES`] long except for the last. The
//! parts follow from the device's length alone, so they need not be sent. They bound the memory that a device of any
//! length takes, and let one part be compared while the one before is in flight.
//!
//! If a run has a list of changed blocks, the folder has more files: the parts of the row of those blocks alone.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use contract::{ChangedRanges, human::bytes};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, Stat},
    io::Errno,
};
use thiserror::Error;

use crate::{
    attrs::Attrs,
    entry::{Entry, Kind, Meta},
    listing::ListingBuilder,
    sys::{
        joined_ranges::JoinedRanges,
        root::{Root, RootError, TreeLocation},
    },
    tree::{
        Tree,
        dir::{Dir, Totals},
    },
};

/// The length of every part but the last, in bytes. A part has granules of 16 KiB, and 128 KiB of their names.
pub(crate) const PART_BYTES: u64 = 256 << 20;

/// The longest device: a million parts.
pub(crate) const MAX_BYTES: u64 = 256 << 40;

/// The prefix of every part's name; the offset of its first byte follows.
const PART_NAME: &str = "bytes from ";

/// The prefix of the name of a part of the changed blocks; the offset in their row follows.
const CHANGED_NAME: &str = "changed from ";

/// The number of digits of an offset in a name, enough for all, so that names sort in the order of the parts.
const DIGITS: usize = 15;

/// Why a device or an image cannot be used.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// A folder on the way to it cannot be opened.
    #[error(transparent)]
    TreeLocation(#[from] RootError),
    /// The system refused.
    #[error("cannot {operation} {path}")]
    System {
        /// The call that failed.
        operation: &'static str,
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Another process has it open exclusively.
    #[error(
        "{path} is in use: unmount it, and stop whatever else holds it, such as swap, RAID, LVM or another run; then run again"
    )]
    Busy {
        /// Its path.
        path: PathBuf,
    },
    /// An image is used by something that a write would damage.
    #[error(
        "the image {path} is in use by {by}\nhint: unmount or detach it, or end the process; then run again"
    )]
    InUse {
        /// Its path.
        path: PathBuf,
        /// What uses it.
        by: String,
    },
    /// The source does not fit.
    #[error(
        "the destination {path} has {has}, and the source {of_source}, which is {more} more: name a destination of at least that size",
        has = bytes(*.size), of_source = bytes(*.needed), more = bytes(.needed.saturating_sub(*.size))
    )]
    TooSmall {
        /// The destination.
        path: PathBuf,
        /// Its length in bytes.
        size: u64,
        /// The length that it needs, in bytes.
        needed: u64,
    },
    /// The source is empty, or longer than a run supports.
    #[error(
        "{path} has {has}: a device or an image has to have some content, and {most} at most; see that its disk is attached",
        has = bytes(*.size), most = bytes(MAX_BYTES)
    )]
    Length {
        /// Its path.
        path: PathBuf,
        /// Its length in bytes.
        size: u64,
    },
    /// A list of changed blocks is of a longer device.
    #[error(
        "the changed blocks end at byte {end}, and {path} has {size}: see that the list is of this device, or leave it out"
    )]
    ChangedBeyond {
        /// Its path.
        path: PathBuf,
        /// Its length in bytes.
        size: u64,
        /// The end of the last block.
        end: u64,
    },
    /// The path is neither a block device nor a regular file.
    #[error("{0} is neither a block device nor a regular file")]
    Neither(PathBuf),
}

/// The kind of the entry at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathKind {
    /// No entry that can be seen.
    Nothing,
    /// A block device.
    Device,
    /// A regular file that is the image of a device.
    Image,
    /// A regular file.
    File,
    /// Another kind: usable only if it is a folder.
    Other,
}

impl PathKind {
    /// Returns the kind at `place`; with `images`, a regular file is an image. Below the trusted folder, follows no
    /// symbolic link and takes no device node for a device: users of a volume must not choose among the machine's
    /// devices.
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

    /// Returns whether it is synced as a device.
    pub(crate) fn is_device(self) -> bool {
        matches!(self, Self::Device | Self::Image)
    }

    /// Returns its name in messages.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Device => "a block device",
            Self::Image | Self::File => "a file",
            Self::Nothing | Self::Other => "a folder",
        }
    }
}

/// Opens the folder that contains the last name of a place below a trusted one.
fn folder(place: &TreeLocation) -> io::Result<Root> {
    Root::enter(&place.folder()).map_err(|error| match error {
        RootError::Missing(_) => io::ErrorKind::NotFound.into(),
        error => io::Error::other(error),
    })
}

/// An open device or image.
#[derive(Debug)]
pub(crate) struct Opened {
    fd: OwnedFd,
    len: u64,
    /// Its length when it was opened, in bytes.
    opened_len: u64,
    is_block: bool,
    changed: Option<Arc<JoinedRanges>>,
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Opened {
    /// Opens the device or image at `place` for reading, as a source. An empty one is refused: its disk is not
    /// attached, or the backup failed.
    pub(crate) fn to_read(place: &TreeLocation) -> Result<Self, DeviceError> {
        let opened = Self::to_inspect(place)?;
        match opened.len {
            1..=MAX_BYTES => Ok(opened),
            size => Err(DeviceError::Length { path: place.path(), size }),
        }
    }

    /// Opens the device or image at `place` to inspect it.
    pub(crate) fn to_inspect(place: &TreeLocation) -> Result<Self, DeviceError> {
        Self::open(place, OFlags::RDONLY, Mode::empty())
    }

    /// Hides all bytes after the first `len`.
    pub(crate) fn limit(&mut self, len: u64) {
        self.len = len;
    }

    /// Adds the row of the changed blocks to what can be read as parts.
    ///
    /// # Errors
    /// [`DeviceError::ChangedBeyond`], with its `path`.
    pub(crate) fn list_changed(&mut self, ranges: &ChangedRanges, path: &Path) -> Result<(), DeviceError> {
        let (size, end) = (self.len, ranges.end());
        if end > size {
            return Err(DeviceError::ChangedBeyond { path: path.into(), size, end });
        }
        self.changed = Some(Arc::new(JoinedRanges::new(ranges.as_slice())));
        Ok(())
    }

    /// Returns the row that a part is in; none if it is on the device itself.
    pub(crate) fn row(&self, part: DevicePart) -> Option<Arc<JoinedRanges>> {
        self.changed.clone().filter(|_| part.is_of_changed)
    }

    /// Returns whether this state is that of an image that was cut since it was opened: what it lost reads like a hole.
    pub(crate) fn is_cut(&self, stat: &Stat) -> bool {
        !self.is_block && (stat.st_size as u64) < self.opened_len.min(self.len)
    }

    /// Returns the part of this name; `None` if no part has that name.
    pub(crate) fn part(&self, name: &[u8]) -> Option<DevicePart> {
        let changed = self.changed.as_ref().map_or(0, |row| row.len());
        DevicePart::named(name, PART_NAME, self.len).or_else(|| {
            let part = DevicePart::named(name, CHANGED_NAME, changed)?;
            Some(DevicePart { is_of_changed: true, ..part })
        })
    }

    /// Returns the parts of the changed blocks, each with its number among all parts.
    pub(crate) fn changed_parts(&self) -> impl Iterator<Item = (u32, DevicePart)> {
        let before = self.len.div_ceil(PART_BYTES) as u32;
        let row = parts(self.changed.as_ref().map_or(0, |row| row.len()));
        (before..).zip(row.map(|part| DevicePart { is_of_changed: true, ..part }))
    }

    /// Returns the tree that stands for the device: a folder with a file for each part.
    pub(crate) fn tree(&self) -> Tree {
        tree_of(self.len, parts(self.len).chain(self.changed_parts().map(|(_, part)| part)))
    }

    /// Opens the device or image at `place` with these flags.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] where a device is to be opened exclusively and is in use.
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
                let dir = Root::enter(&place.folder())?;
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
        Ok(Self { fd, len, opened_len: len, is_block, changed: None })
    }

    /// Returns its length in bytes: the one when it was opened, or the one that it was limited to.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether it is a block device, rather than an image.
    pub(crate) fn is_block(&self) -> bool {
        self.is_block
    }

    /// Checks that it has `needed` bytes.
    ///
    /// # Errors
    /// [`DeviceError::TooSmall`], with its `path`.
    pub(crate) fn holds(&self, needed: u64, path: &Path) -> Result<(), DeviceError> {
        if self.len < needed {
            Err(DeviceError::TooSmall { path: path.into(), size: self.len, needed })
        } else {
            Ok(())
        }
    }

    /// Returns whether both are the same device or file.
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
    /// The offset of its first byte.
    pub start: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Whether it is a part of the row of changed blocks.
    pub is_of_changed: bool,
}

impl DevicePart {
    fn named(name: &[u8], prefix: &str, len: u64) -> Option<Self> {
        let digits = std::str::from_utf8(name.strip_prefix(prefix.as_bytes())?).ok()?;
        let start = digits.parse().ok().filter(|start| start % PART_BYTES == 0 && *start < len)?;
        Some(Self { start, len: (len - start).min(PART_BYTES), is_of_changed: false })
    }

    /// Returns its name in the tree of the device.
    pub(crate) fn name(&self) -> String {
        let prefix = if self.is_of_changed { CHANGED_NAME } else { PART_NAME };
        format!("{prefix}{:0DIGITS$}", self.start)
    }
}

/// Yields the parts of a device of `len` bytes, which is at most [`MAX_BYTES`].
pub(crate) fn parts(len: u64) -> impl Iterator<Item = DevicePart> {
    let count = len.div_ceil(PART_BYTES);
    (0..count).map(move |nth| {
        let start = nth * PART_BYTES;
        DevicePart { start, len: (len - start).min(PART_BYTES), is_of_changed: false }
    })
}

/// Returns the tree that stands for a device of `len` bytes, at most [`MAX_BYTES`], without changed blocks.
pub(crate) fn tree(len: u64) -> Tree {
    tree_of(len, parts(len))
}

fn tree_of(len: u64, parts: impl Iterator<Item = DevicePart>) -> Tree {
    let mut listing = ListingBuilder::default();
    for part in parts {
        let (name, kind) = (part.name(), Kind::File { size: part.len });
        let (meta, attrs) = (Meta::default(), Attrs::default());
        listing.push(&Entry { name: name.as_bytes(), kind, meta, attrs });
    }
    let root = Dir { listing: listing.finish(), first_child: 1, ..Dir::default() };
    Tree { dirs: vec![root], totals: totals(len), ..Tree::default() }
}

/// Returns the totals of a device: it counts as one file.
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
                assert_eq!(DevicePart::named(entry.name, PART_NAME, len), Some(part));
                assert_eq!((part.start, entry.kind), (at, Kind::File { size: part.len }));
                at += part.len;
            }
            assert_eq!((at, listing.len()), (len, parts(len).count()));
        }
        assert!(parts(MAX_BYTES).last().unwrap().name().len() == PART_NAME.len() + DIGITS);
    }

    #[test]
    fn what_is_no_parts_name_names_none() {
        let named = |name: &str, len| DevicePart::named(name.as_bytes(), PART_NAME, len);
        let first = DevicePart { start: 0, len: 10, is_of_changed: false }.name();
        assert!(named(&first, 10).is_some());
        for name in ["", "x", PART_NAME, "bytes from 1", "bytes from 268435456", "bytes from -1"] {
            assert_eq!(named(name, 10), None, "{name}");
        }
        assert_eq!(named(&first, 0), None);
    }

    #[test]
    fn changed_blocks_are_further_parts_behind_those_of_the_device() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(3 * PART_BYTES).unwrap();
        let mut opened = Opened::to_read(&TreeLocation::from(file.path())).unwrap();
        let list = |pairs: &[(u64, u64)]| ChangedRanges::new(pairs.iter().copied()).unwrap();
        let beyond = opened.list_changed(&list(&[(0, 1), (3 * PART_BYTES - 1, 2)]), file.path());
        assert!(matches!(beyond, Err(DeviceError::ChangedBeyond { .. })));
        assert_eq!(opened.changed_parts().count(), 0);
        opened.list_changed(&list(&[(5, 7), (4096, 2 * PART_BYTES)]), file.path()).unwrap();
        let tree = opened.tree();
        let entries: Vec<_> = tree.dirs[0].listing.iter().collect();
        let found: Vec<_> = opened.changed_parts().collect();
        assert_eq!(found.iter().map(|(nth, _)| *nth).collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(found.iter().map(|(_, part)| part.len).collect::<Vec<_>>(), [PART_BYTES, PART_BYTES, 7]);
        for (nth, part) in found {
            assert_eq!(opened.part(entries[nth as usize].name), Some(part));
            assert!(opened.row(part).is_some());
        }
        assert!(opened.part(entries[2].name).is_some_and(|part| opened.row(part).is_none()));
        assert_eq!((entries.len(), tree.totals.bytes), (6, 3 * PART_BYTES));
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
