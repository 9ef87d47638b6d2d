//! Files whose content is compared: both ends hash them, and the sink plans what differs.
//!
//! Hashes are asked for in batches, two of them under way, so that both ends read at the same time and neither holds more than that of
//! what the other says.

use std::{
    collections::VecDeque,
    io,
    num::NonZeroU64,
    ops::Range,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use rustix::fs::{Advice, fadvise};

use super::{
    SessionError,
    compare::PlannedDir,
    holes::DataMap,
    read::{LastDir, Origin, SourceFile},
};
use crate::{
    cores::cores,
    entry::{Entry, Kind, Time},
    hash::{BlockHash, BlockHashes, block_bytes, is_one_block},
    listing::Places,
    monitor::Monitor,
    path::RelPath,
    plan::Step,
    report::Failures,
    transport::{Control, TransportError},
    tree::dir::DirId,
    wire::{FileGroup, Hashed, MAX_HASHES, Message},
};

/// A batch ends with the file that brings it to this many bytes.
const BATCH_BYTES: u64 = 256 << 20;

/// How many batches are asked for ahead.
const UNDER_WAY: usize = 2;

/// A file to hash.
#[derive(Debug)]
pub(super) struct Listed {
    /// The number of its directory, for keeping that open.
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

impl Listed {
    /// `None` for what is no regular file.
    pub(super) fn new(id: DirId, dir: &RelPath, entry: &Entry<'_>) -> Option<Self> {
        let Kind::File { size } = entry.kind else { return None };
        Some(Self { id, dir: dir.clone(), name: entry.name.into(), size, mtime: entry.meta.mtime })
    }

    fn path(&self) -> RelPath {
        self.dir.join(&self.name).unwrap_or_else(|_| self.dir.clone())
    }
}

/// What is expected of the files that are hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    /// The source's: they are what they were listed as, or have changed.
    AsListed,
    /// The sink's: they have the size that the source's have.
    SameSize,
    /// The same, and what is read is what the volume has, not what the system remembers of it.
    OnVolume,
}

/// Where the hashes of the source's files come from.
pub(super) trait SourceHashes {
    /// Asks for the hashes of a batch.
    fn ask(&mut self, batch: &Batch) -> Result<(), SessionError>;

    /// The hashes of the batch that was asked for first, in its order.
    fn next(&mut self, batch: &Batch) -> Result<Vec<Hashed>, SessionError>;
}

/// Files that are asked about together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    groups: Vec<FileGroup>,
    files: Vec<Listed>,
    /// Where each file is.
    places: Vec<Place>,
    bytes: u64,
}

/// The source's hashes over the control stream.
pub(super) struct RemoteHashes<'a>(pub &'a Control);

impl SourceHashes for RemoteHashes<'_> {
    fn ask(&mut self, batch: &Batch) -> Result<(), SessionError> {
        Ok(self.0.send(&Message::Hash(batch.groups.clone()))?)
    }

    fn next(&mut self, batch: &Batch) -> Result<Vec<Hashed>, SessionError> {
        match self.0.recv()? {
            Message::Hashed(hashes) if hashes.len() == batch.files.len() => Ok(hashes),
            Message::Hashed(_) => {
                Err(TransportError::Nonsense("other hashes came than were asked for").into())
            }
            other => Err(TransportError::Unexpected { got: other.what(), expected: "Hashed" }.into()),
        }
    }
}

/// The hashes of a source that is at hand.
pub(super) struct LocalHashes<'a> {
    pub origin: Origin<'a>,
    pub monitor: &'a Monitor,
}

impl SourceHashes for LocalHashes<'_> {
    fn ask(&mut self, _: &Batch) -> Result<(), SessionError> {
        Ok(())
    }

    fn next(&mut self, batch: &Batch) -> Result<Vec<Hashed>, SessionError> {
        Ok(hash_all(self.origin, &batch.files, Expect::AsListed, self.monitor)?)
    }
}

/// What is hashed, and who is told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checker<'a> {
    /// The sink's files.
    pub origin: Origin<'a>,
    /// Takes the source's files that cannot be read.
    pub failures: &'a Failures,
    /// Asked whether to go on.
    pub monitor: &'a Monitor,
    /// How the sink's files are read.
    pub expect: Expect,
}

