//! Hashes files on all cores: the source those that the sink asks for, the sink its own.

use std::{
    io,
    ops::Range,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use contract::Side;
use parking_lot::Mutex;

use crate::{
    block_sizes::block_bytes,
    entry::{Entry, Kind, Time},
    hash::{BlockHash, BlockHashes, is_one_block},
    measure::{
        monitor::Monitor,
        thread_time::{Activity, ThreadGroup},
    },
    path::RelPath,
    source::source_file::{LastDir, Origin, SourceFile},
    sys::{cores::cores, find_holes::DataMap, page_cache::drop_page_cache, stat::FileState},
    transport::TransportError,
    tree::dir::DirId,
    wire::Hashed,
};

/// A file to hash.
#[derive(Debug)]
pub(crate) struct HashRequest {
    /// The number of its directory, by which that is kept open.
    pub id: DirId,
    /// Its directory.
    pub dir: RelPath,
    /// Its name.
    pub name: Box<[u8]>,
    /// Its length when it was listed.
    pub size: u64,
    /// Its modification time when it was listed.
    pub mtime: Time,
}

impl HashRequest {
    /// Returns the request for an entry; `None` if it is not a regular file.
    pub(crate) fn new(id: DirId, dir: &RelPath, entry: &Entry<'_>) -> Option<Self> {
        let Kind::File { size } = entry.kind else { return None };
        Some(Self { id, dir: dir.clone(), name: entry.name.into(), size, mtime: entry.meta.mtime })
    }

    pub(crate) fn path(&self) -> RelPath {
        self.dir.join(&self.name).unwrap_or_else(|_| self.dir.clone())
    }
}

/// The checks and the way of reading for files that are hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// The source's files: they have to be as they were listed.
    AsListed,
    /// The sink's files: they have to have the size of the source's.
    SameSize,
    /// As `SameSize`, and read from the volume, not from the system's cache.
    OnVolume,
}

impl Expect {
    /// Returns the end whose files they are.
    fn side(self) -> Side {
        match self {
            Self::AsListed => Side::Source,
            Self::SameSize | Self::OnVolume => Side::Sink,
        }
    }
}

/// Hashes files on all cores, and large ones on several at once.
///
/// # Errors
/// [`TransportError::Canceled`] when the run was told to stop. The error of a single file is its [`Hashed`].
pub(crate) fn hash_all(
    origin: Origin<'_>,
    files: &[HashRequest],
    expect: Expect,
    monitor: &Monitor,
) -> Result<Vec<Hashed>, TransportError> {
    Ok(hash_with_states(origin, files, expect, monitor)?.into_iter().map(|(hashed, _)| hashed).collect())
}

/// Hashes files as [`hash_all`] does, and also returns the state of each that was hashed.
///
/// # Errors
/// Those of [`hash_all`].
pub(crate) fn hash_with_states(
    origin: Origin<'_>,
    files: &[HashRequest],
    expect: Expect,
    monitor: &Monitor,
) -> Result<Vec<(Hashed, Option<FileState>)>, TransportError> {
    let work = HashWork {
        origin,
        expect,
        monitor,
        files: files
            .iter()
            .map(|file| FileWork { file, open: OnceLock::new(), done: OnceLock::new() })
            .collect(),
        blocks: blocks_before(files),
        next: AtomicUsize::new(0),
    };
    let blocks = work.blocks.last().copied().unwrap_or(0);
    let workers = cores().min(blocks);
    let pool = monitor.pool(expect.side(), ThreadGroup::Workers);
    std::thread::scope(|scope| {
        (1..workers).for_each(|_| drop(scope.spawn(|| pool.run(Activity::Reading, || work.run()))));
        work.run();
    });
    if monitor.cancelled() {
        Err(TransportError::Canceled)
    } else {
        Ok(work.files.into_iter().map(FileWork::finish).collect())
    }
}

/// Returns the running sum of the files' numbers of blocks.
fn blocks_before(files: &[HashRequest]) -> Vec<usize> {
    let mut sum = 0;
    let blocks = |file: &HashRequest| file.size.div_ceil(block_bytes(file.size) as u64).max(1) as usize;
    let sums = files.iter().map(|file| {
        sum += blocks(file);
        sum
    });
    sums.collect()
}

/// The files of one batch while they are hashed, assigned to workers block by block.
struct HashWork<'a> {
    origin: Origin<'a>,
    expect: Expect,
    monitor: &'a Monitor,
    files: Vec<FileWork<'a>>,
    blocks: Vec<usize>,
    next: AtomicUsize,
}

struct FileWork<'a> {
    file: &'a HashRequest,
    open: OnceLock<Result<OpenFile, Hashed>>,
    done: OnceLock<Hashed>,
}

