//! Sends large files in blocks that all workers share. If the sink has a version of the file, only the granules that
//! differ are sent.

use std::{
    collections::VecDeque,
    io,
    ops::Range,
    slice,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

use crate::{
    block_sizes::block_bytes,
    buffers,
    delta::{
        checked::{BlockCheck, FileVersion, MIN_CHECKED_BYTES},
        granules::Granules,
    },
    hash::{BlockHash, BlockHashes, granule_value, is_one_block},
    measure::{
        monitor::Monitor,
        thread_time::{Activity, during},
    },
    path::RelPath,
    source::{
        read_again::{CHANGED, has_another},
        send_frames::{RequestedFile, SendWorker},
        source_file::{DAMAGED, Origin, SourceFile},
    },
    sys::{file_part::data_in, find_holes::DataMap},
    transport::TransportError,
    wire::{
        check::add_check,
        data::{Block, EndFrame, Failed, Fresh, Whole},
        patch::{BlockHeader, MAX_PARTS, Patch, Segment},
    },
};

impl SendWorker<'_> {
    /// Sends blocks of a large file until workers have taken all of them. The worker that sends the last block ends the
    /// file, or starts it again if it has changed meanwhile.
    pub(crate) fn help(&mut self, large: Arc<Large>) -> Result<(), TransportError> {
        let mut large = large;
        while let Some(taken) = large.next_blocks(self.holes) {
            self.check()?;
            match large.read(&taken, self.holes) {
                Ok(frame) => {
                    self.monitor.add_bytes(taken.end - taken.start);
                    frame.map_or(Ok(()), |frame| self.send(frame))?;
                }
                Err(error) => large.fail(error),
            }
            if large.blocks_done(&taken) {
                match large.end() {
                    Ended::Over(frame) => {
                        self.monitor.add_files(self.origin.files(1));
                        self.send(frame)?;
                    }
                    Ended::Changed => large = Arc::new(large.again(self.origin, self.monitor)),
                }
            }
        }
        Ok(())
    }
}

/// The longest hole of one frame, a multiple of every block: its length shares 64 bits with other fields.
const MAX_HOLE_BYTES: u64 = 1 << 60;

/// A large file that is being sent by several workers.
pub(crate) struct Large {
    path: RelPath,
    file: RequestedFile,
    attempt: u32,
    opened: io::Result<SourceFile>,
    len: u64,
    /// Whether another process may have been writing to it when it was opened.
    in_motion: bool,
    /// The version of a file that is sent with checks.
    version: Option<FileVersion>,
    /// The length of a block.
    block: u64,
    data: DataMap,
    /// The manifest of the sink's basis; used in the first attempt only.
    basis: Option<Mutex<Told>>,
    /// The offset of the first byte that is not taken.
    next: AtomicU64,
    /// The number of bytes that are not sent yet.
    left: AtomicU64,
    failed: AtomicBool,
    state: Mutex<LargeState>,
}

/// The manifest of the sink's basis, as far as it has arrived.
struct Told {
    /// The parts of it that are still needed, and the last one.
    parts: VecDeque<Arc<Granules>>,
}

impl Told {
    /// Returns the offset up to which blocks can be compared.
    fn ready(&self) -> u64 {
        self.parts.back().filter(|last| !last.is_to_the_end()).map_or(u64::MAX, |last| last.end())
    }

    fn of_block(&self, start: u64) -> Option<Arc<Granules>> {
        self.parts.iter().find(|part| (part.start()..part.end()).contains(&start)).cloned()
    }
}

struct LargeState {
    hashes: BlockHashes,
    error: Option<io::Error>,
}

enum Ended {
    Over(Vec<u8>),
    Changed,
}

/// One block, or several that are holes.
struct Taken {
    start: u64,
    end: u64,
    /// The ranges of it that are not holes, if it has any holes.
    data: Option<Vec<Range<u64>>>,
    /// The part of the manifest that covers it.
    basis: Option<Arc<Granules>>,
}

impl Large {
    pub(crate) fn begin(
        origin: Origin<'_>,
        dir: &RelPath,
        file: RequestedFile,
        basis: Option<Granules>,
        monitor: &Monitor,
    ) -> Self {
        let opened = origin.file(file.dir, dir, &file.name, monitor);
        let len = opened.as_ref().map_or(0, SourceFile::len);
        let in_motion = opened.as_ref().is_ok_and(SourceFile::is_in_motion);
        // The version of a file in motion does not tell its content, so no run may continue from blocks of it.
        let checked = opened.as_ref().ok().filter(|_| len >= MIN_CHECKED_BYTES && !in_motion);
        Self {
            version: checked.and_then(SourceFile::version),
            in_motion,
            path: dir.clone(),
            file,
            attempt: 0,
            opened,
            len,
            block: block_bytes(len) as u64,
            data: DataMap::new(len),
            basis: basis.map(|first| Mutex::new(Told { parts: [Arc::new(first)].into() })),
            next: AtomicU64::new(0),
            left: AtomicU64::new(len.max(1)),
            failed: AtomicBool::new(false),
            state: Mutex::new(LargeState { hashes: BlockHashes::new(len), error: None }),
        }
    }

