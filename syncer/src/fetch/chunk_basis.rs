//! The basis of a file in which bytes may have moved, cut into chunks; and the assembly of the new file.
//!
//! Where the file system can clone, a private clone is made first, which no other process can change. Chunks that
//! stayed in place, or moved by whole blocks, share its extents and are not copied, so a file that grew is not
//! rewritten. Reads still go to the original file, if it is known to be unchanged since the clone, because the page
//! cache has no pages of a clone.

use std::{io, ops::Range, os::fd::AsFd as _, sync::Arc};

use crate::{
    delta::{
        chunk_sizes::ChunkSizes,
        list::{ChunkList, ListBuilder},
    },
    destination::{ClonedAt, Destination, Staged},
    fetch::{
        concatenated_files::{ConcatFiles, FileRange},
        cut_in_parallel::{Cut, cut},
    },
    measure::monitor::Monitor,
    sys::file_part::SizedFile,
    wire::patch::{ChunkPart, Chunks, Copied},
};

/// The shortest run of chunks, in bytes, that shares extents: for shorter ones, writing is faster than mapping their
/// blocks.
const MIN_SHARED_BYTES: u64 = 256 << 10;

/// Old files, cut into chunks.
pub(crate) struct ChunkBasis {
    /// The files that are read.
    files: Arc<ConcatFiles>,
    sizes: ChunkSizes,
    clones: Option<Clones>,
    /// One of the files, if an earlier run left it.
    leftover: Option<Staged>,
}

/// Private clones of the old files.
struct Clones {
    files: Arc<ConcatFiles>,
    chunks: Vec<ClonedChunk>,
}

struct ClonedChunk {
    /// Its offset in the clones.
    start: u64,
    cut: Cut,
}

/// A basis, and the manifest of its chunks.
pub(crate) struct ListedBasis {
    pub basis: ChunkBasis,
    pub list: ChunkList,
}

impl ChunkBasis {
    /// Cuts files; one of them may be a `leftover`.
    pub(crate) fn cut(
        tree: &Destination,
        files: Vec<SizedFile>,
        leftover: Option<Staged>,
        monitor: &Monitor,
    ) -> io::Result<ListedBasis> {
        // Parts of several files are not aligned to blocks, unless one of them is this file.
        let may_share = files.len() == 1 || leftover.is_some();
        let clone = |SizedFile { file, len }: &SizedFile| {
            Some(SizedFile { file: tree.private_clone(file.as_fd())?, len: *len })
        };
        let clones = may_share.then(|| files.iter().map(clone).collect::<Option<Vec<_>>>()).flatten();
        let (files, clones) = (Arc::new(ConcatFiles::new(files)), clones.map(ConcatFiles::new).map(Arc::new));
        let sizes = ChunkSizes::for_len(files.len());
        let known = match &clones {
            // The page cache may differ from the disk, and so from the clones.
            Some(_) if tree.doubtful_since().is_some() => None,
            Some(clones) => cut_cloned(&files, clones, sizes, monitor)?,
            None => Some(cut(&files, sizes, monitor)?),
        };
        let files = clones.as_ref().filter(|_| known.is_none()).map_or(files, Arc::clone);
        let chunks = known.map_or_else(|| cut(&files, sizes, monitor), Ok)?;
        let mut list = ListBuilder::new(sizes);
        chunks.iter().for_each(|chunk| list.push(&chunk.hash, chunk.len));
        let clones = clones.map(|files| Clones { files, chunks: with_starts(chunks) });
        Ok(ListedBasis { basis: Self { files, sizes, clones, leftover }, list: list.finish() })
    }

    /// Returns the sizes of the chunks.
    pub(crate) fn sizes(&self) -> ChunkSizes {
        self.sizes
    }

    /// Returns the leftover of an earlier run, which is not needed any more when the file is complete.
    pub(crate) fn leftover(&self) -> Option<&Staged> {
        self.leftover.as_ref()
    }

