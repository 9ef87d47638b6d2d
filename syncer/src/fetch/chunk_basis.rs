//! The basis of a file in which bytes may have moved, cut into chunks; and the assembly of the new file.
//!
//! Where the file system can clone, a private clone is made first, which no other process can change. Chunks that
//! stayed in place, or moved by whole blocks, share its extents and are not copied, so a file that grew is not
//! rewritten. Reads still go to the original file, if it is known to be unchanged since the clone, because the page
//! cache has no pages of a clone.

use std::{
    io,
    ops::Range,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
};

use crate::{
    delta::{
        chunk_sizes::ChunkSizes,
        list::{ChunkList, ListBuilder},
    },
    destination::{ClonedAt, Destination, Staged},
    fetch::{
        concatenated_files::{ConcatFiles, FileRange},
        cut_basis::{Cut, cut},
    },
    measure::monitor::Monitor,
    wire::patch::{ChunkPart, Chunks},
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
    /// The offset of each chunk, and its hash and length.
    chunks: Vec<(u64, Cut)>,
}

impl ChunkBasis {
    /// Cuts files of these lengths; one of them may be a `leftover`. Also returns the manifest of the chunks.
    pub(crate) fn cut(
        tree: &Destination,
        files: Vec<(OwnedFd, u64)>,
        leftover: Option<Staged>,
        monitor: &Monitor,
    ) -> io::Result<(Self, ChunkList)> {
        // Parts of several files are not aligned to blocks, unless one of them is this file.
        let may_share = files.len() == 1 || leftover.is_some();
        let clone = |(file, len): &(OwnedFd, u64)| Some((tree.private_clone(file.as_fd())?, *len));
        let clones = may_share.then(|| files.iter().map(clone).collect::<Option<Vec<_>>>()).flatten();
        let (files, clones) = (Arc::new(ConcatFiles::new(files)), clones.map(ConcatFiles::new).map(Arc::new));
        let sizes = ChunkSizes::for_len(files.len());
        let (files, chunks) = match &clones {
            // The page cache may differ from the disk, and so from the clones.
            Some(clones) if tree.doubtful_since().is_some() => {
                (Arc::clone(clones), cut(clones, sizes, monitor)?)
            }
            Some(clones) => cut_cloned(files, clones, sizes, monitor)?,
            None => (Arc::clone(&files), cut(&files, sizes, monitor)?),
        };
        let mut list = ListBuilder::new(sizes);
        chunks.iter().for_each(|(hash, len)| list.push(hash, *len));
        let clones = clones.map(|files| Clones { files, chunks: with_starts(chunks) });
        Ok((Self { files, sizes, clones, leftover }, list.finish().0))
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
                Some((from, _)) if self.share(staged, *from..from + len, at, monitor)? => {
                    made.extend(known.iter().map(|(_, cut)| *cut));
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
    fn known(&self, chunks: &[ChunkPart<'_>]) -> &[(u64, Cut)] {
        let cloned = self.clones.as_ref().map_or(&[][..], |clones| &clones.chunks);
        let from = chunks.first().and_then(|first| first.copied).map(|(from, _)| from);
        let first = from.and_then(|from| cloned.binary_search_by_key(&from, |(start, _)| *start).ok());
        let cloned = first.map_or(&[][..], |first| &cloned[first..]);
        let is_here = |((start, (_, len)), chunk): &(&(u64, Cut), &ChunkPart<'_>)| {
            chunk.copied == Some((*start, *len)) && chunk.literal.is_empty()
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
            if let Some((offset, len)) = chunk.copied {
                buffer.resize(len as usize, 0);
                self.files.read_exact_at(buffer, offset)?;
            }
            buffer.extend_from_slice(chunk.literal);
            staged.write_at(buffer, at)?;
            made.push((blake3::hash(buffer), buffer.len() as u32));
            at += buffer.len() as u64;
        }
        staged.begin_write_back(start, at - start);
        Ok(())
    }
}

/// Returns the chunks of clones, and the files to read them from: as a rule the originals.
fn cut_cloned(
    files: Arc<ConcatFiles>,
    clones: &Arc<ConcatFiles>,
    sizes: ChunkSizes,
    monitor: &Monitor,
) -> io::Result<(Arc<ConcatFiles>, Vec<Cut>)> {
    let cloned: Vec<_> = clones.files().map(ClonedAt::of).collect();
    let are_still = || files.files().zip(&cloned).all(|(file, cloned)| cloned.is_still(file));
    if are_still() {
        let chunks = cut(&files, sizes, monitor)?;
        if are_still() {
            return Ok((files, chunks));
        }
    }
    Ok((Arc::clone(clones), cut(clones, sizes, monitor)?))
}

/// Adds its offset to each chunk.
fn with_starts(chunks: Vec<Cut>) -> Vec<(u64, Cut)> {
    let start = |at: &mut u64, chunk: Cut| Some((std::mem::replace(at, *at + u64::from(chunk.1)), chunk));
    chunks.into_iter().scan(0, start).collect()
}
