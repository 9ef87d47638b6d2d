//! Brings the content of live files into the store: cloned or copied into a file of its own, or packed if it is small.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::OnceLock,
};

use rustix::{
    fs::{FileType, Mode, OFlags, Stat},
    io::Errno,
};

use super::{
    content::{ContentRef, Home, id_of_visited},
    pack::Packing,
    roots::Engine,
    written::{PackedFile, WrittenFiles},
};
use crate::{
    apply::write_all,
    attrs::Attrs,
    entry::{Entry, Kind, Meta, Time},
    hash::ContentId,
    monitor::Monitor,
    path::RelPath,
    scan::stamp_of_stat,
    slice::{Slice, data_in},
    stat::{changed, meta_of, modified},
};

/// Attempts to read a file before it is given up because it keeps changing.
const MAX_ATTEMPTS: u32 = 4;

/// A file at the moment when its content was taken.
#[derive(Debug)]
pub(super) struct TakenFile {
    /// Its content; none if it is empty.
    pub content: Option<ContentRef>,
    /// Its length in bytes.
    pub len: u64,
    /// Its metadata.
    pub meta: Meta,
    /// Its stamp, or 0.
    pub stamp: u64,
    /// Bytes that it added to the store as a file of its own. Packed content counts with the pack.
    pub added: u64,
}

impl TakenFile {
    /// Returns the listing's entry for the file.
    pub(super) fn entry<'a>(&self, name: &'a [u8], attrs: Attrs<'a>) -> Entry<'a> {
        Entry { name, kind: Kind::File { size: self.len }, meta: self.meta, attrs }
    }
}

/// Takes files into the store.
#[derive(Debug)]
pub(super) struct Keeper<'a> {
    pub packing: &'a Packing<'a>,
    pub engine: Engine,
    /// Files that changed at this time or later get no stamp.
    pub before: Time,
    /// The files that the preceding run wrote.
    pub written: Option<&'a WrittenFiles>,
    pub monitor: &'a Monitor,
    /// The first error of writing to the store, or the stop, which ends the publication.
    pub broken: OnceLock<io::Error>,
}

