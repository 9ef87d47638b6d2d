//! A block device, or its image in a file, which is written to in place. It has no space for staging, and no folder for
//! a lock. A device is held by an exclusive open, which fails while it is mounted or another process holds it; an image
//! by a lock on the file. After a crash it has old and new ranges, and the next run finds the old ones.

use std::{
    io,
    os::fd::AsFd as _,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use contract::ChangedRanges;
use rustix::{
    fs::{FlockOperation, Mode, OFlags},
    io::Errno,
};

use crate::{
    destination::{
        device::image_users::{user_of, writer_of},
        staging::{
            device_part::{PartWriter, beyond},
            staged_file::Staged,
        },
    },
    sys::{
        block_device::{self, DeviceError, Opened, PathKind},
        locate::refuse_own,
        root::{Root, TreeLocation},
    },
};

/// A device or an image that is open for one run.
#[derive(Debug)]
pub(crate) struct Device {
    path: PathBuf,
    /// Limited to the length of the source.
    opened: Opened,
    /// Its length when it was opened.
    was: u64,
    /// Whether zeros take no space where the file system or device supports that.
    holes: bool,
    /// The folder that a new image was made in.
    made_in: Option<Root>,
    written: AtomicU64,
}

impl Device {
    /// Opens and locks the device or image at `place`, for a run that brings `len` bytes. With `holes`, zeros take no
    /// room where that is supported. If `place` does not exist, makes an image that only its owner may read. Changes
    /// nothing else.
    ///
    /// # Errors
    /// [`DeviceError`] where the device is too small, or in use.
    pub(crate) fn take(place: &TreeLocation, len: u64, holes: bool) -> Result<Self, DeviceError> {
        let (path, found) = (place.path(), PathKind::at(place, true));
        // A link to an image in there is judged by its target.
        let real = place.real_path().map(|path| TreeLocation::from(&*path));
        [Some(place), real.as_ref()].into_iter().flatten().try_for_each(|at| refuse_own(&at.folder()))?;
        let made_in = match found {
            // Like for folders, missing folders are made below a volume's own folder, but not on the way to it.
            PathKind::Nothing if place.below.is_root() => Some(Root::enter(&place.folder())?),
            PathKind::Nothing => Some(Root::prepare(&place.folder())?),
            _ => None,
        };
        let flags = match found {
            PathKind::Nothing => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            PathKind::Device => OFlags::RDWR | OFlags::EXCL,
            PathKind::Image | PathKind::File | PathKind::Other => OFlags::RDWR,
        };
        let mut opened = Opened::open(place, flags, Mode::RUSR | Mode::WUSR)?;
        if opened.is_block() {
            opened.holds(len, &path)?;
        } else {
            lock(&opened, &path)?;
        }
        refuse_used(&opened, &path)?;
        let was = opened.len();
        opened.limit(len);
        Ok(Self { path, opened, was, holes, made_in, written: AtomicU64::new(0) })
    }

    /// Extends an image that is too short. Allocates no room for it.
    pub(crate) fn grow(&self) -> Result<(), DeviceError> {
        if !self.opened.is_block() && self.was < self.len() { self.set_len() } else { Ok(()) }
    }

    fn set_len(&self) -> Result<(), DeviceError> {
        let set = rustix::fs::ftruncate(&self.opened, self.len());
        set.map_err(|error| self.failed("set the length of", error))
    }

    fn failed(&self, operation: &'static str, error: Errno) -> DeviceError {
        DeviceError::System { operation, path: self.path.clone(), source: error.into() }
    }

    /// Returns the open device or image, limited to the length of the source, for reading.
    pub(crate) fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Adds the changed blocks of the source to the parts that can be written.
    pub(crate) fn list_changed(&mut self, ranges: &ChangedRanges) -> Result<(), DeviceError> {
        self.opened.list_changed(ranges, &self.path)
    }

    /// Returns the number of bytes that the run compares and updates.
    pub(crate) fn len(&self) -> u64 {
        self.opened.len()
    }

    /// Returns whether zeros take no space where that is supported.
    pub(crate) fn keeps_holes(&self) -> bool {
        self.holes
    }

    /// Returns whether this run made the image.
    pub(crate) fn is_new(&self) -> bool {
        self.made_in.is_some()
    }

    /// Returns whether this run has written to it, or an image's length differs from the source's.
    pub(crate) fn has_changed(&self) -> bool {
        self.written.load(Relaxed) > 0 || !self.opened.is_block() && self.was != self.len()
    }

    /// Opens a part of it for writing. Fails if the part is not within its length.
    pub(crate) fn part(&self, part: block_device::DevicePart) -> io::Result<Staged> {
        let block_device::DevicePart { start, len, .. } = part;
        let row = self.opened.row(part);
        let all = row.as_ref().map_or(self.len(), |row| row.len());
        let is_within = start.checked_add(len).is_some_and(|end| end <= all);
        let fd = if is_within { self.opened.as_fd().try_clone_to_owned()? } else { return Err(beyond()) };
        let is_block = self.opened.is_block();
        Ok(Staged::part_of(fd, PartWriter::new(start, len, is_block, row)))
    }

    /// Adds the bytes that were written to a finished part to the total, and returns their number.
    pub(crate) fn done(&self, part: &Staged) -> u64 {
        let written = part.as_part().map_or(0, PartWriter::written);
        self.written.fetch_add(written, Relaxed);
        written
    }

    /// Sets an image to the source's length, and makes everything durable.
    pub(crate) fn commit(&self) -> io::Result<()> {
        if !self.opened.is_block() {
            rustix::fs::ftruncate(&self.opened, self.len())?;
        }
        rustix::fs::fsync(&self.opened)?;
        self.made_in.as_ref().map_or(Ok(()), |dir| Ok(rustix::fs::fsync(dir)?))
    }
}

/// Refuses an image that something else uses, such as a loop device or a virtual machine, and a device that another
/// process writes to.
///
/// # Errors
/// [`DeviceError::InUse`].
fn refuse_used(opened: &Opened, path: &std::path::Path) -> Result<(), DeviceError> {
    match if opened.is_block() { writer_of(opened) } else { user_of(opened) } {
        Some(by) => Err(DeviceError::InUse { path: path.into(), by }),
        None => Ok(()),
    }
}

/// Locks an image for this process alone.
fn lock(opened: &Opened, path: &std::path::Path) -> Result<(), DeviceError> {
    match rustix::fs::flock(opened, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(DeviceError::Busy { path: path.into() }),
        Err(error) => Err(DeviceError::System { operation: "lock", path: path.into(), source: error.into() }),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;
    use crate::path::RelPath;

    const LEN: u64 = 1 << 20;

    fn part_at(start: u64, len: u64) -> block_device::DevicePart {
        block_device::DevicePart { start, len, is_of_changed: false }
    }

    fn image(dir: &tempfile::TempDir) -> PathBuf {
        dir.path().join("image")
    }

    #[test]
    fn an_image_is_made_for_its_owner_alone_and_held_by_one_run() {
        let dir = tempfile::tempdir().unwrap();
        let below = RelPath::parse(b"a/image").unwrap();
        let place = TreeLocation { trusted: dir.path().into(), below };
        let device = Device::take(&place, LEN, true).unwrap();
        device.grow().unwrap();
        assert!(device.is_new());
        let made = fs::metadata(dir.path().join("a/image")).unwrap();
        assert_eq!((made.len(), made.permissions().mode() & 0o777), (LEN, 0o600));
        assert!(matches!(Device::take(&place, LEN, true), Err(DeviceError::Busy { .. })));
        drop(device);
        assert!(!Device::take(&place, LEN, true).unwrap().is_new());
    }

    #[test]
    fn what_is_written_stays_within_its_part() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(image(&dir), vec![1; LEN as usize]).unwrap();
        let device = Device::take(&TreeLocation::from(&image(&dir)), LEN, true).unwrap();
        let part = device.part(part_at(4096, 8192)).unwrap();
        part.write_at(&[2; 8000], 192).unwrap();
        part.make_hole(0, 100).unwrap();
        for (offset, len) in [(0, 8193), (8192, 1), (8000, 193), (u64::MAX, 1)] {
            assert!(part.write_at(&vec![3; len as usize], offset).is_err(), "{offset} {len}");
            assert!(part.make_hole(offset, len).is_err(), "{offset} {len}");
        }
        assert!(part.set_len(8192).is_ok() && part.set_len(8191).is_err());
        for beyond in [(LEN, 1), (0, LEN + 1), (u64::MAX, 2)] {
            assert!(device.part(part_at(beyond.0, beyond.1)).is_err());
        }
        assert_eq!(device.done(&part), 8100);
        device.commit().unwrap();
        let mut expected = vec![1; LEN as usize];
        expected[4096..4196].fill(0);
        expected[4288..12_288].fill(2);
        assert!(fs::read(image(&dir)).unwrap() == expected);
    }

    #[test]
    fn changed_blocks_are_written_where_they_are_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(image(&dir), vec![1; LEN as usize]).unwrap();
        let mut device = Device::take(&TreeLocation::from(&image(&dir)), LEN, true).unwrap();
        let ranges = ChangedRanges::new([(100, 50), (4096, 8192), (LEN - 9, 9)]).unwrap();
        device.list_changed(&ranges).unwrap();
        let (_, part) = device.opened().changed_parts().next().unwrap();
        let part = device.part(part).unwrap();
        part.write_at(&[2; 100], 0).unwrap();
        part.make_hole(8000, 251).unwrap();
        assert!(part.write_at(&[3], 8251).is_err() && part.make_hole(8251, 1).is_err());
        assert_eq!(device.done(&part), 351);
        let mut expected = vec![1; LEN as usize];
        expected[100..150].fill(2);
        expected[4096..4146].fill(2);
        expected[4096 + 7950..4096 + 8192].fill(0);
        expected[LEN as usize - 9..].fill(0);
        assert!(fs::read(image(&dir)).unwrap() == expected);
    }

    #[test]
    fn an_image_gets_the_length_of_the_source_and_holes_that_are_there_are_left() {
        let dir = tempfile::tempdir().unwrap();
        fs::File::create(image(&dir)).unwrap().set_len(2 * LEN).unwrap();
        let device = Device::take(&TreeLocation::from(&image(&dir)), LEN, true).unwrap();
        let part = device.part(part_at(0, LEN)).unwrap();
        part.make_hole(0, LEN).unwrap();
        assert_eq!(device.done(&part), 0);
        assert!(device.has_changed(), "it was longer");
        device.commit().unwrap();
        assert_eq!(fs::metadata(image(&dir)).unwrap().len(), LEN);
    }
}