impl FileWork<'_> {
    /// Returns the result, and the state of the file if it could be opened.
    fn finish(self) -> (Hashed, Option<FileState>) {
        let missing = || Hashed::Failed { operation: "read".into(), error: "it was not read".into() };
        let state = self.open.into_inner().and_then(|open| open.ok()?.file.state());
        (self.done.into_inner().unwrap_or_else(missing), state)
    }
}

struct OpenFile {
    file: SourceFile,
    in_motion: bool,
    data: DataMap,
    state: Mutex<HashState>,
}

impl OpenFile {
    /// Returns whether a block is a hole, in a file of several blocks.
    fn is_hole(&self, block: Range<u64>) -> bool {
        let next = || self.data.next(self.file.content(), block.start);
        self.file.has_holes()
            && !is_one_block(self.file.len())
            && next().is_none_or(|data| data.start >= block.end)
    }
}

struct HashState {
    hashes: BlockHashes,
    left: u64,
    error: Option<io::Error>,
}

impl HashWork<'_> {
    fn run(&self) {
        let (mut dir, mut buffer) = (LastDir::default(), Vec::new());
        loop {
            let block = self.next.fetch_add(1, Relaxed);
            let nth = self.blocks.partition_point(|end| *end <= block);
            let Some(work) = self.files.get(nth).filter(|_| !self.monitor.cancelled()) else { return };
            let first = nth.checked_sub(1).map_or(0, |before| self.blocks[before]);
            self.block(work, first..self.blocks[nth], block, &mut dir, &mut buffer);
        }
    }

    /// Hashes one block; `own` is the range of its file's blocks.
    fn block(
        &self,
        work: &FileWork<'_>,
        own: Range<usize>,
        block: usize,
        dir: &mut LastDir,
        buffer: &mut Vec<u8>,
    ) {
        let block_bytes = block_bytes(work.file.size) as u64;
        let offset = (block - own.start) as u64 * block_bytes;
        let open = work.open.get_or_init(|| self.open(work.file, dir));
        let open = match open {
            Ok(open) => open,
            // The worker that failed to open it has recorded the error. Skips its blocks, of which there may be 2^43.
            Err(why) => {
                let _ = work.done.set(why.clone());
                self.next.fetch_max(own.end, Relaxed);
                return;
            }
        };
        let len = work.file.size.saturating_sub(offset).min(block_bytes) as usize;
        let hash = if open.is_hole(offset..offset + len as u64) {
            Ok(BlockHash::of_hole(len as u64, work.file.size))
        } else {
            buffer.resize(len, 0);
            let read = open.file.content().read_exact_at(buffer, offset);
            read.map(|()| {
                if is_zeros(buffer) && !is_one_block(work.file.size) {
                    BlockHash::of_hole(len as u64, work.file.size)
                } else {
                    BlockHash::of(buffer, offset, work.file.size)
                }
            })
        };
        let mut state = open.state.lock();
        match hash {
            // An empty file has no block to hash, and only has to be opened.
            Ok(_) if work.file.size == 0 => {}
            Ok(hash) => {
                let is_new = state.hashes.set(offset, hash);
                debug_assert!(is_new, "every block has one worker");
            }
            Err(error) => state.error = Some(error),
        }
        state.left -= 1;
        if state.left == 0 {
            let _ = work.done.set(finish(open, &mut state));
        }
    }

    fn open(&self, listed: &HashRequest, dir: &mut LastDir) -> Result<OpenFile, Hashed> {
        let opened = self.origin.file_in(dir, listed.id, &listed.dir, &listed.name, self.monitor);
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Hashed::Changed,
            _ => failed(&error),
        })?;
        let same_time = file.mtime() == listed.mtime || self.expect != Expect::AsListed;
        if file.len() != listed.size || !same_time {
            return Err(Hashed::Changed);
        }
        if self.expect == Expect::OnVolume {
            drop_page_cache(file.content(), file.len());
        }
        let left = listed.size.div_ceil(block_bytes(listed.size) as u64).max(1);
        let state = HashState { hashes: BlockHashes::new(listed.size), left, error: None };
        let in_motion = self.expect == Expect::AsListed && file.is_in_motion();
        Ok(OpenFile { file, in_motion, data: DataMap::new(listed.size), state: Mutex::new(state) })
    }
}

fn finish(OpenFile { file, in_motion, .. }: &OpenFile, state: &mut HashState) -> Hashed {
    match (state.error.take(), file.is_unchanged(), state.hashes.finish()) {
        (None, Ok(true), Some(hash)) if *in_motion => Hashed::IsInMotion(hash),
        (None, Ok(true), Some(hash)) if file.is_whole(&hash) => Hashed::Is(hash),
        (_, Ok(false), _) => Hashed::Changed,
        (Some(error), ..) | (None, Err(error), _) => failed(&error),
        (None, Ok(true), _) => Hashed::Changed,
    }
}

