//! The source's workers: read the files that the sink needs, and send them.
//!
//! Small files are packed many to a frame. The blocks of a large file are dealt out to all workers. A file that changes while it is
//! read is read again, a few times; then it fails, and the sink keeps what it has.

use std::{
    io,
    os::fd::AsFd as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{Scope, ScopedJoinHandle},
    time::Instant,
};

use async_channel::{Receiver, RecvError, Sender};
use contract::Compression;
use rustix::{buffer::spare_capacity, io::Errno};

use super::read::{
    CHANGED, LastDir, MAX_ATTEMPTS, SourceFile, meta_of, open_nonblocking, read_from_start, regular,
};
use crate::{
    entry::{Kind, Meta},
    hash::{BLOCK_BYTES, BlockHash, BlockHashes},
    monitor::Monitor,
    path::RelPath,
    root::Root,
    scan::{DirId, ROOT, Tree},
    transport::{DataSender, Peer, TransportError},
    wire::{
        Needs,
        compress::Compressor,
        data::{Block, End, Failed, Fresh, MAX_PACKED_BYTES, PACK_BYTES, PackBuilder, Whole},
    },
};

/// A batch of small files ends at this many, so that a directory of tiny ones is dealt out to all workers.
const BATCH_FILES: usize = 256;

/// Below this, compressing is faster than sending: about half of what one core compresses at zstd level 3.
const SLOW_LINK_BYTES_PER_SECOND: f64 = 80e6;

/// The running workers.
pub(super) struct Feed<'scope> {
    jobs: Sender<Job>,
    workers: Vec<ScopedJoinHandle<'scope, Result<(), TransportError>>>,
    paths: Paths<'scope>,
    tree: &'scope Tree,
    root: &'scope Root,
    monitor: &'scope Monitor,
    files: u64,
    bytes: u64,
}

enum Job {
    /// Small files of one directory.
    Pack(Batch),
    /// A large file; every worker that takes the job helps.
    Large(Arc<Large>),
}

struct Batch {
    dir: DirId,
    path: Arc<RelPath>,
    files: Vec<File>,
}

/// A file as its listing has it.
#[derive(Debug, Clone)]
struct File {
    need: u32,
    name: Box<[u8]>,
    size: u64,
    meta: Meta,
}

impl<'scope> Feed<'scope> {
    /// Starts one worker for each data stream.
    pub(super) fn start<'env: 'scope>(
        scope: &'scope Scope<'scope, 'env>,
        root: &'env Root,
        tree: &'env Tree,
        peer: &'env Peer,
        compression: Compression,
        monitor: &'env Monitor,
    ) -> Self {
        let (jobs, queue) = async_channel::bounded(peer.senders.len() * 4);
        let start = |sender: &'env DataSender| {
            let queue = queue.clone();
            let compressor = Compressor::new(compression);
            let link = LinkMeter::start();
            let worker = Worker { root, sender, compressor, link, monitor, dir: LastDir::default() };
            scope.spawn(move || worker.run(&queue))
        };
        let workers = peer.senders.iter().map(start).collect();
        Self { jobs, workers, paths: Paths::new(tree), tree, root, monitor, files: 0, bytes: 0 }
    }

    /// Deals out the files of one directory.
    pub(super) fn send(&mut self, needs: &Needs) -> Result<(), TransportError> {
        let dir = self.tree.dirs.get(needs.dir as usize);
        let dir =
            dir.ok_or(TransportError::Nonsense("a file was asked for in a directory that there is not"))?;
        let path = Arc::new(self.paths.of(needs.dir));
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut wanted = (needs.first..).zip(&needs.indices).peekable();
        for (index, entry) in (0..).zip(&dir.listing) {
            let Some((need, _)) = wanted.next_if(|(_, at)| **at == index) else { continue };
            let Kind::File { size } = entry.kind else {
                return Err(TransportError::Nonsense(
                    "the content of something was asked for that is not a file",
                ));
            };
            let file = File { need, name: entry.name.into(), size, meta: entry.meta };
            self.files += 1;
            self.bytes += size;
            if size > MAX_PACKED_BYTES {
                self.send_large(&path, file)?;
                continue;
            }
            bytes += size;
            batch.push(file);
            if bytes >= PACK_BYTES as u64 || batch.len() >= BATCH_FILES {
                self.send_batch(needs.dir, &path, std::mem::take(&mut batch))?;
                bytes = 0;
            }
        }
        self.monitor.set_totals(self.files, self.bytes);
        match wanted.next() {
            Some(_) => Err(TransportError::Nonsense("a file was asked for that there is not")),
            None => self.send_batch(needs.dir, &path, batch),
        }
    }

    /// Waits until everything was handed to the transport.
    pub(super) fn finish(self) -> Result<(), TransportError> {
        drop(self.jobs);
        self.workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(result) => result,
            Err(_) => Err(TransportError::Lost("a reading thread failed".into())),
        })
    }

    fn send_batch(&self, dir: DirId, path: &Arc<RelPath>, files: Vec<File>) -> Result<(), TransportError> {
        if files.is_empty() {
            return Ok(());
        }
        self.queue(Job::Pack(Batch { dir, path: Arc::clone(path), files }))
    }

    fn send_large(&self, path: &RelPath, file: File) -> Result<(), TransportError> {
        let large = Arc::new(Large::begin(self.root, path, file, 0));
        for _ in 0..self.workers.len() {
            self.queue(Job::Large(Arc::clone(&large)))?;
        }
        Ok(())
    }

    fn queue(&self, job: Job) -> Result<(), TransportError> {
        self.jobs.send_blocking(job).map_err(|_| TransportError::Lost("the reading threads ended".into()))
    }
}

