//! The source's workers: read the files that the sink needs, and send them.
//!
//! Small files are packed many to a frame (`pack_small_files`). All workers share the blocks of a large file, except
//! for those that the sink has (`send_large_file`). If its bytes may have moved, one worker cuts all of it into chunks
//! (`send_chunked_file`). A file that changes while it is read is read again, a few times; then it fails, and the sink
//! keeps its version.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    thread::{Scope, ScopedJoinHandle},
};

use async_channel::{Receiver, RecvError, Sender};
use contract::{RunParams, Side};

use crate::{
    delta::list::ChunkList,
    entry::{Entry, Kind},
    kept_xattrs::Classes,
    measure::{
        monitor::Monitor,
        thread_time::{Activity, EffortPool, OutsideClock, ThreadGroup, during},
    },
    path::RelPath,
    reshape::Reshape,
    source::{
        paths_by_number::{EntriesOf, Paths},
        send_frames::{PackBatch, RequestedFile, SendWorker},
        send_large_file::Large,
        slow_link::LinkMeter,
        source_file::{AsListed, LastDir, Origin},
    },
    transport::{DataSender, Fault, Peer, TransportError},
    tree::{Tree, dir::DirId},
    wire::{
        BasisManifest, MAX_PACKED_BYTES, Needs, PACK_BYTES, Prefix, Update, compress::Compressor,
        data::PackBuilder,
    },
};

/// The largest number of small files in a batch, so that all workers share a directory of tiny ones.
const BATCH_FILES: usize = 256;

/// The largest number of files whose manifests may be incomplete at once. The sink sends one from each of its cores.
const MAX_HALF_KNOWN: usize = 256;

const OUT_OF_ORDER: TransportError = TransportError::Nonsense("the parts of a manifest came out of order");

const NO_DIRECTORY: TransportError =
    TransportError::Nonsense("a file was asked for in a directory that there is not");

const NO_FILE: TransportError = TransportError::Nonsense("a file was asked for that there is not");

/// The running workers.
pub(crate) struct Feed<'scope> {
    jobs: Sender<SendJob>,
    workers: Vec<ScopedJoinHandle<'scope, Result<(), TransportError>>>,
    paths: Paths<'scope>,
    origin: Origin<'scope>,
    as_listed: AsListed,
    monitor: &'scope Monitor,
    /// The reason why the connection ended, if it did.
    fault: &'scope Fault,
    /// Large files whose manifests have not arrived completely, by the numbers of their needs.
    half_known: HashMap<u32, Arc<Large>>,
    /// The ones of them that could not be read. Parts of their manifests that were in flight still arrive.
    given_up: HashSet<u32>,
    entries: EntriesOf<'scope>,
    /// Measures the threads of the transport while the workers run.
    _transport: OutsideClock<'scope>,
}

enum SendJob {
    /// Small files of one directory.
    Pack(PackBatch),
    /// A large file, as far as its manifest has arrived; every worker that takes the job helps.
    Large(Arc<Large>),
    /// A large file, and the chunks that the sink has of it.
    Chunks(RelPath, RequestedFile, Box<ChunkList>),
}