    /// Starts a file again, from its first block, after sending it in chunks has failed.
    pub(crate) fn instead_of_chunks(
        origin: Origin<'_>,
        dir: &RelPath,
        file: RequestedFile,
        monitor: &Monitor,
    ) -> Self {
        Self { attempt: 1, ..Self::begin(origin, dir, file, None, monitor) }
    }

    fn again(&self, origin: Origin<'_>, monitor: &Monitor) -> Self {
        let begun = Self::begin(origin, &self.path, self.file.clone(), None, monitor);
        Self { attempt: self.attempt + 1, ..begun }
    }

    /// Adds a part of the manifest. Returns false if it does not follow the last one.
    pub(crate) fn learn(&self, more: Granules) -> bool {
        let Some(mut told) = self.told() else { return false };
        if !told.parts.back().is_some_and(|last| last.are_followed_by(&more)) {
            return false;
        }
        let rest = self.next.load(Ordering::Relaxed)..self.len;
        told.parts.retain(|part| part.end() > rest.start && part.start() < rest.end);
        told.parts.push_back(Arc::new(more));
        true
    }

    /// Returns whether the file could not be read.
    pub(crate) fn has_failed(&self) -> bool {
        self.opened.is_err() || self.failed.load(Ordering::Relaxed)
    }

    /// Returns whether the whole manifest has arrived.
    pub(crate) fn is_known(&self) -> bool {
        self.told().is_none_or(|told| told.ready() == u64::MAX)
    }