/// The paths of directories, from their parents. Directories are asked for in the order of their parents, so what is known of the
/// last parent serves all its children.
struct Paths<'a> {
    tree: &'a Tree,
    parents: Vec<DirId>,
    last: Option<Parent>,
}

/// The path of a directory, and the names of the directories in it.
struct Parent {
    id: DirId,
    path: RelPath,
    names: Vec<Box<[u8]>>,
}

impl<'a> Paths<'a> {
    fn new(tree: &'a Tree) -> Self {
        let mut parents = vec![ROOT; tree.dirs.len()];
        for (id, dir) in (0..).zip(&tree.dirs) {
            let children = dir.first_child as usize..(dir.first_child + dir.listing.dirs()) as usize;
            parents[children].fill(id);
        }
        Self { tree, parents, last: None }
    }

    fn of(&mut self, dir: DirId) -> RelPath {
        if dir == ROOT {
            return RelPath::root();
        }
        let id = self.parents[dir as usize];
        let parent = match self.last.take().filter(|last| last.id == id) {
            Some(parent) => parent,
            None => Parent { id, path: self.of(id), names: self.names_in(id) },
        };
        let nth = (dir - self.tree.dirs[id as usize].first_child) as usize;
        let path = parent.names.get(nth).and_then(|name| parent.path.join(name).ok());
        self.last = Some(parent);
        path.unwrap_or_default()
    }

    fn names_in(&self, dir: DirId) -> Vec<Box<[u8]>> {
        let listing = &self.tree.dirs[dir as usize].listing;
        listing.iter().filter(|entry| entry.kind == Kind::Dir).map(|entry| entry.name.into()).collect()
    }
}

struct Worker<'a> {
    root: &'a Root,
    sender: &'a DataSender,
    compressor: Compressor,
    link: LinkMeter,
    monitor: &'a Monitor,
    dir: LastDir,
}

