//! A large file while it arrives, its parts in any order.

use std::{collections::BTreeMap, io, ops::Range, sync::Arc};

use blake3::hazmat::ChainingValue;
use parking_lot::{Mutex, RwLock};

use crate::{
    attrs::AttrsBuf,
    block_sizes::block_bytes,
    delta::{
        checked::{BlockCheck, FileVersion},
        list::ListBuilder,
    },
    destination::Staged,
    entry::Meta,
    fetch::{
        chunk_basis::ChunkBasis, cut_in_parallel::Cut, granule_basis::GranuleBasis,
        when_to_note_arrivals::Arrivals,
    },
    hash::{BlockHash, BlockHashes, ContentId, TransferHash, granule_value, is_one_block},
    plan::needed_files::Need,
    sink::writing::Writing,
    transport::TransportError,
    wire::{
        data::{Fresh, Whole},
        patch::{Patch, Segment},
    },
};

/// The basis of a file, as sent to the source.
pub(crate) enum FileBasis {
    /// A staged file, and the granules in it.
    Granules(Arc<GranuleBasis>),
    /// Files that were cut into chunks.
    Chunks(Arc<ChunkBasis>),
}

/// A large file that is arriving.
pub(crate) struct Assembly {
    pub attempt: u32,
    pub file_len: u64,
    pub staged: io::Result<Arc<Staged>>,
    /// Shared by all threads that write to the file. The next attempt waits for them, because a part of a device is the
    /// same file in each attempt.
    pub under_way: Arc<RwLock<()>>,
    /// Held while the file is written to: see [`GranuleBasis::writing`].
    pub writing: Arc<Mutex<()>>,
    pub made: Made,
    /// Blocks that have arrived, if they come with checks.
    pub arrivals: Option<Arrivals>,
    /// Bytes that were not sent.
    pub reused: u64,
    pub expected: Option<Expected>,
}

/// The expected state of a large file when it is complete.
pub(crate) struct Expected {
    pub file_len: u64,
    pub hash: TransferHash,
    pub meta: Meta,
    pub attrs: AttrsBuf,
    pub in_motion: bool,
}

impl Expected {
    /// Takes the values that the source sent, or those of its listing if it sent no newer ones.
    pub(crate) fn new(whole: &Whole<'_>, need: &Need) -> Self {
        let Whole { file_len, hash, fresh, in_motion } = *whole;
        let Fresh { meta, attrs } = fresh.unwrap_or_else(|| as_listed(need));
        Self { file_len, hash, meta, attrs: attrs.into(), in_motion }
    }
}

/// Returns the metadata and attributes of a file that has not changed since it was listed.
pub(crate) fn as_listed(need: &Need) -> Fresh<'_> {
    Fresh { meta: need.meta, attrs: need.attrs.as_attrs() }
}

/// The way in which a file is assembled, and its progress.
pub(crate) enum Made {
    Blocks { hashes: BlockHashes, kept: Option<Arc<GranuleBasis>> },
    Chunks(MadeChunks),
}

/// The chunks that were written to a file, by their offsets.
pub(crate) struct MadeChunks {
    pub old: Arc<ChunkBasis>,
    parts: BTreeMap<u64, Vec<Cut>>,
    len: u64,
}