    fn told(&self) -> Option<MutexGuard<'_, Told>> {
        self.basis.as_ref().map(|told| told.lock())
    }

    /// Takes the next block, or the next blocks if they are holes. `None` if none is left, or the manifest has to
    /// arrive first. Even an empty or unreadable file has one block to take, so that a worker ends it.
    fn next_blocks(&self, holes: bool) -> Option<Taken> {
        loop {
            let start = self.next.load(Ordering::Relaxed);
            let ready = self.told().map_or(u64::MAX, |told| told.ready());
            if start >= self.len.max(1).min(ready) {
                return None;
            }
            let mut taken = self.blocks_at(start, holes);
            taken.end = taken.end.min(ready);
            taken.basis = self.told().and_then(|told| told.of_block(start));
            let claimed = self.next.compare_exchange(start, taken.end, Ordering::Relaxed, Ordering::Relaxed);
            if claimed.is_ok() {
                return Some(taken);
            }
        }
    }

    fn blocks_at(&self, start: u64, holes: bool) -> Taken {
        let end = (start + self.block).min(self.len.max(1));
        let Some(opened) = self.opened.as_ref().ok().filter(|opened| holes && opened.has_holes()) else {
            return Taken { start, end, data: None, basis: None };
        };
        let hole_end = self.data.next(opened.content(), start).map_or(self.len, |data| data.start);
        if hole_end >= end {
            let whole = if hole_end == self.len { hole_end } else { hole_end - hole_end % self.block };
            let end = whole.min(start.saturating_add(MAX_HOLE_BYTES));
            return Taken { start, end, data: Some(Vec::new()), basis: None };
        }
        let data = self.data.within(opened.content(), start, end);
        Taken { start, end, data: (data.first() != Some(&(start..end))).then_some(data), basis: None }
    }

    /// Counts blocks that were sent or failed. Returns true for the last one of the file.
    fn blocks_done(&self, taken: &Taken) -> bool {
        let len = taken.end - taken.start;
        self.left.fetch_sub(len, Ordering::AcqRel) == len
    }

    /// Reads and hashes taken blocks. Returns their frame; `None` for an empty file.
    fn read(&self, taken: &Taken, holes: bool) -> io::Result<Option<Vec<u8>>> {
        if self.failed.load(Ordering::Relaxed) {
            return Err(Errno::CANCELED.into());
        }
        let opened = self.opened.as_ref().map_err(|error| io::Error::from(error.kind()))?;
        match &taken.data {
            _ if self.len == 0 => Ok(None),
            Some(data) if data.is_empty() => Ok(Some(self.hole(taken))),
            data => match self.known(taken) {
                Some(known) => Ok(Some(known)),
                None => self.read_block(opened, taken, data.as_deref(), holes).map(Some),
            },
        }
    }

    fn hole(&self, taken: &Taken) -> Vec<u8> {
        let len = taken.end - taken.start;
        let hash = if !is_one_block(self.len) {
            BlockHash::of_hole(len, self.len)
        } else {
            BlockHash::of(&vec![0; len as usize], taken.start, self.len)
        };
        self.set_hash(taken.start, hash);
        let place = self.place(taken.start);
        let patch = Patch { place, segments: vec![Segment::Hole(taken.end - taken.start)] };
        self.checked(patch.encode(), hash)
    }

    /// Returns the frame of a block that the sink checked in an earlier run, if the file has not changed since. The
    /// block is not read.
    fn known(&self, taken: &Taken) -> Option<Vec<u8>> {
        let basis = taken.basis.as_ref().filter(|basis| basis.file_len() == self.len)?;
        let check =
            basis.checked()?.check(taken.start).filter(|check| Some(check.version) == self.version)?;
        self.set_hash(taken.start, BlockHash::Part(check.value));
        let segments = vec![Segment::Kept(taken.end - taken.start)];
        Some(self.checked(
            Patch { place: self.place(taken.start), segments }.encode(),
            BlockHash::Part(check.value),
        ))
    }

    /// Adds the block's check to its frame, if the file is sent with checks.
    fn checked(&self, mut frame: Vec<u8>, hash: BlockHash) -> Vec<u8> {
        if let Some(version) = self.version {
            let value = if let BlockHash::Part(value) = hash { value } else { [0; 32] };
            add_check(&mut frame, &BlockCheck { version, value });
        }
        frame
    }

    /// Reads a block and returns its frame. `data` has the ranges of the block that are not holes, if it has holes.
    /// With `holes`, zeros of a device count as holes, because a device does not report any.
    fn read_block(
        &self,
        opened: &SourceFile,
        taken: &Taken,
        data: Option<&[Range<u64>]>,
        holes: bool,
    ) -> io::Result<Vec<u8>> {
        let (offset, whole) = (taken.start, taken.start..taken.end);
        let ranges = data.unwrap_or(slice::from_ref(&whole));
        let mut frame = buffers::dirty(Block::PREFIX_BYTES + (taken.end - offset) as usize);
        read_ranges(opened, offset, ranges, &mut frame[Block::PREFIX_BYTES..])?;
        let bytes = &frame[Block::PREFIX_BYTES..];
        let found = (holes && opened.is_part()).then(|| data_in(bytes, offset));
        let ranges = found.as_deref().unwrap_or(ranges);
        let mut segments = Segments::default();
        let hash = during(Activity::Hashing, || match &taken.basis {
            Some(basis) if basis.bytes() as u64 <= self.block => {
                segments.compare(bytes, offset, self.len, basis, ranges)
            }
            _ => {
                segments.literal(bytes, offset, ranges);
                BlockHash::of(bytes, offset, self.len)
            }
        });
        let is_hole = matches!(segments.0[..], [Segment::Hole(_)]) && !is_one_block(self.len);
        let hash = if is_hole { BlockHash::of_hole(bytes.len() as u64, self.len) } else { hash };
        self.set_hash(offset, hash);
        if segments.are_literal() || segments.0.len() > MAX_PARTS {
            let block = Block::seal(frame, self.file.need, self.attempt, self.len, offset);
            Ok(self.checked(block, hash))
        } else {
            let patch = Patch { place: self.place(offset), segments: segments.0 }.encode();
            buffers::give_back(frame);
            Ok(self.checked(patch, hash))
        }
    }

    fn set_hash(&self, offset: u64, hash: BlockHash) {
        let is_new = self.state.lock().hashes.set(offset, hash);
        debug_assert!(is_new, "every block is taken by one worker");
    }

    fn place(&self, offset: u64) -> BlockHeader {
        BlockHeader { need: self.file.need, attempt: self.attempt, file_len: self.len, offset }
    }

    fn fail(&self, error: io::Error) {
        // Errors of blocks that were given up because another one had failed are dropped.
        if !self.failed.swap(true, Ordering::Relaxed) {
            self.state.lock().error.get_or_insert(error);
        }
    }

    /// Ends the file: returns its last frame, or that it has changed and has to be sent again.
    fn end(&self) -> Ended {
        let mut state = self.state.lock();
        let opened = self.opened.as_ref();
        // Attributes that were read are valid if the file has not changed since.
        let fresh = opened.map(|opened| opened.fresh(&self.file.meta, self.file.as_listed));
        let changed = opened.is_ok_and(|opened| opened.is_unchanged().is_ok_and(|unchanged| !unchanged));
        if changed && has_another(self.attempt) {
            return Ended::Changed;
        }
        let hash = state.hashes.finish();
        let is_damaged = opened.ok().zip(hash.as_ref()).is_some_and(|(opened, hash)| !opened.is_whole(hash));
        let error = match (&fresh, state.error.take()) {
            (Err(error), _) => Some(error.to_string()),
            (_, Some(error)) => Some(error.to_string()),
            _ if changed => Some(CHANGED.into()),
            _ if is_damaged => Some(DAMAGED.into()),
            (Ok(Err(error)), _) => Some(error.to_string()),
            _ => None,
        };
        let outcome = match (&error, hash, &fresh) {
            (None, Some(hash), Ok(Ok(fresh))) => {
                let fresh = fresh.as_ref();
                let fresh = fresh.map(|it| Fresh { meta: it.meta, attrs: it.attrs.as_attrs() });
                Ok(Whole { file_len: self.len, hash, fresh, in_motion: self.in_motion })
            }
            (error, ..) => Err(Failed { operation: "read", error: error.as_deref().unwrap_or(CHANGED) }),
        };
        Ended::Over(EndFrame { need: self.file.need, attempt: self.attempt, outcome }.encode())
    }
}