impl Worker<'_> {
    fn run(mut self, queue: &Receiver<Job>) -> Result<(), TransportError> {
        let mut pack = PackBuilder::default();
        while let Ok(job) = self.next(queue, &mut pack)? {
            match job {
                Job::Pack(batch) => self.pack(&batch, &mut pack)?,
                Job::Large(large) => self.help(large)?,
            }
        }
        self.flush(&mut pack)
    }

    /// The next job. Before this thread waits for one, it sends what it has packed.
    fn next(
        &mut self,
        queue: &Receiver<Job>,
        pack: &mut PackBuilder,
    ) -> Result<Result<Job, RecvError>, TransportError> {
        if let Ok(job) = queue.try_recv() {
            return Ok(Ok(job));
        }
        self.flush(pack)?;
        Ok(queue.recv_blocking())
    }

    fn flush(&mut self, pack: &mut PackBuilder) -> Result<(), TransportError> {
        if pack.is_empty() {
            return Ok(());
        }
        self.send(std::mem::take(pack).finish())
    }

    fn send(&mut self, frame: Vec<u8>) -> Result<(), TransportError> {
        let frame = self.compressor.seal(frame, self.link.is_slow());
        let (len, waits) = (frame.len(), self.sender.is_behind());
        self.sender.send(frame)?;
        self.link.sent(len, waits);
        Ok(())
    }

    fn pack(&mut self, batch: &Batch, pack: &mut PackBuilder) -> Result<(), TransportError> {
        for file in &batch.files {
            match self.read_small(batch, file, pack) {
                Ok(Read::Packed) => {
                    self.monitor.add_files(1);
                    self.monitor.add_bytes(file.size);
                }
                Ok(Read::Grown) => {
                    self.help(Arc::new(Large::begin(self.root, &batch.path, file.clone(), 0)))?;
                }
                Err(error) => pack.push_failed(file.need, "read", &error.to_string()),
            }
            if pack.is_full() {
                self.flush(pack)?;
            }
        }
        Ok(())
    }

    fn read_small(&mut self, batch: &Batch, file: &File, pack: &mut PackBuilder) -> io::Result<Read> {
        let fd = open_nonblocking(self.dir.open(self.root, batch.dir, &batch.path)?, &file.name)?;
        let (mut size, mut meta) = (file.size, file.meta);
        for _ in 0..MAX_ATTEMPTS {
            if size > MAX_PACKED_BYTES {
                return Ok(Read::Grown);
            }
            let fresh = (meta != file.meta).then_some(Fresh { meta });
            let read = pack.push(file.need, fresh, size as usize, |buffer| {
                read_from_start(&fd, buffer)?;
                let stat = regular(&fd)?;
                match (stat.st_size as u64, meta_of(&stat, &file.meta)) {
                    now if now == (size, meta) => Ok(()),
                    now => Err(Misread::Changed(now)),
                }
            });
            match read {
                Ok(()) => return Ok(Read::Packed),
                Err(Misread::Failed(error)) => return Err(error),
                Err(Misread::Changed(now)) => (size, meta) = now,
            }
        }
        Err(io::Error::other(CHANGED))
    }

    /// Sends blocks of a large file until all are taken by this worker or others. Whoever sends the last one ends the file, or, if
    /// the file has changed meanwhile, begins it anew.
    fn help(&mut self, large: Arc<Large>) -> Result<(), TransportError> {
        let mut large = large;
        while let Some(offset) = large.next_block() {
            match large.read_block(offset) {
                Ok(frame) => {
                    self.monitor.add_bytes((frame.len() - Block::PREFIX_BYTES) as u64);
                    self.send(frame)?;
                }
                Err(error) => large.fail(error),
            }
            if large.block_done() {
                match large.end() {
                    Ended::Over(frame) => {
                        self.monitor.add_files(1);
                        self.send(frame)?;
                    }
                    Ended::Changed => large = Arc::new(large.again(self.root)),
                }
            }
        }
        Ok(())
    }
}

/// How fast the link takes what one worker sends.
struct LinkMeter {
    bytes_per_second: f64,
    last: Instant,
}

impl LinkMeter {
    fn start() -> Self {
        Self { bytes_per_second: SLOW_LINK_BYTES_PER_SECOND, last: Instant::now() }
    }

    fn is_slow(&self) -> bool {
        self.bytes_per_second < SLOW_LINK_BYTES_PER_SECOND
    }

    /// Takes note of a frame. Only one that had to wait says how fast the link is; one that had not says that it is faster than
    /// this worker.
    fn sent(&mut self, len: usize, waited: bool) {
        let now = Instant::now();
        let took = (now - self.last).as_secs_f64().max(1e-6);
        self.last = now;
        self.bytes_per_second = match waited {
            true => 0.75 * self.bytes_per_second + 0.25 * len as f64 / took,
            false => self.bytes_per_second * 1.1,
        };
    }
}

enum Read {
    Packed,
    /// It was small when it was scanned, and is no more.
    Grown,
}

/// Why a read does not count.
enum Misread {
    Failed(io::Error),
    Changed((u64, Meta)),
}