impl Checker<'_> {
    /// Compares the content of all files that the plans say it of, and plans an update of those that differ. Returns how many of the
    /// source's files were no longer as they were listed: `changed` says what is to be done with those.
    pub(super) fn check(
        &self,
        dirs: &mut [PlannedDir],
        source: &mut dyn SourceHashes,
        changed: Option<Step>,
    ) -> Result<u64, SessionError> {
        let unlike = self.compare(dirs, source)?;
        let mut changed_meanwhile = 0;
        for ((dir, index), unlike) in unlike {
            let step = match unlike {
                Unlike::Content => Some(Step::Update),
                Unlike::Changed => {
                    changed_meanwhile += 1;
                    changed
                }
                Unlike::Unreadable => None,
            };
            dirs[dir].plan.set_step(index, step);
        }
        Ok(changed_meanwhile)
    }

    /// Which files do not have the same content, in the order of their places.
    fn compare(
        &self,
        dirs: &[PlannedDir],
        source: &mut dyn SourceHashes,
    ) -> Result<Vec<(Place, Unlike)>, SessionError> {
        let mut cursor = Cursor { dirs, dir: 0, check: 0, places: None };
        let mut asked = VecDeque::new();
        let mut unlike = Vec::new();
        loop {
            while asked.len() < UNDER_WAY
                && let Some(batch) = cursor.next()
            {
                source.ask(&batch)?;
                asked.push_back(batch);
            }
            let Some(batch) = asked.pop_front() else { return Ok(unlike) };
            let here = hash_all(self.origin, &batch.files, self.expect, self.monitor)?;
            let there = source.next(&batch)?;
            for ((file, place), (here, there)) in
                batch.files.iter().zip(&batch.places).zip(here.iter().zip(there))
            {
                match (there, here) {
                    (Hashed::Is(there), Hashed::Is(here)) if there == *here => {}
                    (Hashed::Failed { operation, error }, _) => {
                        self.failures.add(&file.path(), &operation, &error);
                        unlike.push((*place, Unlike::Unreadable));
                    }
                    (Hashed::Changed, _) => unlike.push((*place, Unlike::Changed)),
                    (Hashed::Is(_), _) => unlike.push((*place, Unlike::Content)),
                }
            }
        }
    }
}

/// Which of the planned directories a file is in, and its place in the listing.
type Place = (usize, u32);

/// Why two files were not found to be the same.
enum Unlike {
    /// Their contents differ.
    Content,
    /// The source's is no longer as it was listed.
    Changed,
    /// The source's cannot be read.
    Unreadable,
}

/// How far the planned directories have been dealt out in batches.
struct Cursor<'d> {
    dirs: &'d [PlannedDir],
    dir: usize,
    check: usize,
    /// Of the directory that the last batch ended in.
    places: Option<Places<'d>>,
}

impl<'d> Cursor<'d> {
    fn next(&mut self) -> Option<Batch> {
        let mut batch = Batch::default();
        while let Some(dir) = self.dirs.get(self.dir).filter(|_| !batch.is_full()) {
            self.fill(&mut batch, dir);
        }
        (!batch.files.is_empty()).then_some(batch)
    }

    /// Takes the checks of one directory, as many as fit.
    fn fill(&mut self, batch: &mut Batch, dir: &'d PlannedDir) {
        let mut checks = dir.plan.checks[self.check..].iter().copied().peekable();
        let mut indices = Vec::new();
        let first = checks.peek().copied().unwrap_or(0);
        let entries = self.places.get_or_insert_with(|| Places::of(&dir.listing)).from(first);
        for (index, entry) in (first..).zip(entries) {
            if batch.is_full() || checks.peek().is_none() {
                break;
            }
            if checks.next_if_eq(&index).is_none() {
                continue;
            }
            self.check += 1;
            if let Some(file) = Listed::new(dir.source, &dir.path, &entry) {
                batch.bytes += file.size;
                batch.files.push(file);
                batch.places.push((self.dir, index));
                indices.push(index);
            }
        }
        if checks.peek().is_none() {
            (self.dir, self.check, self.places) = (self.dir + 1, 0, None);
        }
        if !indices.is_empty() {
            batch.groups.push(FileGroup { dir: dir.source, indices });
        }
    }
}