impl<'scope> Feed<'scope> {
    /// Starts one worker for each data stream.
    pub(crate) fn start<'env: 'scope>(
        scope: &'scope Scope<'scope, 'env>,
        origin: Origin<'env>,
        tree: &'env Tree,
        peer: &'env Peer,
        params: &RunParams,
        monitor: &'env Monitor,
    ) -> Self {
        let (jobs, queue) = async_channel::bounded(peer.senders.len() * 4);
        let pool = Arc::new(monitor.pool(Side::Source, ThreadGroup::Workers));
        let start = |sender: &'env DataSender| {
            let queue = queue.clone();
            let compressor = Compressor::new(params.compression);
            let link = LinkMeter::start(params.bandwidth_limit, peer.is_far(), peer.senders.len());
            let dir = LastDir::default();
            let holes = params.preserve.sparse;
            let worker = SendWorker { origin, sender, compressor, link, holes, monitor, dir };
            let pool: Arc<EffortPool<'_>> = Arc::clone(&pool);
            scope.spawn(move || pool.run(Activity::Reading, || worker.run(&queue)))
        };
        let workers = peer.senders.iter().map(start).collect();
        let transport = monitor.pool(Side::Source, ThreadGroup::Transport);
        Self {
            jobs,
            workers,
            _transport: OutsideClock::start(transport, &peer.threads(), monitor.snapshot().bytes_total),
            paths: Paths::new(tree),
            entries: EntriesOf::new(tree),
            as_listed: AsListed {
                classes: Classes::wanted(&params.preserve),
                since: tree.since.seconds,
                reshape: Reshape::of(params),
            },
            origin,
            monitor,
            fault: &peer.fault,
            half_known: HashMap::new(),
            given_up: HashSet::new(),
        }
    }

    /// Assigns the files of one directory to the workers.
    pub(crate) fn send(&mut self, needs: &Needs) -> Result<(), TransportError> {
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
            let file = self.file(needs.first.wrapping_add(nth), needs.dir, &entry, prefix)?;
            let size = file.size;
            if size > MAX_PACKED_BYTES || self.origin.is_device() {
                self.send_large(&Arc::new(Large::begin(self.origin, &path, file, None, self.monitor)))?;
                continue;
            }
            bytes += size;
            batch.push(file);
            if bytes >= PACK_BYTES as u64 || batch.len() >= BATCH_FILES {
                self.send_batch(needs.dir, &path, std::mem::take(&mut batch))?;
                bytes = 0;
            }
        }
        match wanted.next() {
            Some(_) => Err(NO_FILE),
            None => self.send_batch(needs.dir, &path, batch),
        }
    }

    /// Assigns a large file to the workers, as far as the manifest of its basis has arrived.
    pub(crate) fn update(&mut self, update: Update) -> Result<(), TransportError> {
        let Update { need, dir, index, basis } = update;
        let large = match (self.half_known.remove(&need), basis) {
            (Some(large), BasisManifest::Granules(more)) => {
                large.learn(more).then_some(large).ok_or(OUT_OF_ORDER)?
            }
            (None, BasisManifest::Granules(first)) if first.start() == 0 => {
                let file = self.find(need, dir, index)?;
                Arc::new(Large::begin(self.origin, &self.paths.of(dir), file, Some(first), self.monitor))
            }
            (None, BasisManifest::Chunks(list)) => {
                let file = self.find(need, dir, index)?;
                let job = SendJob::Chunks(self.paths.of(dir), file, Box::new(list));
                return self.queue(job);
            }
            (None, BasisManifest::Granules(_)) if self.given_up.contains(&need) => return Ok(()),
            _ => return Err(OUT_OF_ORDER),
        };
        if !large.is_known() {
            self.half_known.insert(need, Arc::clone(&large));
        }
        if self.half_known.len() > MAX_HALF_KNOWN {
            let failed = self.half_known.extract_if(|_, large| large.has_failed());
            self.given_up.extend(failed.map(|(need, _)| need));
        }
        if self.half_known.len() <= MAX_HALF_KNOWN {
            self.send_large(&large)
        } else {
            Err(TransportError::Nonsense("too many large files were asked for at once"))
        }
    }

    /// Returns a requested file.
    fn find(&mut self, need: u32, dir: DirId, index: u32) -> Result<RequestedFile, TransportError> {
        let entry = self.entries.from(dir, index).ok_or(NO_DIRECTORY)?.next().ok_or(NO_FILE)?;
        self.file(need, dir, &entry, None)
    }

    fn file(
        &self,
        need: u32,
        dir: DirId,
        entry: &Entry<'_>,
        prefix: Option<Prefix>,
    ) -> Result<RequestedFile, TransportError> {
        let Kind::File { size } = entry.kind else {
            return Err(TransportError::Nonsense(
                "the content of something was asked for that is not a file",
            ));
        };
        Ok(RequestedFile {
            need,
            dir,
            name: entry.name.into(),
            size,
            meta: entry.meta,
            as_listed: self.as_listed,
            prefix,
        })
    }

    /// Waits until everything was handed to the transport.
    pub(crate) fn finish(self) -> Result<(), TransportError> {
        drop(self.jobs);
        let failed = |_| Err(TransportError::Lost("a reading thread failed".into()));
        during(Activity::Idle, || {
            self.workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(failed))
        })?;
        self.monitor.add_files(u64::from(self.origin.is_device()));
        Ok(())
    }

    fn send_batch(
        &self,
        dir: DirId,
        path: &Arc<RelPath>,
        files: Vec<RequestedFile>,
    ) -> Result<(), TransportError> {
        if files.is_empty() {
            return Ok(());
        }
        self.queue(SendJob::Pack(PackBatch { dir, path: Arc::clone(path), files }))
    }

    fn send_large(&self, large: &Arc<Large>) -> Result<(), TransportError> {
        self.workers.iter().try_for_each(|_| self.queue(SendJob::Large(Arc::clone(large))))
    }

    /// Queues a job for the workers. Fails only if the connection has ended, because workers run until then; returns
    /// the connection's error.
    fn queue(&self, job: SendJob) -> Result<(), TransportError> {
        during(Activity::Idle, || self.jobs.send_blocking(job).map_err(|_| self.fault.get()))
    }
}

impl SendWorker<'_> {
    fn run(mut self, queue: &Receiver<SendJob>) -> Result<(), TransportError> {
        let mut pack = PackBuilder::default();
        while let Ok(job) = self.next(queue, &mut pack)? {
            self.check()?;
            match job {
                SendJob::Pack(batch) => self.pack(&batch, &mut pack)?,
                SendJob::Large(large) => self.help(large)?,
                SendJob::Chunks(dir, file, list) => self.send_chunks(&dir, &file, &list)?,
            }
        }
        self.flush(&mut pack)
    }

    /// Returns the next job. Sends the pack first if it would have to wait.
    fn next(
        &mut self,
        queue: &Receiver<SendJob>,
        pack: &mut PackBuilder,
    ) -> Result<Result<SendJob, RecvError>, TransportError> {
        if let Ok(job) = queue.try_recv() {
            return Ok(Ok(job));
        }
        self.flush(pack)?;
        Ok(during(Activity::Peer, || queue.recv_blocking()))
    }
}
