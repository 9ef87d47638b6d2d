//! Brings the content of live files into the store: cloned or copied into a file of its own, or packed if it is small.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::OnceLock,
};

use rustix::{fs::Stat, io::Errno};

use super::{
    read_until_quiet::{Attempt, KeptRead, OpenedFile, ReadLive, ScanTerms, is_unwritten, read_until_quiet},
    written_by_run::{PackedFile, WrittenFiles},
};
use crate::{
    attrs::{Attrs, AttrsBuf},
    destination::write_all,
    entry::{Entry, Kind, Meta},
    hash::ContentId,
    monitor::Monitor,
    path::RelPath,
    snapshot::store::{ContentRef, Engine, Home, Packing, PartFile, id_of_visited, write_data},
    sys::{
        file_part::Slice,
        find_holes::has_holes,
        stat::{Identity, meta_of, regular},
    },
};

/// A file at the moment when its content was taken.
#[derive(Debug, Clone)]
pub(crate) struct LiveFile {
    /// The file itself, whatever names lead to it.
    pub identity: Identity,
    /// Its content; none if it is empty.
    pub content: Option<ContentRef>,
    /// Its length in bytes.
    pub len: u64,
    /// Its metadata.
    pub meta: Meta,
    /// Its attributes; `None` if they are those that the scan has listed.
    pub attrs: Option<AttrsBuf>,
    /// Its stamp, 0, or [`IN_MOTION`](crate::tree::stamps::IN_MOTION).
    pub stamp: u64,
    /// Whether it changed in each attempt to read it.
    pub kept_changing: bool,
    /// Bytes that it added to the store as a file of its own. Packed content counts with the pack.
    pub added: u64,
}

impl LiveFile {
    /// Returns the listing's entry for the file, for which the scan has listed these attributes.
    pub(crate) fn entry<'a>(&'a self, name: &'a [u8], listed: Attrs<'a>) -> Entry<'a> {
        let attrs = self.attrs.as_ref().map_or(listed, AttrsBuf::as_attrs);
        Entry { name, kind: Kind::File { size: self.len }, meta: self.meta, attrs }
    }
}

/// Takes files into the store.
#[derive(Debug)]
pub(crate) struct FileStorer<'a> {
    pub packing: &'a Packing<'a>,
    pub engine: Engine,
    pub terms: ScanTerms,
    /// The files that the preceding run wrote.
    pub written: Option<&'a WrittenFiles>,
    pub monitor: &'a Monitor,
    /// The first error of writing to the store, or the stop, which ends the publication.
    pub broken: OnceLock<io::Error>,
}

