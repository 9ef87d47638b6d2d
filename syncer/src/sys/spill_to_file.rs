//! Stores bytes that may exceed memory, such as the names in one directory. A few stay in memory. Many go to an unnamed
//! file, which is mapped for reading, so that the kernel can reclaim its memory.

use std::{
    env,
    fs::File,
    io::{self, BufWriter, Write as _},
};

use bytes::Bytes;
use memmap2::Mmap;

use crate::listing::Row;

/// The number of bytes from which a file is used: those of some 250,000 entries of a directory, and little compared to
/// the 64 MiB of an end.
pub(crate) const SPILL_BYTES: usize = 8 << 20;

/// The size of the writes to the file, because an appended piece may be as short as a name.
const WRITE_BYTES: usize = 64 << 10;

/// Gathers bytes in order.
#[derive(Debug)]
pub(crate) struct Spool {
    /// All bytes, as long as there is no file.
    memory: Vec<u8>,
    file: Option<BufWriter<File>>,
    len: usize,
    most_in_memory: usize,
}

impl Default for Spool {
    fn default() -> Self {
        Self { memory: Vec::new(), file: None, len: 0, most_in_memory: SPILL_BYTES }
    }
}

impl Spool {
    /// Makes a spool that uses a file from the start.
    pub(crate) fn in_file() -> Self {
        Self { most_in_memory: 0, ..Self::default() }
    }

    fn leave_memory(&mut self) -> io::Result<()> {
        match tempfile::tempfile() {
            Ok(file) => {
                let mut file = BufWriter::with_capacity(WRITE_BYTES, file);
                file.write_all(&std::mem::take(&mut self.memory)).map_err(no_room)?;
                self.file = Some(file);
            }
            Err(error) => {
                let folder = env::temp_dir();
                let folder = folder.display();
                tracing::warn!(%folder, %error, "a large directory stays in memory: TMPDIR can name a folder for it");
                self.most_in_memory = usize::MAX;
            }
        }
        Ok(())
    }
}

impl Row for Spool {
    /// The error of a file that accepts no more or cannot be mapped; it names the file's folder.
    type Error = io::Error;

    fn len(&self) -> usize {
        self.len
    }

    // If no temporary file can be made, as in a container that may write nowhere, everything stays in memory.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.len += bytes.len();
        if self.file.is_none() && self.len > self.most_in_memory {
            self.leave_memory()?;
        }
        match &mut self.file {
            Some(file) => file.write_all(bytes).map_err(no_room),
            None => {
                self.memory.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    fn finish(self) -> io::Result<Bytes> {
        match self.file {
            Some(file) => map(&file.into_inner().map_err(|error| no_room(error.into_error()))?),
            None => Ok(self.memory.into_boxed_slice().into()),
        }
    }
}

#[allow(unsafe_code)] // what a large directory takes is the kernel's to take back
fn map(file: &File) -> io::Result<Bytes> {
    // SAFETY: a mapping is unsound where the file is written to or cut while it is read. This one has no name, its only
    // descriptor is closed when this returns, and nothing writes to it any more.
    let mapping = unsafe { Mmap::map(file) }?;
    Ok(Bytes::from_owner(mapping))
}

#[allow(clippy::needless_pass_by_value)] // for `map_err`
fn no_room(error: io::Error) -> io::Error {
    let folder = env::temp_dir();
    let folder = folder.display();
    let what =
        format!("a directory too large for memory cannot be kept in {folder}, which TMPDIR names: {error}");
    io::Error::new(error.kind(), what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        attrs::{Attrs, put_attr},
        entry::{Entry, Kind, Meta, Owner},
        listing::{ListingBuilder, SpillingBuilder},
    };

    #[test]
    fn bytes_come_out_as_they_went_in_wherever_they_were_kept() {
        for most_in_memory in [0, 1, 10, 11, 99, 100, usize::MAX] {
            let mut spool = Spool { most_in_memory, ..Spool::default() };
            let all: Vec<u8> = (0..100).collect();
            all.chunks(11).for_each(|some| spool.append(some).unwrap());
            assert_eq!((spool.len(), spool.file.is_some()), (100, most_in_memory < 100));
            assert_eq!(spool.finish().unwrap(), all, "{most_in_memory}");
        }
        assert!(Spool::default().finish().unwrap().is_empty());
    }

    #[test]
    fn a_file_that_takes_no_more_is_an_error_that_names_its_folder() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut spool = Spool { file: Some(BufWriter::with_capacity(0, full)), ..Spool::default() };
        let error = spool.append(b"more").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(error.to_string().contains(&*env::temp_dir().to_string_lossy()), "{error}");
    }

    #[test]
    fn a_listing_is_the_same_however_it_was_built() {
        for count in [0, 3, 20_000, 60_000] {
            let (mut small, mut large) = (ListingBuilder::default(), SpillingBuilder::<Spool>::default());
            for number in 0..count {
                let name = format!("{number:0200}");
                let mut attrs = Vec::new();
                put_attr(&mut attrs, b"user.number", &[(number % 251) as u8]);
                let owner = Owner { uid: number / 2, gid: 0 };
                let meta = Meta { mode: (number % 7) as u16, owner, ..Meta::default() };
                let attrs = Attrs::trusted(if number % 3 == 0 { &attrs } else { &[] });
                let kind = Kind::File { size: number.into() };
                let entry = Entry { name: name.as_bytes(), kind, meta, attrs };
                small.push(&entry);
                large.push(&entry).unwrap();
            }
            let listing = large.finish().unwrap();
            assert_eq!(listing.encoded_len() > SPILL_BYTES, count == 60_000);
            assert_eq!(listing, small.finish(), "{count}");
        }
    }
}