impl Keeper<'_> {
    /// Takes the content of the file `name` in `dir`. `old` is its content in the last snapshot.
    ///
    /// # Errors
    /// If it cannot be read, or keeps changing.
    pub(super) fn take(
        &self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        old: Option<ContentRef>,
    ) -> io::Result<TakenFile> {
        self.go_on()?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        let mut stat = regular(&file)?;
        for _ in 0..MAX_ATTEMPTS {
            let content = self.attempt(&file, &stat, old);
            let after = regular(&file)?;
            if key(&stat) == key(&after) {
                let (content, added) = content?;
                return Ok(self.taken(content, &stat, added));
            }
            stat = after;
        }
        Err(io::Error::other("the file kept changing while it was read"))
    }

    /// Returns the new files of a directory that the run has packed, from the first of these names on.
    pub(super) fn packed<'a>(
        &'a self,
        dir: &RelPath,
        first: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], PackedFile)> + use<'a> {
        let written = self.written.filter(|_| self.packing.has_begun());
        written.map(|written| written.packed(dir, first)).into_iter().flatten()
    }

    /// Takes the content of a new file from the pack that the run began, or from the last snapshot if that has the same
    /// content, undamaged.
    ///
    /// # Errors
    /// If the store cannot be written to, or the publication is told to stop.
    pub(super) fn take_packed(&self, file: &PackedFile, old: Option<ContentRef>) -> io::Result<ContentRef> {
        self.go_on()?;
        let PackedFile { entry, id, offset } = *file;
        match old.filter(|old| old.id == id && self.is_stored(old, entry.size)) {
            Some(old) => Ok(old),
            None => Ok(ContentRef { id, home: self.stored(self.packing.begun(offset))? }),
        }
    }

    /// Checks for a stop, which ends the publication as an error of the store does.
    fn go_on(&self) -> io::Result<()> {
        self.stored(self.monitor.check())
    }

    fn taken(&self, content: Option<ContentRef>, stat: &Stat, added: u64) -> TakenFile {
        let (meta, stamp) = (meta_of(stat), stamp_of_stat(stat, self.before));
        TakenFile { content, len: stat.st_size as u64, meta, stamp, added }
    }

    fn attempt(
        &self,
        file: &OwnedFd,
        stat: &Stat,
        old: Option<ContentRef>,
    ) -> io::Result<(Option<ContentRef>, u64)> {
        let len = stat.st_size as u64;
        if len == 0 {
            return Ok((None, 0));
        }
        let (content, added) = match self.engine.packs(len) {
            // Packed content counts with the length of the pack.
            true => (self.pack(file, len, old)?, 0),
            false => self.own(file, stat, len)?,
        };
        Ok((Some(content), added))
    }

    fn pack(&self, file: &OwnedFd, len: u64, old: Option<ContentRef>) -> io::Result<ContentRef> {
        let mut bytes = vec![0; len as usize];
        Slice::all_of(file.as_fd()).read_exact_at(&mut bytes, 0)?;
        let id = ContentId::of(&bytes);
        match old.filter(|old| old.id == id && self.is_stored(old, len)) {
            Some(old) => Ok(old),
            None => Ok(ContentRef { id, home: self.stored(self.packing.content(id, &bytes))? }),
        }
    }

    fn own(&self, file: &OwnedFd, stat: &Stat, len: u64) -> io::Result<(ContentRef, u64)> {
        let (to, part) = self.stored(self.packing.create())?;
        let filled = self.fill(file, stat, &to, len);
        let done = filled.and_then(|id| {
            let is_stored = self.is_stored(&ContentRef { id, home: Home::Own }, len);
            Ok((id, self.stored(self.packing.name(&part, id, is_stored))?))
        });
        let (id, is_new) = done.inspect_err(|_| self.packing.discard(&part))?;
        Ok((ContentRef { id, home: Home::Own }, if is_new { len } else { 0 }))
    }

    /// Returns whether the store has this content undamaged. If not, the file's content replaces the damaged one.
    fn is_stored(&self, content: &ContentRef, len: u64) -> bool {
        self.packing.is_stored(content, len, &|_, _| self.go_on())
    }

    /// Remembers the first error of writing to the store, which is not an error of the file that is being read.
    fn stored<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| {
            let first =
                error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
            let _ = self.broken.set(first);
        })
    }

    fn fill(&self, from: &OwnedFd, stat: &Stat, to: &OwnedFd, len: u64) -> io::Result<ContentId> {
        if self.engine == Engine::Clone {
            match rustix::fs::ioctl_ficlone(to, from) {
                // A file that the run wrote need not be read again: its status is checked again after the clone.
                Ok(()) => {
                    let known = self.written.and_then(|written| written.id_of(stat));
                    let read = || id_of_visited(Slice::all_of(to.as_fd()), len, &|_, _| self.go_on());
                    return known.map_or_else(read, Ok);
                }
                // The file is on another file system below the volume's root.
                Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::INVAL) => {}
                Err(error) => return self.stored(Err(error.into())),
            }
        }
        self.stored(rustix::fs::ftruncate(to, len).map_err(io::Error::from))?;
        let has_holes = (stat.st_blocks as u64) * 512 < len;
        id_of_visited(Slice::all_of(from.as_fd()), len, &|bytes, offset| {
            self.go_on()?;
            match has_holes {
                false => self.stored(write_all(to.as_fd(), bytes, offset)),
                true => data_in(bytes, offset).into_iter().try_for_each(|data| {
                    let inside = (data.start - offset) as usize..(data.end - offset) as usize;
                    self.stored(write_all(to.as_fd(), &bytes[inside], data.start))
                }),
            }
        })
    }
}

fn regular(file: &OwnedFd) -> io::Result<Stat> {
    let stat = rustix::fs::fstat(file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(stat),
        _ => Err(io::Error::other("it is no longer a regular file")),
    }
}

fn key(stat: &Stat) -> (i64, Time, Time) {
    (stat.st_size, modified(stat), changed(stat))
}
