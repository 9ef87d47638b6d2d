//! Files that are being written and are not visible yet.
//!
//! - A new small file is anonymous (`O_TMPFILE`) and gets its name by one `linkat`: a crash leaves nothing behind, and
//!   two workers do not meet in a common staging folder.
//! - A file that replaces another, or whose content arrives in pieces, is named in `.volferry/staging/` and renamed
//!   into place.
//! - A file in a directory that is filled out of sight has its name from the start ([`Inside`]).
//! - A file that is written in place has only its changes in staging ([`Overlay`]).
//! - A part of a device is written directly ([`PartWriter`]).

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

use crate::{
    destination::{
        copy_bytes,
        remove_old_versions::{EntryAt, Retire},
        staging::{
            byte_ranges::RangeChange,
            device_part::PartWriter,
            overlay::Overlay,
            staged_dir::{Inside, StagedDir},
        },
        state::{
            leftovers::Leftover,
            staging_names::{OWNERS, key_of, part_key},
            state_dir::StateDir,
        },
    },
    measure::monitor::Monitor,
    path::RelPath,
    sys::{file_part::Slice, root::Root, stat::Identity},
};

/// A file with content and no visible name. If it is dropped before [`Staged::publish`], it is removed, at the latest
/// when staging is emptied.
#[derive(Debug)]
pub struct Staged {
    fd: OwnedFd,
    form: StagedForm,
}

/// The place of a staged file until it is published, and the part of its content that it has.
#[derive(Debug)]
enum StagedForm {
    /// It has no name, so a crash leaves nothing of it.
    Anonymous,
    /// It has this name in staging.
    Named(String),
    /// It has its own name in a directory that is filled out of sight.
    Inside(Inside),
    /// It has this name in staging, and holds only the changes to the file that it is laid over.
    Overlay(String, Overlay),
    /// It is a part of a device, which is written directly.
    Part(PartWriter),
}

/// Whether `linkat` takes a bare descriptor; that needs CAP_DAC_READ_SEARCH or Linux 6.10. The other way needs `/proc`.
static LINK_BY_DESCRIPTOR: AtomicBool = AtomicBool::new(true);