/// Reads the data ranges of the block at `offset`, and fills its holes with zeros.
fn read_ranges(opened: &SourceFile, offset: u64, data: &[Range<u64>], block: &mut [u8]) -> io::Result<()> {
    let mut at = 0;
    for range in data {
        let [start, end] = [range.start, range.end].map(|place| (place - offset) as usize);
        block[at..start].fill(0);
        opened.content().read_exact_at(&mut block[start..end], range.start).map_err(shorter_is_changed)?;
        at = end;
    }
    block[at..].fill(0);
    Ok(())
}

/// Reports a file that became shorter as changed.
fn shorter_is_changed(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::other(CHANGED),
        _ => error,
    }
}

/// The segments of one block, merged where possible.
#[derive(Default)]
struct Segments<'a>(Vec<Segment<'a>>);

impl<'a> Segments<'a> {
    /// Compares a block with the sink's basis, granule by granule, and returns the block's hash.
    fn compare(
        &mut self,
        block: &'a [u8],
        offset: u64,
        file_len: u64,
        basis: &Granules,
        data: &[Range<u64>],
    ) -> BlockHash {
        let mut values = Vec::with_capacity(block.len().div_ceil(basis.bytes()));
        for (granule, at) in block.chunks(basis.bytes()).zip((offset..).step_by(basis.bytes())) {
            let value = granule_value(granule, at);
            values.push(value);
            let kept = basis.kept(granule, at, &value);
            self.keep(kept as u64);
            self.literal(&granule[kept..], at + kept as u64, data);
        }
        let hash = BlockHash::of_granules(&values, file_len);
        hash.unwrap_or_else(|| BlockHash::of(block, offset, file_len))
    }

    fn are_literal(&self) -> bool {
        self.0.iter().all(|segment| matches!(segment, Segment::Literal(_)))
    }

    fn keep(&mut self, len: u64) {
        match self.0.last_mut() {
            _ if len == 0 => {}
            Some(Segment::Kept(before)) => *before += len,
            _ => self.0.push(Segment::Kept(len)),
        }
    }

    /// Adds bytes of the block, from `offset` of the file on. All but the `data` ranges are holes.
    fn literal(&mut self, bytes: &'a [u8], offset: u64, data: &[Range<u64>]) {
        let end = offset + bytes.len() as u64;
        let mut at = offset;
        for range in data.iter().filter(|range| range.end > offset && range.start < end) {
            let range = range.start.max(offset)..range.end.min(end);
            self.hole(range.start - at);
            self.bytes(&bytes[(range.start - offset) as usize..(range.end - offset) as usize]);
            at = range.end;
        }
        self.hole(end - at);
    }

    fn hole(&mut self, len: u64) {
        match self.0.last_mut() {
            _ if len == 0 => {}
            Some(Segment::Hole(before)) => *before += len,
            _ => self.0.push(Segment::Hole(len)),
        }
    }

    /// Adds a literal. Literals in a row are not merged, because that would need a copy.
    fn bytes(&mut self, bytes: &'a [u8]) {
        if !bytes.is_empty() {
            self.0.push(Segment::Literal(bytes));
        }
    }
}
