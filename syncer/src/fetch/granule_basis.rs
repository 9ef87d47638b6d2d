//! The basis of a large file, staged as a private copy: read, copied and hashed block by block on several threads. Its
//! manifest is sent to the source in parts, so that the source compares one part while the next is read here.

use std::{
    io,
    ops::Range,
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use blake3::hazmat::ChainingValue;
use parking_lot::Mutex;
use rustix::fs::Stat;

use crate::{
    block_sizes::{MAX_BLOCK_BYTES, block_bytes, granule_bytes},
    delta::{
        checked::{CheckedBlock, CheckedBlocks},
        granules::{Granules, named},
        short_name::ShortName,
    },
    destination::{ArrivalLog, Arrived, ArrivedBlocks, ClonedAt, Staged},
    hash::granule_value,
    sys::{
        file_part::Slice,
        find_holes::{DataMap, has_holes},
        stat::regular,
    },
};

/// The number of bytes that are read and copied at once: more than a block of content, because each piece waits for its
/// turn to be written.
const BLOCK: u64 = MAX_BLOCK_BYTES as u64;

/// The number of bytes of a file whose names are one part of the manifest: 4 KiB of names, and some 5 ms of reading
/// and copying.
const PART: u64 = 8 << 20;

/// A staged file, its granules before any content arrived, and how much of its manifest the source has.
pub(crate) struct GranuleBasis {
    staged: Arc<Staged>,
    old: Option<CopySource>,
    len: u64,
    has_holes: bool,
    data: DataMap,
    /// Blocks that an earlier run checked when they arrived, and that are not read.
    arrived: Option<ArrivedBlocks>,
    log: Mutex<Option<ArrivalLog>>,
    granule: usize,
    /// The first byte that no thread has taken to read.
    next: AtomicU64,
    /// See [`Self::writing`].
    writing: Arc<Mutex<()>>,
    is_stopped: AtomicBool,
    state: Mutex<BasisState>,
}

/// The file that is read instead of the staged file.
enum CopySource {
    /// Its content has to be copied to the staged file.
    Copied(OwnedFd),
    /// The staged file is a clone of it, if it is unchanged since. The page cache has no pages of a clone.
    Cloned(OwnedFd, ClonedAt),
}

/// A block that was read; it has no ranges and no values if it is a hole.
struct HashedBlock {
    /// Its ranges of data.
    data: Vec<Range<u64>>,
    /// The values of its granules.
    values: Vec<ChainingValue>,
}

struct BasisState {
    /// The value of each granule; `None` for those in a hole, not read, or that could not be read or copied.
    values: Vec<Option<ChainingValue>>,
    /// The number of bytes of each part of the manifest that are not handled yet.
    parts: Vec<u64>,
    /// The number of parts whose manifest was sent.
    told: usize,
}

impl GranuleBasis {
    /// Prepares a copy of the content of `from` in `staged`, with the same length.
    pub(crate) fn copy_of(from: OwnedFd, staged: Staged) -> io::Result<Self> {
        let stat = regular(&from)?;
        check_density(&stat)?;
        let len = stat.st_size as u64;
        staged.set_len(len)?;
        Ok(Self::new(staged, Some(CopySource::Copied(from)), len, has_holes(&stat)))
    }

    /// Takes a `staged` file that was just cloned from another one.
    pub(crate) fn clone_of(from: OwnedFd, staged: Staged) -> io::Result<Self> {
        let cloned = ClonedAt::of(staged.fd());
        Ok(Self { old: Some(CopySource::Cloned(from, cloned)), ..Self::what_is_in(staged)? })
    }

    /// Takes the content that is in `staged` already.
    pub(crate) fn what_is_in(staged: Staged) -> io::Result<Self> {
        if staged.is_part() {
            // A device cannot report holes, so all of it is data.
            let len = staged.basis_len()?;
            return Ok(Self::new(staged, None, len, true));
        }
        let stat = regular(staged.basis().fd)?;
        check_density(&stat)?;
        Ok(Self::new(staged, None, stat.st_size as u64, has_holes(&stat)))
    }

    /// Takes the leftover of an earlier run, with its record of arrived blocks.
    pub(crate) fn left(staged: Staged, Arrived { blocks, log }: Arrived) -> io::Result<Self> {
        Ok(Self { arrived: Some(blocks), log: Mutex::new(Some(log)), ..Self::what_is_in(staged)? })
    }

    fn new(staged: Staged, old: Option<CopySource>, len: u64, has_holes: bool) -> Self {
        let granule = granule_bytes(len);
        let values = vec![None; len.div_ceil(granule as u64) as usize];
        let starts = (0..len.max(1)).step_by(PART as usize);
        let parts = starts.map(|start| (len.max(1) - start).min(PART)).collect();
        Self {
            staged: Arc::new(staged),
            old,
            len,
            has_holes,
            data: DataMap::new(len),
            arrived: None,
            log: Mutex::default(),
            granule,
            next: AtomicU64::new(0),
            writing: Arc::default(),
            is_stopped: AtomicBool::new(false),
            state: Mutex::new(BasisState { values, parts, told: 0 }),
        }
    }

    /// Returns the staged file.
    pub(crate) fn staged(&self) -> &Arc<Staged> {
        &self.staged
    }

    /// Returns the blocks that an earlier run recorded as arrived.
    pub(crate) fn arrived(&self) -> Option<&ArrivedBlocks> {
        self.arrived.as_ref()
    }

    /// Takes the log in which arrived blocks are recorded.
    pub(crate) fn take_log(&self) -> Option<ArrivalLog> {
        self.log.lock().take()
    }

    /// Returns the number of blocks to read, at least one.
    pub(crate) fn blocks(&self) -> u64 {
        self.len.div_ceil(BLOCK).max(1)
    }

    /// Returns the length of a granule in bytes.
    pub(crate) fn granule_bytes(&self) -> usize {
        self.granule
    }

    /// Returns the lock that is held while the file is written to. A kernel lets only one thread at a time write to a
    /// file, and the others would spin.
    pub(crate) fn writing(&self) -> &Arc<Mutex<()>> {
        &self.writing
    }

    /// Stops copying. After this, no thread writes content of the basis to the file.
    pub(crate) fn stop(&self) {
        let _alone = self.writing.lock();
        self.is_stopped.store(true, Relaxed);
    }

    /// Stops reading, because the content is not needed any more.
    pub(crate) fn give_up(&self) {
        self.next.fetch_max(self.len.max(1), Relaxed);
    }

    /// Reads, copies and hashes the next block, in `buffer`. Returns false if no block is left. A block that fails is
    /// left out of the manifest.
    pub(crate) fn do_block(&self, buffer: &mut Vec<u8>) -> bool {
        let offset = self.next.fetch_add(BLOCK, Relaxed);
        if offset >= self.len.max(1) {
            return false;
        }
        let values = if self.has_arrived(offset) { Ok(Vec::new()) } else { self.block(offset, buffer) };
        let values = values.unwrap_or_else(|error| {
            tracing::debug!(offset, %error, "nothing is made use of of a block");
            Vec::new()
        });
        let mut state = self.state.lock();
        let first = (offset / self.granule as u64) as usize;
        for (slot, value) in state.values[first..].iter_mut().zip(values) {
            *slot = Some(value);
        }
        state.parts[(offset / PART) as usize] -= (self.len.max(1) - offset).min(BLOCK);
        true
    }

    /// Returns whether all blocks of the file in the piece at `offset` arrived in an earlier run.
    fn has_arrived(&self, offset: u64) -> bool {
        let block = block_bytes(self.len);
        let mut blocks = (offset..(offset + BLOCK).min(self.len)).step_by(block);
        self.arrived.as_ref().is_some_and(|arrived| blocks.all(|at| arrived.values().contains_key(&at)))
    }

    /// Returns the blocks between `start` and `end` that have arrived and are not read.
    fn checked(&self, start: u64, end: u64) -> Option<CheckedBlocks> {
        let arrived = self.arrived.as_ref()?;
        let is_unread = |(at, _): &(&u64, &[u8; 32])| self.has_arrived(**at - **at % BLOCK);
        let blocks = arrived.values().range(start..end).filter(is_unread);
        let blocks = blocks.map(|(at, value)| CheckedBlock { offset: *at, value: *value }).collect();
        CheckedBlocks::new(arrived.version(), self.len, start..end, blocks)
    }

    /// Computes the values of a block's granules; none if it is a hole.
    fn block(&self, offset: u64, buffer: &mut Vec<u8>) -> io::Result<Vec<ChainingValue>> {
        match &self.old {
            Some(CopySource::Copied(old)) => {
                let HashedBlock { data, values } = self.hash(Slice::all_of(old.as_fd()), offset, buffer)?;
                if !data.is_empty() {
                    self.write(buffer, offset, &data)?;
                }
                return Ok(values);
            }
            Some(CopySource::Cloned(old, cloned)) if cloned.is_still(old.as_fd()) => {
                let hashed = self.hash(Slice::all_of(old.as_fd()), offset, buffer);
                if cloned.is_still(old.as_fd()) {
                    return Ok(hashed?.values);
                }
            }
            _ => {}
        }
        Ok(self.hash(self.staged.basis(), offset, buffer)?.values)
    }

    /// Reads and hashes a block.
    fn hash(&self, from: Slice<'_>, offset: u64, buffer: &mut Vec<u8>) -> io::Result<HashedBlock> {
        let end = (offset + BLOCK).min(self.len);
        let data: Vec<_> = if self.has_holes {
            self.data.within(from, offset, end)
        } else {
            std::iter::once(offset..end).collect()
        };
        if data.is_empty() {
            return Ok(HashedBlock { data, values: Vec::new() });
        }
        buffer.resize((end - offset) as usize, 0);
        from.read_exact_at(buffer, offset)?;
        let granules = buffer.chunks(self.granule).zip((offset..).step_by(self.granule));
        let values = granules.map(|(granule, at)| granule_value(granule, at)).collect();
        Ok(HashedBlock { data, values })
    }

    /// Writes the `data` of a block.
    fn write(&self, block: &[u8], offset: u64, data: &[Range<u64>]) -> io::Result<()> {
        let alone = self.writing.lock();
        for range in data.iter().filter(|_| !self.is_stopped.load(Relaxed)) {
            let [start, end] = [range.start, range.end].map(|at| (at - offset) as usize);
            self.staged.write_at(&block[start..end], range.start)?;
        }
        drop(alone);
        self.staged.begin_write_back(offset, block.len() as u64);
        Ok(())
    }

    /// Returns the next complete part that the source does not know. The caller sends it before another thread calls
    /// this.
    pub(crate) fn next_part(&self) -> Option<Granules> {
        let mut state = self.state.lock();
        let start = state.told as u64 * PART;
        if *state.parts.get(state.told)? > 0 {
            return None;
        }
        state.told += 1;
        let [first, end] =
            [start, (start + PART).min(self.len)].map(|at| at.div_ceil(self.granule as u64) as usize);
        // A granule without a value gets a name that no content has.
        let none = ShortName::from_prefix(&[0; ShortName::LEN]);
        let name = |value: &Option<ChainingValue>| value.as_ref().map(named).or(none);
        let names = state.values[first..end].iter().map(name).collect::<Option<_>>()?;
        let granules = Granules::new(self.len, self.granule as u64, start, names)?;
        Some(match self.checked(start, granules.end()).filter(|checked| !checked.blocks().is_empty()) {
            Some(checked) => granules.with_checked(checked),
            None => granules,
        })
    }

    /// Returns whether the source may send content up to `end`: it has the manifest of the basis up to there.
    pub(crate) fn is_told(&self, end: u64) -> bool {
        let state = self.state.lock();
        state.told == state.parts.len() || end <= state.told as u64 * PART
    }

    /// Returns the chaining value of the granule at `offset`, if it is one of `len` bytes and complete.
    pub(crate) fn value(&self, offset: u64, len: usize) -> Option<ChainingValue> {
        let value = *self.state.lock().values.get((offset / self.granule as u64) as usize)?;
        let there = usize::try_from(self.len - offset).map_or(self.granule, |rest| rest.min(self.granule));
        value.filter(|_| there == len)
    }
}

/// Of files with more granules than this, at least an eighth must be data: each granule takes memory, also in a hole,
/// and sending a hole again costs nothing.
const MANY_GRANULES: u64 = 2 << 20;

fn check_density(stat: &Stat) -> io::Result<()> {
    let len = stat.st_size as u64;
    let is_many = len / granule_bytes(len) as u64 > MANY_GRANULES;
    if is_many && (stat.st_blocks as u64).saturating_mul(512) < len / 8 {
        Err(io::Error::other("it is so sparse that to compare it costs more memory than to send it anew"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::{
        delta::checked::{FileVersion, MIN_CHECKED_BYTES},
        destination::Destination,
        path::RelPath,
    };

    /// Prepares a private copy of a file with this content.
    fn copy_of(dir: &Path, content: &[u8]) -> (Destination, GranuleBasis) {
        fs::write(dir.join("old"), content).unwrap();
        let destination = Destination::of_test(dir);
        let path = RelPath::root().join(b"old").unwrap();
        let old = destination.open_file(&path).unwrap();
        let kept = GranuleBasis::copy_of(old, destination.stage_file(&path).unwrap()).unwrap();
        (destination, kept)
    }

    fn staged(kept: &GranuleBasis) -> Vec<u8> {
        let mut bytes = vec![0; kept.staged().basis_len().unwrap() as usize];
        kept.staged().read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn the_source_is_told_of_each_part_when_all_of_it_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..2 * PART + 100).map(|at| (at / 3 + at / 4099) as u8).collect();
        let (_destination, kept) = copy_of(dir.path(), &content);
        let mut buffer = Vec::new();
        let mut told = Vec::new();
        for _ in 0..kept.blocks() {
            assert!(kept.next_part().is_none());
            let known = told.last().map_or(0, Granules::end);
            assert!((known == 0 || kept.is_told(known)) && !kept.is_told(known + 1));
            assert!(kept.do_block(&mut buffer));
            told.extend(kept.next_part());
        }
        assert!(!kept.do_block(&mut buffer) && kept.is_told(u64::MAX));
        assert_eq!(
            told.iter().map(|part| (part.start(), part.end())).collect::<Vec<_>>(),
            [(0, PART), (PART, 2 * PART), (2 * PART, 2 * PART + 100)]
        );
        let granules = content.chunks(kept.granule_bytes()).zip((0..).step_by(kept.granule_bytes()));
        let values: Vec<_> = granules.map(|(granule, at)| granule_value(granule, at)).collect();
        let names: Vec<_> = told.iter().flat_map(Granules::names).copied().collect();
        assert_eq!(names, values.iter().map(named).collect::<Vec<_>>());
        assert_eq!((kept.value(2 * PART, 100), kept.value(2 * PART, 99)), (values.last().copied(), None));
        assert!(staged(&kept) == content);
    }

    #[test]
    fn after_a_stop_nothing_is_written_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let (_destination, kept) = copy_of(dir.path(), &[7; 3 << 20]);
        let mut buffer = Vec::new();
        assert!(kept.do_block(&mut buffer));
        kept.stop();
        kept.staged().set_len(100).unwrap();
        while kept.do_block(&mut buffer) {}
        assert_eq!(staged(&kept), [7; 100]);
    }

    #[test]
    fn what_cannot_be_read_has_names_that_no_bytes_have() {
        let dir = tempfile::tempdir().unwrap();
        let (_destination, kept) = copy_of(dir.path(), &[7; 2 << 20]);
        fs::File::options().write(true).open(dir.path().join("old")).unwrap().set_len(1 << 20).unwrap();
        let mut buffer = Vec::new();
        while kept.do_block(&mut buffer) {}
        let part = kept.next_part().unwrap();
        let value = |at| granule_value(&[7; 16 << 10], at);
        assert_eq!(part.kept(&[7; 16 << 10], 0, &value(0)), 16 << 10);
        assert_eq!(part.kept(&[7; 16 << 10], 1 << 20, &value(1 << 20)), 0);
        assert_eq!((kept.value(0, 16 << 10), kept.value(1 << 20, 16 << 10)), (Some(value(0)), None));
    }

    #[test]
    fn what_an_earlier_run_has_checked_is_told_and_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let destination = Destination::of_test(dir.path());
        let staged = destination.stage_file(&RelPath::parse(b"large").unwrap()).unwrap();
        let (len, version) = (MIN_CHECKED_BYTES + 100, FileVersion([1; 16]));
        staged.set_len(len).unwrap();
        staged.write_at(&[7; 4 << 20], 0).unwrap();
        // The blocks of the second MiB, and one of the third.
        let block = |nth| CheckedBlock { offset: nth * block_bytes(len) as u64, value: [nth as u8; 32] };
        let checked: Vec<_> = (4..9).map(block).collect();
        destination.note_arrivals(&staged, version, len).unwrap().add(&staged, &checked).unwrap();
        let noted = destination.arrived(&staged).unwrap();
        let kept = GranuleBasis::left(staged, noted).unwrap();
        let mut buffer = Vec::new();
        while kept.do_block(&mut buffer) {}
        let part = kept.next_part().unwrap();
        assert_eq!(part.checked().unwrap().blocks(), &checked[..4]);
        let granule = kept.granule_bytes();
        let is_read = |at: u64| kept.value(at, granule).is_some();
        assert_eq!([0, 1 << 20, 2 << 20, 3 << 20].map(is_read), [true, false, true, true]);
        assert!(kept.next_part().unwrap().checked().is_none());
    }

    #[test]
    fn who_is_given_up_reads_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let (_destination, kept) = copy_of(dir.path(), &[7; 2 << 20]);
        kept.give_up();
        assert!(!kept.do_block(&mut Vec::new()) && kept.next_part().is_none());
    }
}