impl Staged {
    /// Makes a staged file for an entry of `dir`, which gets these permission bits in the end.
    pub fn create(state: &StateDir, dir: BorrowedFd<'_>, replaces: bool, mode: u16) -> io::Result<Self> {
        let mode = first_mode(mode);
        if replaces {
            return Self::named(state, mode);
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::openat(dir, c".", flags, mode) {
            Ok(fd) => Ok(Self { fd, form: StagedForm::Anonymous }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::named(state, mode),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a file with a name in staging.
    fn named(state: &StateDir, mode: Mode) -> io::Result<Self> {
        let name = state.fresh_name();
        let fd = create_new(state.staging(), name.as_bytes(), mode)?;
        Ok(Self { fd, form: StagedForm::Named(name) })
    }

    /// Makes the file `name` in a directory that is filled out of sight.
    pub fn inside(dir: &Arc<StagedDir>, name: &[u8], mode: u16) -> io::Result<Self> {
        let fd = create_new(dir.fd(), name, first_mode(mode))?;
        Ok(Self { fd, form: StagedForm::Inside(Inside::new(dir, name)) })
    }

    /// Makes a file in staging for content that arrives in pieces. The next run finds it by the path.
    pub fn part(state: &StateDir, path: &RelPath) -> io::Result<Self> {
        let name = state.part_name(&part_key(path));
        let fd = create_new(state.staging(), name.as_bytes(), OWNERS)?;
        Ok(Self { fd, form: StagedForm::Named(name) })
    }

    /// Takes the partial file that a run that was cut off left for this path.
    pub fn leftover(state: &StateDir, path: &RelPath, monitor: &Monitor) -> Option<Leftover<Self>> {
        let Leftover { part: name, was_tried } = state.take_leftover(&part_key(path))?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(state.staging(), &name, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        let part = if state.trusts_staged(&stat) {
            Self { fd, form: StagedForm::Named(name) }
        } else {
            Self::copy_of(state, path, &fd, &stat, &name, monitor)?
        };
        Some(Leftover { part, was_tried })
    }

    /// Copies a leftover that others could write to, and may hold open, to a new file. Its content is checked, as that
    /// of any basis.
    fn copy_of(
        state: &StateDir,
        path: &RelPath,
        fd: &OwnedFd,
        stat: &Stat,
        name: &str,
        monitor: &Monitor,
    ) -> Option<Self> {
        let is_file = FileType::from_raw_mode(stat.st_mode).is_file();
        let copy = is_file.then(|| Self::part(state, path).ok()).flatten();
        let copied = copy.as_ref().map(|copy| copy.copy_from(fd.as_fd(), stat.st_size as u64, true, monitor));
        match copied {
            Some(Ok(())) => {}
            // A stopped run leaves the file that it found, and removes its partial copy.
            _ if monitor.cancelled() => {
                copy.inspect(|copy| copy.unlink(state));
                return None;
            }
            _ => {
                copy.inspect(|copy| copy.unlink(state));
                let _ = state.drop_staged(name);
                return None;
            }
        }
        let _ = state.drop_staged(name);
        copy
    }

    /// Makes a file in staging for the changes to the file at `path`, which is written in place in the end. `None`
    /// where that file has other names, or may not be written to.
    pub fn overlay(state: &StateDir, root: &Root, path: &RelPath) -> io::Result<Option<Self>> {
        let Some(overlay) = Overlay::new(root, path)? else { return Ok(None) };
        let name = state.fresh_name();
        let fd = create_new(state.staging(), name.as_bytes(), OWNERS)?;
        Ok(Some(Self { fd, form: StagedForm::Overlay(name, overlay) }))
    }

    /// Wraps a part of an open device, or of an image.
    pub(crate) fn part_of(fd: OwnedFd, part: PartWriter) -> Self {
        Self { fd, form: StagedForm::Part(part) }
    }

    /// Returns the writer of a part of a device; `None` for other forms.
    pub(crate) fn as_part(&self) -> Option<&PartWriter> {
        match &self.form {
            StagedForm::Part(part) => Some(part),
            _ => None,
        }
    }

    /// Returns the file that it lies over; `None` if it is not an overlay.
    pub(crate) fn below(&self) -> Option<&Overlay> {
        match &self.form {
            StagedForm::Overlay(_, overlay) => Some(overlay),
            _ => None,
        }
    }

    /// Returns whether it reads as the old content wherever nothing was written yet.
    pub fn has_old(&self) -> bool {
        matches!(self.form, StagedForm::Overlay(..) | StagedForm::Part(_))
    }

    /// Returns whether it is a part of a device, which is written directly.
    pub fn is_part(&self) -> bool {
        matches!(self.form, StagedForm::Part(_))
    }

    /// Returns the content before anything was written: its own, or that of the file that it lies over.
    pub fn basis(&self) -> Slice<'_> {
        match &self.form {
            StagedForm::Part(part) => part.slice(self.fd.as_fd()),
            StagedForm::Overlay(_, overlay) => Slice::all_of(overlay.basis()),
            _ => Slice::all_of(self.fd.as_fd()),
        }
    }

    /// Returns whether it has its final name already.
    pub(crate) fn is_inside(&self) -> bool {
        matches!(self.form, StagedForm::Inside(_))
    }

    /// Returns its name in staging, if it has one.
    pub(crate) fn name(&self) -> Option<&str> {
        match &self.form {
            StagedForm::Named(name) | StagedForm::Overlay(name, _) => Some(name),
            _ => None,
        }
    }

    /// Returns its name in staging, if it is a partial file that the next run can find.
    pub(crate) fn part_name(&self) -> Option<&str> {
        match &self.form {
            StagedForm::Named(name) => Some(name).filter(|name| key_of(name).is_some()).map(|name| &**name),
            _ => None,
        }
    }

    /// Returns the open file.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the length of [`Self::basis`], in bytes.
    pub fn basis_len(&self) -> io::Result<u64> {
        match self.as_part() {
            Some(part) => Ok(part.len()),
            None => Ok(rustix::fs::fstat(self.basis().fd)?.st_size as u64),
        }
    }

    /// Writes all of `bytes` at `offset`.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let Some(part) = self.as_part() {
            return part.write(self.fd(), bytes, offset);
        }
        copy_bytes::write_all(self.fd(), bytes, offset)?;
        if let Some(overlay) = self.below() {
            overlay.wrote(offset..offset + bytes.len() as u64, RangeChange::Data);
        }
        Ok(())
    }

    /// Starts writing a range to the disk. Does nothing for a part of a device, which is synced at the end of the run.
    pub fn begin_write_back(&self, offset: u64, len: u64) {
        if !self.is_part() {
            copy_bytes::begin_write_back(self.fd(), offset, len);
        }
    }

    /// Fills `bytes` with the content from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` where it ends before.
    pub fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match self.below() {
            Some(overlay) => overlay.read(self.fd(), bytes, offset),
            None => self.basis().read_exact_at(bytes, offset),
        }
    }

    /// Sets its length to `len` bytes; added bytes are a hole. Fails for a part of a device that has another length.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        if let Some(part) = self.as_part() {
            return part.check_len(len);
        }
        Ok(rustix::fs::ftruncate(&self.fd, len)?)
    }

    /// Makes a range within the file's length a hole, or zeros where the file system has no holes.
    pub fn make_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        match &self.form {
            StagedForm::Part(part) => part.make_hole(self.fd(), offset, len),
            StagedForm::Overlay(_, overlay) => {
                overlay.wrote(offset..offset + len, RangeChange::Hole);
                Ok(())
            }
            _ => copy_bytes::make_hole(self.fd(), offset, len),
        }
    }

    /// Makes it a clone of another file, which shares its blocks until one of the two is written to. Returns false
    /// where the file system cannot clone.
    pub fn clone_of(&self, from: BorrowedFd<'_>) -> bool {
        rustix::fs::ioctl_ficlone(&self.fd, from).is_ok()
    }

    /// Shares the blocks of a range of another file at offset `at`. Returns false, and does nothing, where that is not
    /// possible.
    pub fn share(
        &self,
        from: BorrowedFd<'_>,
        range: Range<u64>,
        at: u64,
        monitor: &Monitor,
    ) -> io::Result<bool> {
        copy_bytes::share(from, self.fd(), range, at, monitor)
    }

    /// Copies the first `len` bytes of another file; with `holes`, holes stay holes.
    pub fn copy_from(
        &self,
        from: BorrowedFd<'_>,
        len: u64,
        holes: bool,
        monitor: &Monitor,
    ) -> io::Result<()> {
        copy_bytes::content(from, self.fd(), len, holes, monitor)
    }

    /// Returns its inode number.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.fd)?.st_ino)
    }

    /// Removes the file. Later writes to the open file are lost.
    pub(crate) fn unlink(&self, state: &StateDir) {
        if let StagedForm::Inside(inside) = &self.form {
            inside.remove();
        }
        if let Some(name) = self.name() {
            let _ = state.drop_staged(name);
        }
    }

    /// Makes the file visible at its place, replacing the file there.
    pub(crate) fn publish(&self, state: &StateDir, retire: &Retire, at: EntryAt<'_>) -> io::Result<()> {
        if let StagedForm::Inside(inside) = &self.form {
            inside.keep();
            return Ok(());
        }
        if self.name().is_none() {
            let _turn = retire.turn(at)?;
            match self.link(at) {
                Err(Errno::EXIST) => {}
                result => return Ok(result?),
            }
        }
        let result = self.rename(state, retire, at);
        // If the run was told to stop, the file stays, and the next run continues with it.
        if result.is_err() && !at.is_stopped() {
            self.unlink(state);
        }
        result
    }

    /// Makes an anonymous file visible in the directory that it was made in, replacing the file there, without use of
    /// staging.
    pub(crate) fn publish_beside(
        &self,
        state: &StateDir,
        retire: &Retire,
        at: EntryAt<'_>,
    ) -> io::Result<()> {
        if self.name().is_some() {
            self.unlink(state);
            return Err(Errno::XDEV.into());
        }
        let first = state.name_beside();
        let first = EntryAt::staged(at.dir, first.as_bytes());
        self.link(first)?;
        retire.rename_over(first, at, false).inspect_err(|_| drop(first.unlink()))?;
        self.check_published(at)
    }

    fn rename(&self, state: &StateDir, retire: &Retire, at: EntryAt<'_>) -> io::Result<()> {
        let staged = match self.name() {
            Some(name) => name.to_owned(),
            None => {
                let name = state.fresh_name();
                self.link(EntryAt::staged(state.staging(), name.as_bytes()))?;
                name
            }
        };
        retire.rename_over(EntryAt::staged(state.staging(), staged.as_bytes()), at, self.is_large())?;
        self.check_published(at)
    }

    /// Checks that the published file is the one that was written and checked. It was renamed by its name, and a user
    /// with write access to staging or to the directory could have given that name to another file.
    fn check_published(&self, at: EntryAt<'_>) -> io::Result<()> {
        let there = rustix::fs::statat(at.dir, at.name, AtFlags::SYMLINK_NOFOLLOW)?;
        if Identity::of(&there) == Identity::of(&rustix::fs::fstat(&self.fd)?) {
            Ok(())
        } else {
            Err(io::Error::other(
                "another process replaced the file when it was moved into place: the present content was not checked",
            ))
        }
    }

    /// Returns whether a file of this length may take long to free.
    fn is_large(&self) -> bool {
        rustix::fs::fstat(&self.fd).is_ok_and(|stat| stat.st_size >= SLOW_TO_FREE_BYTES)
    }

    fn link(&self, at: EntryAt<'_>) -> Result<(), Errno> {
        link_held(self.fd(), at.dir, at.name)
    }
}

/// Gives a file that is held a name.
pub(crate) fn link_held(file: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    if LINK_BY_DESCRIPTOR.load(Relaxed) {
        match rustix::fs::linkat(file, c"", dir, name, AtFlags::EMPTY_PATH) {
            Err(Errno::NOENT | Errno::PERM) => LINK_BY_DESCRIPTOR.store(false, Relaxed),
            result => return result,
        }
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, path, dir, name, AtFlags::SYMLINK_FOLLOW)
}

/// Files of at least this length are freed in the background, because 1 GiB on tmpfs takes about a tenth of a second.
const SLOW_TO_FREE_BYTES: i64 = 16 << 20;

fn create_new(dir: BorrowedFd<'_>, name: &[u8], mode: Mode) -> io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, flags, mode)?)
}

/// Returns the mode to create a file with, of which `mode` is the final one: the same, which saves setting it, unless
/// its owner could not set attributes then.
fn first_mode(mode: u16) -> Mode {
    let mode = Mode::from_raw_mode((mode & 0o777).into());
    if mode.contains(OWNERS) { mode } else { OWNERS }
}
