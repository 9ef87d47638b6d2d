//! The source's workers: read the files that the sink needs, and send them.
//!
//! Small files are packed many to a frame ([`small`]). The blocks of a large file are dealt out to all workers ([`large`]), less what the
//! sink has of them; where its bytes may have moved, one worker goes through all of it ([`chunks`]). A file that changes while it is
//! read is read again, a few times; then it fails, and the sink keeps what it has.

mod chunks;
mod large;
mod small;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    thread::{Scope, ScopedJoinHandle},
    time::Instant,
};

use async_channel::{Receiver, RecvError, Sender};
use contract::RunParams;

use self::large::Large;
use super::{
    paths::{EntriesOf, Paths},
    read::{AsListed, LastDir, Origin},
};
use crate::{
    attrs::Classes,
    delta::{list::ChunkList, name::ShortName},
    entry::{Entry, Kind, Meta},
    monitor::Monitor,
    path::RelPath,
    transport::{DataSender, Fault, Peer, TransportError},
    tree::{Tree, dir::DirId},
    wire::{
        Basis, MAX_PACKED_BYTES, Needs, PACK_BYTES, Prefix, Update, compress::Compressor, data::PackBuilder,
    },
};

/// A batch of small files ends at this many, so that a directory of tiny ones is dealt out to all workers.
const BATCH_FILES: usize = 256;

/// Below this, compressing is faster than sending: about half of what one core compresses at zstd level 3.
const SLOW_LINK_BYTES_PER_SECOND: f64 = 80e6;

/// Of how many large files the sink may be in the midst of saying what it has; it does that of one on each of its cores.
const MAX_HALF_KNOWN: usize = 256;

const OUT_OF_ORDER: TransportError = TransportError::Nonsense("what there is of a file came out of order");

const NO_DIRECTORY: TransportError =
    TransportError::Nonsense("a file was asked for in a directory that there is not");

const NO_FILE: TransportError = TransportError::Nonsense("a file was asked for that there is not");

/// The running workers.
pub(super) struct Feed<'scope> {
    jobs: Sender<Job>,
    workers: Vec<ScopedJoinHandle<'scope, Result<(), TransportError>>>,
    paths: Paths<'scope>,
    /// How many bytes all files have.
    total_bytes: u64,
    origin: Origin<'scope>,
    as_listed: AsListed,
    monitor: &'scope Monitor,
    /// Why the connection ended, if it did.
    fault: &'scope Fault,
    /// Large files of which the sink has not said yet all of what it has, by the numbers of their needs.
    half_known: HashMap<u32, Arc<Large>>,
    /// Those that could not be read: the sink will say no more of them, but for what was on its way.
    given_up: HashSet<u32>,
    entries: EntriesOf<'scope>,
    files: u64,
    bytes: u64,
}

enum Job {
    /// Small files of one directory.
    Pack(Batch),
    /// A large file, as far as it can be compared; every worker that takes the job helps.
    Large(Arc<Large>),
    /// A large file of which the sink has chunks.
    Chunks(RelPath, File, Box<ChunkList<ShortName>>),
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
    as_listed: AsListed,
    /// What the sink has of a small file.
    prefix: Option<Prefix>,
}