impl Assembly {
    /// Begins a file whose first frame has this `version`. The basis is used by the first attempt only.
    pub(crate) fn begin(
        writing: Writing<'_>,
        need: &Need,
        attempt: u32,
        file_len: u64,
        version: Option<FileVersion>,
        at_hand: Option<FileBasis>,
    ) -> Self {
        let hashes = || BlockHashes::new(file_len);
        let (staged, made) = match at_hand.filter(|_| attempt == 0) {
            Some(FileBasis::Granules(kept)) => {
                (Some(Arc::clone(kept.staged())), Made::Blocks { hashes: hashes(), kept: Some(kept) })
            }
            Some(FileBasis::Chunks(old)) => {
                (None, Made::Chunks(MadeChunks { old, parts: BTreeMap::new(), len: 0 }))
            }
            None => (None, Made::Blocks { hashes: hashes(), kept: None }),
        };
        let log = match &made {
            Made::Blocks { kept: Some(kept), .. } => kept.take_log(),
            _ => None,
        };
        let staged = staged.map_or_else(|| writing.stage(need).map(Arc::new), Ok);
        let staged = staged.and_then(|staged| staged.set_len(file_len).map(|()| staged));
        let arrivals = Arrivals::begin(log, version, file_len);
        let (staged, arrivals) = match arrivals {
            Ok(arrivals) => (staged, arrivals),
            Err(error) => (Err(error), None),
        };
        let (under_way, writing) = Default::default();
        let mut assembly =
            Self { attempt, file_len, staged, under_way, writing, made, arrivals, reused: 0, expected: None };
        if let Some(kept) = assembly.kept() {
            assembly.writing = Arc::clone(kept.writing());
        }
        assembly
    }

    /// Returns the basis that the staged file began with.
    pub(crate) fn kept(&self) -> Option<&Arc<GranuleBasis>> {
        match &self.made {
            Made::Blocks { kept, .. } => kept.as_ref(),
            Made::Chunks(_) => None,
        }
    }

    /// Takes the staged file to publish it. It has its final length, and no thread writes to it any more: a part is
    /// recorded after it was written, and copying from the basis has stopped.
    pub(crate) fn take(&mut self) -> io::Result<Arc<Staged>> {
        let staged = std::mem::replace(&mut self.staged, Err(io::ErrorKind::NotFound.into()))?;
        if let Some(kept) = self.kept() {
            kept.stop();
            staged.set_len(self.file_len)?;
        }
        Ok(staged)
    }

    /// Returns the leftover of an earlier run, if the file was made from it.
    pub(crate) fn leftover(&self) -> Option<&Staged> {
        match &self.made {
            Made::Chunks(made) => made.old.leftover(),
            Made::Blocks { .. } => None,
        }
    }

    /// Returns whether arrived blocks of the file may have been recorded.
    pub(crate) fn has_log(&self) -> bool {
        self.arrivals.as_ref().is_some_and(Arrivals::has_log)
    }

    /// Gives the file up because it could not be written, and frees its space on the volume.
    pub(crate) fn spoil(&mut self, writing: Writing<'_>, error: io::Error) {
        if let Ok(staged) = std::mem::replace(&mut self.staged, Err(error)) {
            writing.unstage(&staged);
        }
    }

    /// Returns the id of the content once it is complete; `None` if the transfer hash is of another kind.
    pub(crate) fn content_id(&self) -> Option<ContentId> {
        match &self.made {
            Made::Blocks { hashes, .. } => hashes.content_id(),
            Made::Chunks(_) => None,
        }
    }

    /// Returns the hash of the assembled file, once it is complete.
    pub(crate) fn hash(&self) -> Option<TransferHash> {
        match &self.made {
            Made::Blocks { hashes, .. } => hashes.finish(),
            Made::Chunks(made) => (made.len == self.file_len).then(|| made.root()),
        }
    }
}

impl MadeChunks {
    /// Adds consecutive chunks.
    ///
    /// # Errors
    /// If they overlap earlier ones, exceed the file, or are shorter than chunks may be: each takes memory.
    pub(crate) fn add(&mut self, offset: u64, chunks: Vec<Cut>, file_len: u64) -> Result<(), TransportError> {
        let len: u64 = chunks.iter().map(|chunk| u64::from(chunk.len)).sum();
        let may_be_short = usize::from(offset + len == file_len);
        if chunks.iter().rev().skip(may_be_short).any(|chunk| chunk.len < self.old.sizes().min()) {
            return Err(TransportError::Nonsense("a chunk is too short"));
        }
        self.len += len;
        match self.parts.insert(offset, chunks) {
            None if self.len <= file_len => Ok(()),
            _ => Err(TransportError::Nonsense("parts of a file came more than once")),
        }
    }