impl FileStorer<'_> {
    /// Takes the content of an open file, which has the stamp `listed` in its listing. `old` is its content in the last
    /// snapshot.
    pub(crate) fn store_file(
        &self,
        opened: OpenedFile,
        listed: u64,
        old: Option<ContentRef>,
    ) -> io::Result<LiveFile> {
        self.go_on()?;
        let KeptRead { content, stat, attrs, stamp, kept_changing } =
            read_until_quiet(&mut &*self, opened, listed, self.terms)?;
        let StoredRead { content, len, added } = self.store_read(content, old)?;
        let (identity, meta) = (Identity::of(&stat), meta_of(&stat));
        Ok(LiveFile { identity, content, len, meta, attrs, stamp, kept_changing, added })
    }

    /// Returns the new files of a directory that the run has packed, from the first of these names on.
    pub(crate) fn packed<'a>(
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
    pub(crate) fn store_packed(&self, file: &PackedFile, old: Option<ContentRef>) -> io::Result<ContentRef> {
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

    /// Stores what was read of a file.
    fn store_read(&self, read: ReadContent, old: Option<ContentRef>) -> io::Result<StoredRead> {
        match read {
            ReadContent::Small(bytes) => {
                // Packed content counts with the length of the pack.
                let content = if bytes.is_empty() { None } else { Some(self.pack(&bytes, old)?) };
                Ok(StoredRead { content, len: bytes.len() as u64, added: 0 })
            }
            ReadContent::Own { part, id, len } => {
                let content = ContentRef { id, home: Home::Own };
                let is_stored = self.is_stored(&content, len);
                let is_new = self.stored(self.packing.name(&part, id, is_stored))?;
                Ok(StoredRead { content: Some(content), len, added: if is_new { len } else { 0 } })
            }
        }
    }

    fn pack(&self, bytes: &[u8], old: Option<ContentRef>) -> io::Result<ContentRef> {
        let id = ContentId::of(bytes);
        match old.filter(|old| old.id == id && self.is_stored(old, bytes.len() as u64)) {
            Some(old) => Ok(old),
            None => Ok(ContentRef { id, home: self.stored(self.packing.content(id, bytes))? }),
        }
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

    /// Fills a file of the store with a clone or a copy of another file.
    fn fill(&self, from: &OwnedFd, stat: &Stat, part: &PartFile) -> io::Result<Attempt<ReadContent>> {
        let to = &part.file;
        let read = |id, len, after, is_clone| {
            let content = ReadContent::Own { part: part.name.clone(), id, len };
            Attempt { content, after, is_clone }
        };
        if self.engine == Engine::Clone {
            match rustix::fs::ioctl_ficlone(to, from) {
                // Nothing changes a clone any more, so only a change before it counts.
                Ok(()) => {
                    let (after, len) = (regular(from)?, rustix::fs::fstat(to)?.st_size as u64);
                    // A file that the run wrote need not be read again.
                    let known = self.written.filter(|_| is_unwritten(stat, &after));
                    let known = known.and_then(|written| written.id_of(stat));
                    let hash = || id_of_visited(Slice::all_of(to.as_fd()), len, &|_, _| self.go_on());
                    return Ok(read(known.map_or_else(hash, Ok)?, len, after, true));
                }
                // The file is on another file system below the volume's root.
                Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::INVAL) => {}
                Err(error) => return self.stored(Err(error.into())),
            }
        }
        let len = stat.st_size as u64;
        self.stored(rustix::fs::ftruncate(to, len).map_err(io::Error::from))?;
        let has_holes = has_holes(stat);
        let id = id_of_visited(Slice::all_of(from.as_fd()), len, &|bytes, offset| {
            self.go_on()?;
            let write = if has_holes { write_data } else { write_all };
            self.stored(write(to.as_fd(), bytes, offset))
        })?;
        Ok(read(id, len, regular(from)?, false))
    }
}

impl ReadLive for &FileStorer<'_> {
    type Content = ReadContent;
    type Error = io::Error;

    fn clones(&self, stat: &Stat) -> bool {
        self.engine == Engine::Clone && !self.engine.packs(stat.st_size as u64)
    }

    /// Reads a file into memory or into a file of the store.
    fn read(&mut self, file: &OwnedFd, stat: &Stat) -> io::Result<Attempt<ReadContent>> {
        let len = stat.st_size as u64;
        if len > 0 && !self.engine.packs(len) {
            let part = self.stored(self.packing.create())?;
            return self.fill(file, stat, &part).inspect_err(|_| self.packing.discard(&part.name));
        }
        let mut bytes = vec![0; len as usize];
        Slice::all_of(file.as_fd()).read_exact_at(&mut bytes, 0)?;
        Ok(Attempt { content: ReadContent::Small(bytes), after: regular(file)?, is_clone: false })
    }

    fn discard(&self, read: &ReadContent) {
        if let ReadContent::Own { part, .. } = read {
            self.packing.discard(part);
        }
    }

    fn is_of_store(&self, _: &io::Error) -> bool {
        self.broken.get().is_some()
    }
}

/// What was read of a file, and is not part of the snapshot yet.
pub(crate) enum ReadContent {
    /// Content that is packed.
    Small(Vec<u8>),
    /// Content in a file of the store that has no final name.
    Own { part: String, id: ContentId, len: u64 },
}

/// What was read of a file and is in the store. The fields are those of [`LiveFile`].
struct StoredRead {
    content: Option<ContentRef>,
    len: u64,
    added: u64,
}