impl Batch {
    fn is_full(&self) -> bool {
        self.files.len() >= MAX_HASHES || self.bytes >= BATCH_BYTES
    }
}

/// Hashes files on all cores, a large one on all of them at once.
///
/// # Errors
/// [`TransportError::Canceled`] when the run was told to stop. What is wrong with a file is in its place.
pub(super) fn hash_all(
    origin: Origin<'_>,
    files: &[Listed],
    expect: Expect,
    monitor: &Monitor,
) -> Result<Vec<Hashed>, TransportError> {
    let work = Work {
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
    std::thread::scope(|scope| {
        (1..workers).for_each(|_| drop(scope.spawn(|| work.run())));
        work.run();
    });
    let missing = || Hashed::Failed { operation: "read".into(), error: "it was not read".into() };
    match monitor.cancelled() {
        true => Err(TransportError::Canceled),
        false => Ok(work.files.into_iter().map(|it| it.done.into_inner().unwrap_or_else(missing)).collect()),
    }
}

/// How many blocks the files up to each one have, the last for all of them.
fn blocks_before(files: &[Listed]) -> Vec<usize> {
    let mut sum = 0;
    let blocks = |file: &Listed| file.size.div_ceil(block_bytes(file.size) as u64).max(1) as usize;
    let sums = files.iter().map(|file| {
        sum += blocks(file);
        sum
    });
    sums.collect()
}

/// The files of one batch while they are hashed, dealt out by the block.
struct Work<'a> {
    origin: Origin<'a>,
    expect: Expect,
    monitor: &'a Monitor,
    files: Vec<FileWork<'a>>,
    blocks: Vec<usize>,
    next: AtomicUsize,
}

struct FileWork<'a> {
    file: &'a Listed,
    open: OnceLock<Result<Open, Hashed>>,
    done: OnceLock<Hashed>,
}

struct Open {
    file: SourceFile,
    data: DataMap,
    state: Mutex<State>,
}

impl Open {
    /// Whether there is no data in a block, of a file of several.
    fn is_hole(&self, block: Range<u64>) -> bool {
        let next = || self.data.next(self.file.content(), block.start);
        self.file.has_holes()
            && !is_one_block(self.file.len())
            && next().is_none_or(|data| data.start >= block.end)
    }
}

struct State {
    hashes: BlockHashes,
    left: u64,
    error: Option<io::Error>,
}

impl Work<'_> {
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

    /// Hashes one block; `own` are those of its file.
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
            // Whoever could not open it has said so, and none of its blocks is of use, of which there may be 2^43.
            Err(why) => {
                let _ = work.done.set(why.clone());
                self.next.fetch_max(own.end, Relaxed);
                return;
            }
        };
        let len = work.file.size.saturating_sub(offset).min(block_bytes) as usize;
        let hash = match open.is_hole(offset..offset + len as u64) {
            true => Ok(BlockHash::of_hole(len as u64, work.file.size)),
            false => {
                buffer.resize(len, 0);
                let read = open.file.content().read_exact_at(buffer, offset);
                read.map(|()| BlockHash::of(buffer, offset, work.file.size))
            }
        };
        let mut state = open.state.lock().unwrap_or_else(PoisonError::into_inner);
        match hash {
            // It has no blocks, and is dealt out to be opened.
            Ok(_) if work.file.size == 0 => {}
            Ok(hash) => {
                let is_new = state.hashes.set(offset, hash);
                debug_assert!(is_new, "every block is dealt out once");
            }
            Err(error) => state.error = Some(error),
        }
        state.left -= 1;
        if state.left == 0 {
            let _ = work.done.set(finish(&open.file, &mut state));
        }
    }

    fn open(&self, listed: &Listed, dir: &mut LastDir) -> Result<Open, Hashed> {
        let opened = self.origin.file_in(dir, listed.id, &listed.dir, &listed.name);
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Hashed::Changed,
            _ => failed(&error),
        })?;
        let same_time = file.mtime() == listed.mtime || self.expect != Expect::AsListed;
        if file.len() != listed.size || !same_time {
            return Err(Hashed::Changed);
        }
        if self.expect == Expect::OnVolume {
            // Only advice: where it is not taken, what the system remembers is read.
            let content = file.content();
            let _ = fadvise(content.fd, content.start, NonZeroU64::new(file.len()), Advice::DontNeed);
        }
        let left = listed.size.div_ceil(block_bytes(listed.size) as u64).max(1);
        let state = State { hashes: BlockHashes::new(listed.size), left, error: None };
        Ok(Open { file, data: DataMap::new(listed.size), state: Mutex::new(state) })
    }
}

