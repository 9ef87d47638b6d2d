//! Files that are being written and that nobody can see yet.
//!
//! A new small file is anonymous (`O_TMPFILE`) and gets its name by one `linkat`: a crash leaves nothing behind, and
//! two workers do not meet in a common staging folder. A file that replaces another, or whose content arrives in pieces, is
//! named in `.volferry/staging/` and renamed into place. One in a directory that nobody sees has its name from the start ([`Inside`]). One that is to be written in place has only what changes in it ([`Over`]). A part of
//! a device is nothing of all that: what is written to it is there at once ([`DevicePart`]).

use std::{
    io,
    ops::Range,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat},
    io::Errno,
};

use super::{
    device_part::DevicePart,
    file_io,
    hidden::{HiddenDir, Inside},
    over::Over,
    own::OwnDir,
    private::Identity,
    ranges::RangeChange,
    staging_names::{OWNERS, part_key},
};
use crate::{monitor::Monitor, path::RelPath, root::Root, slice::Slice};

/// A file with content and no visible name. Dropped without [`Staged::publish`], it is gone, or goes when staging is emptied.
#[derive(Debug)]
pub struct Staged {
    fd: OwnedFd,
    name: Option<String>,
    /// Its name in a directory that nobody sees, if it is in one.
    inside: Option<Inside>,
    /// What it lies over, if it only has what changes.
    over: Option<Over>,
    /// What it is of a device, if it is that.
    part: Option<DevicePart>,
}

/// Whether `linkat` takes a bare descriptor; that needs CAP_DAC_READ_SEARCH or Linux 6.10. The other way needs `/proc`.
static LINK_BY_DESCRIPTOR: AtomicBool = AtomicBool::new(true);

impl Staged {
    fn bare(fd: OwnedFd) -> Self {
        Self { fd, name: None, inside: None, over: None, part: None }
    }