    /// Writes chunks to their place in `staged`, using `buffer`. Returns their hashes and lengths in order.
    pub(crate) fn write(
        &self,
        staged: &Staged,
        chunks: &Chunks<'_>,
        buffer: &mut Vec<u8>,
        monitor: &Monitor,
    ) -> io::Result<Vec<Cut>> {
        let (mut at, mut rest) = (chunks.place.offset, &chunks.chunks[..]);
        let mut made = Vec::with_capacity(rest.len());
        while !rest.is_empty() {
            let known = self.known(rest);
            let (run, behind) = rest.split_at(known.len().max(1));
            let len = run.iter().map(ChunkPart::len).sum::<u64>();
            match known.first() {
                Some(first) if self.share(staged, first.start..first.start + len, at, monitor)? => {
                    made.extend(known.iter().map(|chunk| chunk.cut));
                }
                _ => {
                    monitor.check()?;
                    self.copy(staged, run, at, buffer, &mut made)?;
                }
            }
            (at, rest) = (at + len, behind);
        }
        Ok(made)
    }

    /// Returns the cloned chunks that match the first of `chunks`, as far as both continue alike.
    fn known(&self, chunks: &[ChunkPart<'_>]) -> &[ClonedChunk] {
        let cloned = self.clones.as_ref().map_or(&[][..], |clones| &clones.chunks);
        let from = chunks.first().and_then(|first| first.copied);
        let first = from.and_then(|from| cloned.binary_search_by_key(&from.offset, |chunk| chunk.start).ok());
        let cloned = first.map_or(&[][..], |first| &cloned[first..]);
        let is_here = |(cloned, chunk): &(&ClonedChunk, &ChunkPart<'_>)| {
            let place = Copied { offset: cloned.start, len: cloned.cut.len };
            chunk.copied == Some(place) && chunk.literal.is_empty()
        };
        &cloned[..cloned.iter().zip(chunks).take_while(is_here).count()]
    }

    /// Makes `staged` share a range of the clones at offset `at`; returns false if the range has to be copied.
    fn share(&self, staged: &Staged, range: Range<u64>, at: u64, monitor: &Monitor) -> io::Result<bool> {
        let len = range.end - range.start;
        match self.clones.as_ref().and_then(|clones| clones.files.place(range)) {
            Some(FileRange { file, offset }) if len >= MIN_SHARED_BYTES => {
                staged.share(file, offset..offset + len, at, monitor)
            }
            _ => Ok(false),
        }
    }

    fn copy(
        &self,
        staged: &Staged,
        chunks: &[ChunkPart<'_>],
        start: u64,
        buffer: &mut Vec<u8>,
        made: &mut Vec<Cut>,
    ) -> io::Result<()> {
        let mut at = start;
        for chunk in chunks {
            buffer.clear();
            if let Some(Copied { offset, len }) = chunk.copied {
                buffer.resize(len as usize, 0);
                self.files.read_exact_at(buffer, offset)?;
            }
            buffer.extend_from_slice(chunk.literal);
            staged.write_at(buffer, at)?;
            made.push(Cut { hash: blake3::hash(buffer), len: buffer.len() as u32 });
            at += buffer.len() as u64;
        }
        staged.begin_write_back(start, at - start);
        Ok(())
    }
}

/// Cuts files of which there are clones; returns `None` if they have changed since.
fn cut_cloned(
    files: &ConcatFiles,
    clones: &ConcatFiles,
    sizes: ChunkSizes,
    monitor: &Monitor,
) -> io::Result<Option<Vec<Cut>>> {
    let cloned: Vec<_> = clones.files().map(ClonedAt::of).collect();
    let are_still = || files.files().zip(&cloned).all(|(file, cloned)| cloned.is_still(file));
    let chunks = if are_still() { Some(cut(files, sizes, monitor)?) } else { None };
    Ok(chunks.filter(|_| are_still()))
}

/// Adds its offset to each chunk.
fn with_starts(chunks: Vec<Cut>) -> Vec<ClonedChunk> {
    let cloned = |at: &mut u64, cut: Cut| {
        Some(ClonedChunk { start: std::mem::replace(at, *at + u64::from(cut.len)), cut })
    };
    chunks.into_iter().scan(0, cloned).collect()
}