/// Returns whether all bytes are zero, so that a block counts as the hole that the other end may have there.
fn is_zeros(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0) && bytes[1..] == bytes[..bytes.len() - 1]
}

fn failed(error: &io::Error) -> Hashed {
    Hashed::Failed { operation: "read".into(), error: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        block_sizes::MIN_BLOCK_BYTES,
        hash::TransferHash,
        sys::root::{Root, TreeLocation},
    };

    fn listed(root: &std::path::Path, name: &str) -> HashRequest {
        let stat = fs::metadata(root.join(name)).unwrap();
        let mtime = std::os::unix::fs::MetadataExt::mtime(&stat);
        let nanos = std::os::unix::fs::MetadataExt::mtime_nsec(&stat) as u32;
        let mtime = Time { seconds: mtime, nanos };
        HashRequest { id: 0, dir: RelPath::root(), name: name.as_bytes().into(), size: stat.len(), mtime }
    }

    #[test]
    fn files_of_every_size_have_the_hash_of_their_content() {
        let dir = tempfile::tempdir().unwrap();
        let sizes =
            [0, 1, MIN_BLOCK_BYTES - 1, MIN_BLOCK_BYTES, MIN_BLOCK_BYTES + 1, 5 * MIN_BLOCK_BYTES + 7];
        let contents: Vec<Vec<u8>> = sizes.map(|size| (0..size).map(|i| (i * 7 / 3) as u8).collect()).into();
        for (n, content) in contents.iter().enumerate() {
            fs::write(dir.path().join(n.to_string()), content).unwrap();
        }
        let files: Vec<HashRequest> = (0..sizes.len()).map(|n| listed(dir.path(), &n.to_string())).collect();
        let root = Root::enter(&TreeLocation::from(dir.path())).unwrap();
        let expected: Vec<Hashed> = contents.iter().map(|it| Hashed::Is(TransferHash::of(it))).collect();
        for expect in [Expect::AsListed, Expect::SameSize, Expect::OnVolume] {
            assert_eq!(hash_all(Origin::Tree(&root), &files, expect, &Monitor::default()).unwrap(), expected);
        }
    }

    #[test]
    fn a_file_that_is_not_as_listed_has_changed_and_one_that_cannot_be_read_says_why() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["grown", "touched", "gone", "link"] {
            fs::write(dir.path().join(name), "content").unwrap();
        }
        let files: Vec<HashRequest> =
            ["grown", "touched", "gone", "link"].map(|name| listed(dir.path(), name)).into();
        fs::write(dir.path().join("grown"), "content and more").unwrap();
        let touched = fs::File::options().write(true).open(dir.path().join("touched")).unwrap();
        touched.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        fs::remove_file(dir.path().join("gone")).unwrap();
        fs::remove_file(dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink("grown", dir.path().join("link")).unwrap();
        let root = Root::enter(&TreeLocation::from(dir.path())).unwrap();
        let hashes = hash_all(Origin::Tree(&root), &files, Expect::AsListed, &Monitor::default()).unwrap();
        assert_eq!(hashes[..3], [Hashed::Changed, Hashed::Changed, Hashed::Changed]);
        assert!(matches!(&hashes[3], Hashed::Failed { operation, .. } if operation == "read"));
        let hashes =
            hash_all(Origin::Tree(&root), &files[1..2], Expect::SameSize, &Monitor::default()).unwrap();
        assert_eq!(hashes, [Hashed::Is(TransferHash::of(b"content"))]);
    }

    #[test]
    fn what_cannot_be_opened_costs_nothing_however_large_it_is_said_to_be() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "content").unwrap();
        let root = Root::enter(&TreeLocation::from(dir.path())).unwrap();
        let file = || listed(dir.path(), "file");
        let huge = HashRequest { size: i64::MAX as u64, ..file() };
        let hashes =
            hash_all(Origin::Tree(&root), &[file(), huge, file()], Expect::AsListed, &Monitor::default())
                .unwrap();
        let content = Hashed::Is(TransferHash::of(b"content"));
        assert_eq!(hashes, [content.clone(), Hashed::Changed, content]);
    }

    #[test]
    fn who_was_told_to_stop_hashes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "content").unwrap();
        let root = Root::enter(&TreeLocation::from(dir.path())).unwrap();
        let monitor = Monitor::default();
        monitor.cancel();
        let files = [listed(dir.path(), "file")];
        let stopped = hash_all(Origin::Tree(&root), &files, Expect::AsListed, &monitor);
        assert!(matches!(stopped, Err(TransportError::Canceled)));
    }
}