impl<'scope> Feed<'scope> {
    /// Starts one worker for each data stream.
    pub(super) fn start<'env: 'scope>(
        scope: &'scope Scope<'scope, 'env>,
        origin: Origin<'env>,
        tree: &'env Tree,
        peer: &'env Peer,
        params: &RunParams,
        monitor: &'env Monitor,
    ) -> Self {
        let (jobs, queue) = async_channel::bounded(peer.senders.len() * 4);
        let start = |sender: &'env DataSender| {
            let queue = queue.clone();
            let compressor = Compressor::new(params.compression);
            let (link, dir) = (LinkMeter::start(), LastDir::default());
            let holes = params.preserve.sparse;
            let worker = Worker { origin, sender, compressor, link, holes, monitor, dir };
            scope.spawn(move || worker.run(&queue))
        };
        let workers = peer.senders.iter().map(start).collect();
        Self {
            jobs,
            workers,
            paths: Paths::new(tree),
            entries: EntriesOf::new(tree),
            total_bytes: tree.totals.bytes,
            as_listed: AsListed { classes: Classes::wanted(&params.preserve), since: tree.since },
            origin,
            monitor,
            fault: &peer.fault,
            half_known: HashMap::new(),
            given_up: HashSet::new(),
            files: 0,
            bytes: 0,
        }
    }

    /// Deals out the files of one directory.
    pub(super) fn send(&mut self, needs: &Needs) -> Result<(), TransportError> {
        let first = needs.indices.first().copied().unwrap_or(0);
        let entries = self.entries.from(needs.dir, first).ok_or(NO_DIRECTORY)?;
        let path = Arc::new(self.paths.of(needs.dir));
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut wanted = (0..).zip(&needs.indices).peekable();
        let mut prefixes = needs.prefixes.iter().copied().peekable();
        for (index, entry) in (first..).zip(entries) {
            let Some((nth, _)) = wanted.next_if(|(_, at)| **at == index) else {
                if wanted.peek().is_none() {
                    break;
                }
                continue;
            };
            let prefix = prefixes.next_if(|prefix| prefix.nth == nth);
            let file = self.file(needs.first.wrapping_add(nth), &entry, prefix)?;
            let size = file.size;
            if size > MAX_PACKED_BYTES || self.origin.is_device() {
                self.send_large(&Arc::new(Large::begin(self.origin, &path, file, None)))?;
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
            Some(_) => Err(NO_FILE),
            None => self.send_batch(needs.dir, &path, batch),
        }
    }

    /// Deals out a large file that the sink has something of, as far as it has said what that is.
    pub(super) fn update(&mut self, update: Update) -> Result<(), TransportError> {
        let Update { need, dir, index, basis } = update;
        let large = match (self.half_known.remove(&need), basis) {
            (Some(large), Basis::Granules(more)) => large.learn(more).then_some(large).ok_or(OUT_OF_ORDER)?,
            (None, Basis::Granules(first)) if first.start() == 0 => {
                let (path, file) = self.find(need, dir, index)?;
                Arc::new(Large::begin(self.origin, &path, file, Some(first)))
            }
            (None, Basis::Chunks(list)) => {
                let (path, file) = self.find(need, dir, index)?;
                return self.queue(Job::Chunks(path, file, Box::new(list)));
            }
            (None, Basis::Granules(_)) if self.given_up.contains(&need) => return Ok(()),
            _ => return Err(OUT_OF_ORDER),
        };
        if !large.is_known() {
            self.half_known.insert(need, Arc::clone(&large));
        }
        if self.half_known.len() > MAX_HALF_KNOWN {
            let failed = self.half_known.extract_if(|_, large| large.has_failed());
            self.given_up.extend(failed.map(|(need, _)| need));
        }
        match self.half_known.len() <= MAX_HALF_KNOWN {
            true => self.send_large(&large),
            false => Err(TransportError::Nonsense("too many large files were asked for at once")),
        }
    }

    /// A file that was asked for, and the path of its directory.
    fn find(&mut self, need: u32, dir: DirId, index: u32) -> Result<(RelPath, File), TransportError> {
        let entry = self.entries.from(dir, index).ok_or(NO_DIRECTORY)?.next().ok_or(NO_FILE)?;
        let file = self.file(need, &entry, None)?;
        self.monitor.set_totals(self.files, self.bytes);
        Ok((self.paths.of(dir), file))
    }

    fn file(&mut self, need: u32, entry: &Entry<'_>, prefix: Option<Prefix>) -> Result<File, TransportError> {
        let Kind::File { size } = entry.kind else {
            return Err(TransportError::Nonsense(
                "the content of something was asked for that is not a file",
            ));
        };
        // A sink may ask for one file again and again.
        (self.files, self.bytes) = match self.origin.is_device() {
            true => (1, self.total_bytes),
            false => (self.files + 1, self.bytes.saturating_add(size)),
        };
        Ok(File { need, name: entry.name.into(), size, meta: entry.meta, as_listed: self.as_listed, prefix })
    }

    /// Waits until everything was handed to the transport.
    pub(super) fn finish(self) -> Result<(), TransportError> {
        drop(self.jobs);
        self.workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(result) => result,
            Err(_) => Err(TransportError::Lost("a reading thread failed".into())),
        })?;
        self.monitor.add_files(u64::from(self.origin.is_device()));
        Ok(())
    }

    fn send_batch(&self, dir: DirId, path: &Arc<RelPath>, files: Vec<File>) -> Result<(), TransportError> {
        if files.is_empty() {
            return Ok(());
        }
        self.queue(Job::Pack(Batch { dir, path: Arc::clone(path), files }))
    }

    fn send_large(&self, large: &Arc<Large>) -> Result<(), TransportError> {
        self.workers.iter().try_for_each(|_| self.queue(Job::Large(Arc::clone(large))))
    }

    /// Hands a job to the workers. They end before the queue does only where the connection has ended, and then its fault is the reason.
    fn queue(&self, job: Job) -> Result<(), TransportError> {
        self.jobs.send_blocking(job).map_err(|_| self.fault.get())
    }
}

struct Worker<'a> {
    origin: Origin<'a>,
    sender: &'a DataSender,
    compressor: Compressor,
    link: LinkMeter,
    /// Whether holes are looked for.
    holes: bool,
    monitor: &'a Monitor,
    dir: LastDir,
}

impl Worker<'_> {
    fn run(mut self, queue: &Receiver<Job>) -> Result<(), TransportError> {
        let mut pack = PackBuilder::default();
        while let Ok(job) = self.next(queue, &mut pack)? {
            self.check()?;
            match job {
                Job::Pack(batch) => self.pack(&batch, &mut pack)?,
                Job::Large(large) => self.help(large)?,
                Job::Chunks(dir, file, list) => self.send_chunks(&dir, &file, &list)?,
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

    /// Looks whether this end was told to stop.
    fn check(&self) -> Result<(), TransportError> {
        self.monitor.check().map_err(|_| TransportError::Canceled)
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