    /// A file for a place in `dir`, which is to have these permission bits in the end.
    pub fn create(own: &OwnDir, dir: BorrowedFd<'_>, replaces: bool, mode: u16) -> io::Result<Self> {
        let mode = first_mode(mode);
        if replaces {
            return Self::named(own, mode);
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::openat(dir, c".", flags, mode) {
            Ok(fd) => Ok(Self::bare(fd)),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::named(own, mode),
            Err(error) => Err(error.into()),
        }
    }

    /// A file in staging.
    fn named(own: &OwnDir, mode: Mode) -> io::Result<Self> {
        let name = own.fresh_name();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(own.staging(), &name, flags, mode)?;
        Ok(Self { name: Some(name), ..Self::bare(fd) })
    }

    /// A new file in a directory that nobody sees.
    pub fn inside(dir: &Arc<HiddenDir>, name: &[u8], mode: u16) -> io::Result<Self> {
        let (fd, inside) = Inside::create(dir, name, first_mode(mode))?;
        Ok(Self { inside: Some(inside), ..Self::bare(fd) })
    }

    /// A file in staging for content that arrives in pieces, to be found again by the path that it is for.
    pub fn part(own: &OwnDir, path: &RelPath) -> io::Result<Self> {
        let name = own.part_name(&part_key(path));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(own.staging(), &name, flags, OWNERS)?;
        Ok(Self { name: Some(name), ..Self::bare(fd) })
    }

    /// What a run that was cut off left of the file for this path.
    pub fn leftover(own: &OwnDir, path: &RelPath, monitor: &Monitor) -> Option<Self> {
        let name = own.take_leftover(&part_key(path))?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(own.staging(), &name, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        match own.trusts_staged(&stat) {
            true => Some(Self { name: Some(name), ..Self::bare(fd) }),
            false => Self::copy_of(own, path, &fd, &stat, &name, monitor),
        }
    }

    /// A new file with the content of one that others could write to, and may hold open. What the content is will be checked, as that of any basis.
    fn copy_of(
        own: &OwnDir,
        path: &RelPath,
        fd: &OwnedFd,
        stat: &Stat,
        name: &str,
        monitor: &Monitor,
    ) -> Option<Self> {
        let is_file = FileType::from_raw_mode(stat.st_mode).is_file();
        let copy = is_file.then(|| Self::part(own, path).ok()).flatten();
        let _ = rustix::fs::unlinkat(own.staging(), name, AtFlags::empty());
        let copy = copy?;
        match copy.copy_from(fd.as_fd(), stat.st_size as u64, true, monitor) {
            Ok(()) => Some(copy),
            // A run that is told to stop leaves what was copied so far.
            Err(_) if monitor.cancelled() => None,
            Err(_) => {
                copy.unlink(own);
                None
            }
        }
    }

    /// What changes in the file at `path`, which is written in place in the end. `None` where that has other names, or may not be written to.
    pub fn over(own: &OwnDir, root: &Root, path: &RelPath) -> io::Result<Option<Self>> {
        let Some(over) = Over::new(root, path)? else { return Ok(None) };
        Ok(Some(Self { over: Some(over), ..Self::named(own, OWNERS)? }))
    }

    /// A part of an open device, or of an image.
    pub(super) fn part_of(fd: OwnedFd, part: DevicePart) -> Self {
        Self { part: Some(part), ..Self::bare(fd) }
    }

    /// What it is of a device, if it is that.
    pub(super) fn as_part(&self) -> Option<&DevicePart> {
        self.part.as_ref()
    }

    /// What it lies over, if it only has what changes.
    pub(super) fn below(&self) -> Option<&Over> {
        self.over.as_ref()
    }

    /// Whether it reads as what was there before, wherever nothing was written yet.
    pub fn has_old(&self) -> bool {
        self.over.is_some() || self.part.is_some()
    }

    /// Whether what is written to it is at its place at once.
    pub fn is_part(&self) -> bool {
        self.part.is_some()
    }

    /// What was there before anything was written: its own content, or that of the file that it lies over.
    pub fn basis(&self) -> Slice<'_> {
        match (&self.part, &self.over) {
            (Some(part), _) => part.slice(self.fd.as_fd()),
            (None, Some(over)) => Slice::all_of(over.basis()),
            (None, None) => Slice::all_of(self.fd.as_fd()),
        }
    }

    /// Whether it has its name already.
    pub(super) fn is_inside(&self) -> bool {
        self.inside.is_some()
    }

    /// The name in staging.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The open file.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// How many bytes were there before.
    pub fn basis_len(&self) -> io::Result<u64> {
        match &self.part {
            Some(part) => Ok(part.len()),
            None => Ok(rustix::fs::fstat(self.basis().fd)?.st_size as u64),
        }
    }

    /// Writes all of `bytes` at `offset`.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let Some(part) = &self.part {
            return part.write(self.fd(), bytes, offset);
        }
        file_io::write_all(self.fd(), bytes, offset)?;
        if let Some(over) = &self.over {
            over.wrote(offset..offset + bytes.len() as u64, RangeChange::Data);
        }
        Ok(())
    }

    /// Has what was written in a range on its way to the disk. Of a part of a device that is the end's affair.
    pub fn begin_write_back(&self, offset: u64, len: u64) {
        if self.part.is_none() {
            file_io::begin_write_back(self.fd(), offset, len);
        }
    }

    /// Fills `bytes` with the content from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` where it ends before.
    pub fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.over {
            Some(over) => over.read(self.fd(), bytes, offset),
            None => self.basis().read_exact_at(bytes, offset),
        }
    }

    /// Makes it `len` bytes long; what is added is a hole. A part of a device has to have that length.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        if let Some(part) = &self.part {
            return part.check_len(len);
        }
        Ok(rustix::fs::ftruncate(&self.fd, len)?)
    }

    /// Makes a range within the file's length a hole, or zeros where the file system has no holes.
    pub fn make_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        match (&self.part, &self.over) {
            (Some(part), _) => part.make_hole(self.fd(), offset, len),
            (None, Some(over)) => {
                over.wrote(offset..offset + len, RangeChange::Hole);
                Ok(())
            }
            (None, None) => file_io::make_hole(self.fd(), offset, len),
        }
    }

    /// Makes it a clone of another file, which shares its blocks until one of the two is written to. False where the file system does not
    /// do that.
    pub fn clone_of(&self, from: BorrowedFd<'_>) -> bool {
        rustix::fs::ioctl_ficlone(&self.fd, from).is_ok()
    }

    /// Has a range of another file `at` this offset, sharing its blocks. False, and nothing done, where that cannot be.
    pub fn share(
        &self,
        from: BorrowedFd<'_>,
        range: Range<u64>,
        at: u64,
        monitor: &Monitor,
    ) -> io::Result<bool> {
        file_io::share(from, self.fd(), range, at, monitor)
    }

    /// Takes over `len` bytes of another file; with `holes`, those stay holes.
    pub fn copy_from(
        &self,
        from: BorrowedFd<'_>,
        len: u64,
        holes: bool,
        monitor: &Monitor,
    ) -> io::Result<()> {
        file_io::content(from, self.fd(), len, holes, monitor)
    }

    /// Its number in the file system.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.fd)?.st_ino)
    }

    /// Removes the file. Who still writes to it writes to what nobody will see.
    pub(super) fn unlink(&self, own: &OwnDir) {
        self.inside.iter().for_each(Inside::remove);
        if let Some(name) = &self.name {
            let _ = rustix::fs::unlinkat(own.staging(), name, AtFlags::empty());
        }
    }

    /// Makes the file visible as `name` in `dir`, in place of any file there.
    pub(super) fn publish(&self, own: &OwnDir, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        if let Some(inside) = &self.inside {
            inside.keep();
            return Ok(());
        }
        if self.name.is_none() {
            match self.link(dir, name) {
                Err(Errno::EXIST) => {}
                result => return Ok(result?),
            }
        }
        let result = self.rename(own, dir, name);
        if result.is_err() {
            self.unlink(own);
        }
        result
    }

    /// Makes an anonymous file visible as `name` in `dir`, the directory that it was made in, in place of any file there,
    /// without use of staging.
    pub(super) fn publish_beside(&self, own: &OwnDir, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        if self.name.is_some() {
            self.unlink(own);
            return Err(Errno::XDEV.into());
        }
        let first = own.name_beside();
        self.link(dir, first.as_bytes())?;
        rustix::fs::renameat(dir, &first, dir, name).inspect_err(|_| {
            let _ = rustix::fs::unlinkat(dir, &first, AtFlags::empty());
        })?;
        self.check_published(dir, name)
    }

    fn rename(&self, own: &OwnDir, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        let staged = match &self.name {
            Some(name) => name.clone(),
            None => {
                let name = own.fresh_name();
                self.link(own.staging(), name.as_bytes())?;
                name
            }
        };
        let replaced = self.what_it_replaces(dir, name);
        rustix::fs::renameat(own.staging(), &staged, dir, name)?;
        if let Some(replaced) = replaced {
            let_go(replaced);
        }
        self.check_published(dir, name)
    }

    /// Looks whether the file that was written and checked is the one that has the `name` in `dir` now: it was renamed by its name, which somebody
    /// who can write to staging, or to `dir`, could have given to another.
    fn check_published(&self, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        let there = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match Identity::of(&there) == Identity::of(&rustix::fs::fstat(&self.fd)?) {
            true => Ok(()),
            false => Err(io::Error::other(
                "somebody replaced the file as it was moved into place: what is there now is not what was checked",
            )),
        }
    }

    /// The file of that name, held if it may take long to free.
    fn what_it_replaces(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Option<OwnedFd> {
        let is_large = rustix::fs::fstat(&self.fd).is_ok_and(|stat| stat.st_size >= SLOW_TO_FREE_BYTES);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        is_large.then(|| rustix::fs::openat(dir, name, flags, Mode::empty()).ok()).flatten()
    }

    fn link(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
        link_held(self.fd(), dir, name)
    }
}

/// Gives a file that is held a name.
pub(super) fn link_held(file: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    if LINK_BY_DESCRIPTOR.load(Relaxed) {
        match rustix::fs::linkat(file, c"", dir, name, AtFlags::EMPTY_PATH) {
            Err(Errno::NOENT | Errno::PERM) => LINK_BY_DESCRIPTOR.store(false, Relaxed),
            result => return result,
        }
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, path, dir, name, AtFlags::SYMLINK_FOLLOW)
}

/// Files of this length are freed in the background: for 1 GiB on tmpfs that takes about a tenth of a second, and nobody has to wait for it.
const SLOW_TO_FREE_BYTES: i64 = 16 << 20;

/// Drops, in the background, what may be the last that holds a file.
pub fn let_go<T: Send + 'static>(held: T) {
    // Where there is no thread to be had, it is dropped here.
    let _ = std::thread::Builder::new().spawn(move || drop(held));
}

/// What a file is made with that is to have these permission bits in the end: them, so that they need not be set, unless its owner could then not
/// give it attributes.
fn first_mode(mode: u16) -> Mode {
    let mode = Mode::from_raw_mode((mode & 0o777).into());
    if mode.contains(OWNERS) { mode } else { OWNERS }
}
