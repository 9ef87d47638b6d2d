//! Large files, in blocks that all workers share: as they are, or, where the sink has a version of the file, in what of
//! each granule is not the same.

use std::{
    collections::VecDeque,
    io,
    ops::Range,
    slice,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use rustix::io::Errno;

use crate::{
    buffers,
    delta::{
        checked::{BlockCheck, FileVersion, MIN_CHECKED_BYTES},
        granules::Granules,
    },
    effort::{Activity, during},
    hash::{BlockHash, BlockHashes, block_bytes, granule_value, is_one_block},
    monitor::Monitor,
    path::RelPath,
    session::{
        reading::{
            data_map::DataMap,
            source_file::{CHANGED, DAMAGED, MAX_ATTEMPTS, Origin, SourceFile},
        },
        source::frames::{RequestedFile, SendWorker},
    },
    slice::data_in,
    transport::TransportError,
    wire::{
        check::add_check,
        data::{Block, EndFrame, Failed, Fresh, Whole},
        patch::{BlockHeader, MAX_PARTS, Patch, Segment},
    },
};

impl SendWorker<'_> {
    /// Sends blocks of a large file until all are taken by this worker or others. Whoever sends the last one ends the
    /// file, or, if the file has changed meanwhile, begins it anew.
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

/// A large file that is being sent by several workers.
pub(crate) struct Large {
    path: RelPath,
    file: RequestedFile,
    attempt: u32,
    opened: io::Result<SourceFile>,
    len: u64,
    /// The state of a file that is sent with checks.
    version: Option<FileVersion>,
    /// The length of a block.
    block: u64,
    data: DataMap,
    /// What the sink has; only a first attempt makes use of it.
    basis: Option<Mutex<Told>>,
    /// The first byte that nobody has taken.
    next: AtomicU64,
    /// Bytes that are not done with.
    left: AtomicU64,
    failed: AtomicBool,
    state: Mutex<LargeState>,
}

/// What the sink has said of what it has, which it says in parts.
struct Told {
    /// Those that are needed still, and the last.
    parts: VecDeque<Arc<Granules>>,
}

impl Told {
    /// What can be compared by now ends here.
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
    /// What of it is not a hole, if anything is one.
    data: Option<Vec<Range<u64>>>,
    /// What the sink has of it.
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
        let checked = opened.as_ref().ok().filter(|_| len >= MIN_CHECKED_BYTES);
        Self {
            version: checked.and_then(SourceFile::version),
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

    /// A file that was begun in chunks, from its start.
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

    /// Takes more of what the sink has; false if it does not follow on what was said before.
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

    /// Whether it could not be read.
    pub(crate) fn has_failed(&self) -> bool {
        self.opened.is_err() || self.failed.load(Ordering::Relaxed)
    }

    /// Whether the sink has said all of what it has.
    pub(crate) fn is_known(&self) -> bool {
        self.told().is_none_or(|told| told.ready() == u64::MAX)
    }

    fn told(&self) -> Option<MutexGuard<'_, Told>> {
        self.basis.as_ref().map(|told| told.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the next block that nobody has taken, or the next blocks that are holes; `None` where none is left, or the
    /// sink has to say first what it has. Even an empty or unreadable file has something to be taken, so that somebody
    /// ends it.
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
            return Taken { start, end: whole, data: Some(Vec::new()), basis: None };
        }
        let data = self.data.within(opened.content(), start, end);
        Taken { start, end, data: (data.first() != Some(&(start..end))).then_some(data), basis: None }
    }

    /// Says that what was taken was sent, or failed; true for the last.
    fn blocks_done(&self, taken: &Taken) -> bool {
        let len = taken.end - taken.start;
        self.left.fetch_sub(len, Ordering::AcqRel) == len
    }

    /// Reads and hashes what was taken. Its frame; of an empty file there is none.
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
        let hash = match is_one_block(self.len) {
            false => BlockHash::of_hole(len, self.len),
            true => BlockHash::of(&vec![0; len as usize], taken.start, self.len),
        };
        self.set_hash(taken.start, hash);
        let place = self.place(taken.start);
        let patch = Patch { place, segments: vec![Segment::Hole(taken.end - taken.start)] };
        self.checked(patch.encode(), hash)
    }

    /// Makes the frame of a block that the sink checked in an earlier run, when the file was as it is now. The block is
    /// not read.
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

    /// `data` is what of the block is not a hole, where it has one. A device does not say where it has some: there,
    /// with `holes`, zeros are.
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
        match segments.are_literal() || segments.0.len() > MAX_PARTS {
            true => {
                let block = Block::seal(frame, self.file.need, self.attempt, self.len, offset);
                Ok(self.checked(block, hash))
            }
            false => {
                let patch = Patch { place: self.place(offset), segments: segments.0 }.encode();
                buffers::give_back(frame);
                Ok(self.checked(patch, hash))
            }
        }
    }

    fn set_hash(&self, offset: u64, hash: BlockHash) {
        let is_new = self.lock().hashes.set(offset, hash);
        debug_assert!(is_new, "every block is taken by one worker");
    }

    fn place(&self, offset: u64) -> BlockHeader {
        BlockHeader { need: self.file.need, attempt: self.attempt, file_len: self.len, offset }
    }

    fn fail(&self, error: io::Error) {
        // What was given up because something else had failed says nothing.
        if !self.failed.swap(true, Ordering::Relaxed) {
            self.lock().error.get_or_insert(error);
        }
    }

    /// What comes after the last block.
    fn end(&self) -> Ended {
        let mut state = self.lock();
        let opened = self.opened.as_ref();
        // What is read of attributes counts if nothing of the file has changed after that.
        let fresh = opened.map(|opened| opened.fresh(&self.file.meta, self.file.as_listed));
        let changed = opened.is_ok_and(|opened| opened.is_unchanged().is_ok_and(|unchanged| !unchanged));
        if changed && self.attempt + 1 < MAX_ATTEMPTS {
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
                let fresh = fresh.map(|(meta, attrs)| Fresh { meta: *meta, attrs: attrs.as_attrs() });
                Ok(Whole { file_len: self.len, hash, fresh })
            }
            (error, ..) => Err(Failed { operation: "read", error: error.as_deref().unwrap_or(CHANGED) }),
        };
        Ended::Over(EndFrame { need: self.file.need, attempt: self.attempt, outcome }.encode())
    }

    fn lock(&self) -> MutexGuard<'_, LargeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads what of a block is not a hole; the block begins at `offset`. The holes become zeros.
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

/// A file that ends before it did has changed.
fn shorter_is_changed(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::other(CHANGED),
        _ => error,
    }
}

/// Segments of one block, with as few of them as there can be.
#[derive(Default)]
struct Segments<'a>(Vec<Segment<'a>>);

impl<'a> Segments<'a> {
    /// Compares a block with what the sink has, granule by granule, and returns the block's hash.
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

    /// Bytes of the block from `offset` of the file on, of which only `data` is not a hole.
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

    /// Two literals in a row are not joined: that would need a copy.
    fn bytes(&mut self, bytes: &'a [u8]) {
        if !bytes.is_empty() {
            self.0.push(Segment::Literal(bytes));
        }
    }
}