impl From<io::Error> for Misread {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// A large file that is being sent by several workers.
struct Large {
    path: RelPath,
    file: File,
    attempt: u32,
    opened: io::Result<SourceFile>,
    len: u64,
    next: AtomicU64,
    left: AtomicU64,
    failed: AtomicBool,
    state: Mutex<LargeState>,
}

struct LargeState {
    hashes: BlockHashes,
    error: Option<io::Error>,
}

enum Ended {
    Over(Vec<u8>),
    Changed,
}

impl Large {
    fn begin(root: &Root, dir: &RelPath, file: File, attempt: u32) -> Self {
        let opened = root.dir(dir).and_then(|dir| SourceFile::open(dir.as_fd(), &file.name));
        let len = opened.as_ref().map_or(0, SourceFile::len);
        let state = LargeState { hashes: BlockHashes::new(len), error: None };
        Self {
            path: dir.clone(),
            file,
            attempt,
            opened,
            len,
            next: AtomicU64::new(0),
            left: AtomicU64::new(blocks(len)),
            failed: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    fn again(&self, root: &Root) -> Self {
        Self::begin(root, &self.path, self.file.clone(), self.attempt + 1)
    }

    /// Takes the offset of a block that nobody has taken.
    fn next_block(&self) -> Option<u64> {
        let block = self.next.fetch_add(1, Ordering::Relaxed);
        (block < blocks(self.len)).then_some(block * BLOCK_BYTES as u64)
    }

    /// Says that a block was sent or failed; true for the last.
    fn block_done(&self) -> bool {
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Reads and hashes a block; the frame of an empty file is its end alone.
    fn read_block(&self, offset: u64) -> io::Result<Vec<u8>> {
        let opened = self.opened.as_ref().map_err(|error| io::Error::from(error.kind()))?;
        if self.failed.load(Ordering::Relaxed) {
            return Err(Errno::CANCELED.into());
        }
        let size = (self.len - offset).min(BLOCK_BYTES as u64) as usize;
        let mut frame = Vec::with_capacity(Block::PREFIX_BYTES + size);
        frame.resize(Block::PREFIX_BYTES, 0);
        while frame.len() < frame.capacity().min(Block::PREFIX_BYTES + size) {
            let at = offset + (frame.len() - Block::PREFIX_BYTES) as u64;
            match rustix::io::pread(opened, spare_capacity(&mut frame), at) {
                Ok(0) => return Err(io::Error::other(CHANGED)),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        frame.truncate(Block::PREFIX_BYTES + size);
        let hash = BlockHash::of(&frame[Block::PREFIX_BYTES..], offset, self.len);
        self.lock().hashes.set(offset, hash);
        Ok(Block::seal(frame, self.file.need, self.attempt, self.len, offset))
    }

    fn fail(&self, error: io::Error) {
        self.failed.store(true, Ordering::Relaxed);
        self.lock().error.get_or_insert(error);
    }

    /// What comes after the last block.
    fn end(&self) -> Ended {
        let mut state = self.lock();
        let changed = match &self.opened {
            Ok(opened) => opened.is_unchanged().is_ok_and(|unchanged| !unchanged),
            Err(_) => false,
        };
        if changed && self.attempt + 1 < MAX_ATTEMPTS {
            return Ended::Changed;
        }
        let error = match (&self.opened, state.error.take()) {
            (Err(error), _) => Some(error.to_string()),
            (_, Some(error)) => Some(error.to_string()),
            _ if changed => Some(CHANGED.into()),
            _ => None,
        };
        let outcome = match (&error, state.hashes.finish(), &self.opened) {
            (None, Some(hash), Ok(opened)) => {
                let meta = opened.meta(&self.file.meta);
                let fresh = (meta != self.file.meta).then_some(Fresh { meta });
                Ok(Whole { file_len: self.len, hash, fresh })
            }
            (error, ..) => Err(Failed { operation: "read", error: error.as_deref().unwrap_or(CHANGED) }),
        };
        Ended::Over(End { need: self.file.need, attempt: self.attempt, outcome }.encode())
    }

    fn lock(&self) -> MutexGuard<'_, LargeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Even an empty or unreadable file has one block to be done with.
fn blocks(len: u64) -> u64 {
    len.div_ceil(BLOCK_BYTES as u64).max(1)
}