    fn root(&self) -> TransferHash {
        let mut list = ListBuilder::new(self.old.sizes());
        self.parts.values().flatten().for_each(|chunk| list.push(&chunk.hash, chunk.len));
        TransferHash(*list.root().0.as_bytes())
    }
}

/// Writes a block of segments, or a hole of any number of blocks. Returns the hash.
pub(crate) fn write_patch(
    staged: &Staged,
    kept: Option<&GranuleBasis>,
    patch: &Patch<'_>,
    check: Option<&BlockCheck>,
) -> io::Result<BlockHash> {
    let (start, file_len) = (patch.place.offset, patch.place.file_len);
    if let Some(check) = check.filter(|check| kept.is_some_and(|kept| has_arrived(kept, patch, check))) {
        return Ok(BlockHash::Part(check.value));
    }
    let mut at = start;
    for segment in &patch.segments {
        match segment {
            Segment::Literal(bytes) => staged.write_at(bytes, at)?,
            // A new file has holes wherever it was not written.
            Segment::Hole(len) if kept.is_some() || staged.has_old() => staged.make_hole(at, *len)?,
            Segment::Hole(_) | Segment::Kept(_) => {}
        }
        at += segment.len();
    }
    if patch.is_hole() && !is_one_block(file_len) {
        return Ok(BlockHash::of_hole(at - start, file_len));
    }
    let len = (at - start) as usize;
    // In a file that became much shorter, blocks may be smaller than a granule of the basis.
    let kept = kept.filter(|kept| kept.granule_bytes() <= block_bytes(file_len));
    let granules = kept.and_then(|kept| granule_values(staged, kept, patch, len).transpose()).transpose()?;
    match granules.and_then(|values| BlockHash::of_granules(&values, file_len)) {
        Some(hash) => Ok(hash),
        None => Ok(BlockHash::of(&read_back(staged, start, len)?, start, file_len)),
    }
}

/// Returns whether a patch keeps a whole block that an earlier run has checked, in the version that it is to have.
pub(crate) fn has_arrived(kept: &GranuleBasis, patch: &Patch<'_>, check: &BlockCheck) -> bool {
    let is_whole = matches!(patch.segments[..], [Segment::Kept(_)]);
    let arrived = kept.arrived().filter(|arrived| arrived.file_len() == patch.place.file_len);
    is_whole && arrived.is_some_and(|arrived| arrived.has(patch.place.offset, check))
}

/// Returns the values of the granules of a block. Those of granules kept as a whole are known; the others are read
/// back. Returns `None` if none was kept.
fn granule_values(
    staged: &Staged,
    kept: &GranuleBasis,
    patch: &Patch<'_>,
    len: usize,
) -> io::Result<Option<Vec<ChainingValue>>> {
    let start = patch.place.offset;
    let ranges = kept_ranges(patch);
    if ranges.is_empty() {
        return Ok(None);
    }
    let value = |offset: usize| {
        let size = (len - offset).min(kept.granule_bytes());
        let is_kept = ranges.iter().any(|range| range.start <= offset && offset + size <= range.end);
        match kept.value(start + offset as u64, size).filter(|_| is_kept) {
            Some(value) => Ok(value),
            None => {
                let at = start + offset as u64;
                Ok(granule_value(&read_back(staged, at, size)?, at))
            }
        }
    };
    (0..len).step_by(kept.granule_bytes()).map(value).collect::<io::Result<Vec<_>>>().map(Some)
}

/// Returns the kept ranges of the block, relative to its start.
fn kept_ranges(patch: &Patch<'_>) -> Vec<Range<usize>> {
    let mut at = 0;
    let mut ranges = Vec::new();
    for segment in &patch.segments {
        let end = at + segment.len() as usize;
        if matches!(segment, Segment::Kept(_)) {
            ranges.push(at..end);
        }
        at = end;
    }
    ranges
}

fn read_back(staged: &Staged, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    staged.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}