fn finish(file: &SourceFile, state: &mut State) -> Hashed {
    match (state.error.take(), file.is_unchanged(), state.hashes.finish()) {
        (None, Ok(true), Some(hash)) => Hashed::Is(hash),
        (_, Ok(false), _) => Hashed::Changed,
        (Some(error), ..) | (None, Err(error), _) => failed(&error),
        (None, Ok(true), None) => Hashed::Changed,
    }
}

fn failed(error: &io::Error) -> Hashed {
    Hashed::Failed { operation: "read".into(), error: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        hash::{ContentHash, MIN_BLOCK_BYTES},
        root::{Place, Root},
    };

    fn listed(root: &std::path::Path, name: &str) -> Listed {
        let stat = fs::metadata(root.join(name)).unwrap();
        let mtime = std::os::unix::fs::MetadataExt::mtime(&stat);
        let nanos = std::os::unix::fs::MetadataExt::mtime_nsec(&stat) as u32;
        let mtime = Time { seconds: mtime, nanos };
        Listed { id: 0, dir: RelPath::root(), name: name.as_bytes().into(), size: stat.len(), mtime }
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
        let files: Vec<Listed> = (0..sizes.len()).map(|n| listed(dir.path(), &n.to_string())).collect();
        let root = Root::enter(&Place::from(dir.path())).unwrap();
        let expected: Vec<Hashed> = contents.iter().map(|it| Hashed::Is(ContentHash::of(it))).collect();
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
        let files: Vec<Listed> =
            ["grown", "touched", "gone", "link"].map(|name| listed(dir.path(), name)).into();
        fs::write(dir.path().join("grown"), "content and more").unwrap();
        let touched = fs::File::options().write(true).open(dir.path().join("touched")).unwrap();
        touched.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        fs::remove_file(dir.path().join("gone")).unwrap();
        fs::remove_file(dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink("grown", dir.path().join("link")).unwrap();
        let root = Root::enter(&Place::from(dir.path())).unwrap();
        let hashes = hash_all(Origin::Tree(&root), &files, Expect::AsListed, &Monitor::default()).unwrap();
        assert_eq!(hashes[..3], [Hashed::Changed, Hashed::Changed, Hashed::Changed]);
        assert!(matches!(&hashes[3], Hashed::Failed { operation, .. } if operation == "read"));
        let hashes =
            hash_all(Origin::Tree(&root), &files[1..2], Expect::SameSize, &Monitor::default()).unwrap();
        assert_eq!(hashes, [Hashed::Is(ContentHash::of(b"content"))]);
    }

    #[test]
    fn what_cannot_be_opened_costs_nothing_however_large_it_is_said_to_be() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "content").unwrap();
        let root = Root::enter(&Place::from(dir.path())).unwrap();
        let file = || listed(dir.path(), "file");
        let huge = Listed { size: i64::MAX as u64, ..file() };
        let hashes =
            hash_all(Origin::Tree(&root), &[file(), huge, file()], Expect::AsListed, &Monitor::default())
                .unwrap();
        let content = Hashed::Is(ContentHash::of(b"content"));
        assert_eq!(hashes, [content.clone(), Hashed::Changed, content]);
    }

    #[test]
    fn who_was_told_to_stop_hashes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "content").unwrap();
        let root = Root::enter(&Place::from(dir.path())).unwrap();
        let monitor = Monitor::default();
        monitor.cancel();
        let files = [listed(dir.path(), "file")];
        let stopped = hash_all(Origin::Tree(&root), &files, Expect::AsListed, &monitor);
        assert!(matches!(stopped, Err(TransportError::Canceled)));
    }
}
