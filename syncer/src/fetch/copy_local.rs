//! Copies content between files of the same machine, with several threads, and by clone where the file system can.

use std::io;

use async_channel::{Receiver, Sender};
use contract::Side;

use crate::{
    destination::{SMALL_BYTES, Staged},
    fetch::copy_differences::{Zeros, differences},
    measure::{
        monitor::Monitor,
        thread_time::{Activity, ThreadGroup, copying, during},
    },
    plan::needed_files::{Fetch, Need},
    session_error::SessionError,
    sink::writing::{WriteTarget, Writing},
    source::{
        read_again::until_unchanged,
        source_file::{AsListed, LastDir, Origin, SourceFile},
    },
    sys::{cores::cores, file_part::Slice},
    transport::TransportError,
};

/// The number of jobs that may wait for a worker, which bounds the memory that they take.
const MAX_JOBS: usize = 32;

/// Calls `work`, and copies the files that it fetches with several workers. A few small files are copied by the calling
/// thread. `as_listed` says which files have the metadata of their listing.
pub(crate) fn copy_all(
    writing: Writing<'_>,
    origin: Origin<'_>,
    as_listed: AsListed,
    work: impl FnOnce(&mut dyn Fetch) -> Result<(), SessionError>,
) -> Result<(), SessionError> {
    let (jobs, queue) = async_channel::bounded(MAX_JOBS);
    let pool = writing.run.monitor.pool(Side::Sink, ThreadGroup::Workers);
    let copier = || Copier {
        writing,
        origin,
        as_listed,
        from: LastDir::default(),
        to: LastDir::default(),
        small: Vec::new(),
    };
    std::thread::scope(|scope| {
        let start = |queue: Receiver<Vec<Need>>| {
            let (pool, copier) = (&pool, copier());
            scope.spawn(move || pool.run(Activity::Copying, || copier.run(&queue)))
        };
        let (few, workers) = (Few::default(), Vec::new());
        let mut fetch = CopyFetch { jobs, queue: Some(queue), start, workers, few };
        let result = work(&mut fetch);
        let CopyFetch { jobs, workers, few, .. } = fetch;
        let mut rest = copier();
        during(Activity::Copying, || rest.copy_each(&few.needs));
        jobs.close();
        for worker in workers {
            let _ = during(Activity::Idle, || worker.join());
        }
        if writing.run.monitor.cancelled() { Err(TransportError::Canceled.into()) } else { result }
    })
}

/// Reading and writing are timed separately for files from this size on; of smaller files, for one in `LOOKED_AT`.
const LARGE_BYTES: u64 = 1 << 20;
const LOOKED_AT: usize = 16;

/// The number of a directory's files that a worker gets at once.
const FILES_PER_JOB: usize = 64;

/// Up to this many files, and this many bytes of them, are copied without starting a thread.
const FEW_FILES: usize = 8;
const FEW_BYTES: u64 = 256 << 10;

/// Files that are held back until there are enough for a worker.
#[derive(Default)]
struct Few {
    needs: Vec<Need>,
    bytes: u64,
}

/// Passes files to workers, and starts the workers as there is work for them.
struct CopyFetch<S, W> {
    jobs: Sender<Vec<Need>>,
    /// Cloned for each worker. Dropped once all are started, so that a send fails when they have ended.
    queue: Option<Receiver<Vec<Need>>>,
    start: S,
    workers: Vec<W>,
    few: Few,
}

impl<W, S: Fn(Receiver<Vec<Need>>) -> W> CopyFetch<S, W> {
    fn send(&mut self, job: Vec<Need>) {
        if let Some(queue) = self.queue.take() {
            self.workers.push((self.start)(queue.clone()));
            self.queue = Some(queue).filter(|_| self.workers.len() < cores());
        }
        let _ = during(Activity::Idle, || self.jobs.send_blocking(job));
    }

    /// Holds files back as long as they are few.
    fn keep_back(&mut self, needs: &mut Vec<Need>) {
        let few = &mut self.few;
        few.bytes = needs.iter().fold(few.bytes, |sum, need| sum.saturating_add(need.size));
        few.needs.append(needs);
        if few.needs.len() > FEW_FILES || few.bytes > FEW_BYTES {
            std::mem::swap(&mut few.needs, needs);
        }
    }
}

impl<W, S: Fn(Receiver<Vec<Need>>) -> W> Fetch for CopyFetch<S, W> {
    fn fetch(&mut self, mut needs: Vec<Need>) -> Result<(), SessionError> {
        if self.workers.is_empty() {
            self.keep_back(&mut needs);
        }
        while !needs.is_empty() {
            let rest = needs.split_off(needs.len().min(FILES_PER_JOB));
            self.send(needs);
            needs = rest;
        }
        Ok(())
    }

    /// Fetches these files from the source, too. The caller waits for the workers.
    fn finish(&mut self, made_from_others: Vec<Need>) -> Result<(), SessionError> {
        self.fetch(made_from_others)
    }
}

struct Copier<'a> {
    writing: Writing<'a>,
    origin: Origin<'a>,
    as_listed: AsListed,
    from: LastDir,
    to: LastDir,
    /// The content of the last file, if it went through memory as a whole.
    small: Vec<u8>,
}

impl Copier<'_> {
    fn run(mut self, queue: &Receiver<Vec<Need>>) {
        while let Ok(needs) = during(Activity::Idle, || queue.recv_blocking()) {
            self.copy_each(&needs);
        }
    }

    /// Copies these files, until the run is told to stop.
    fn copy_each(&mut self, needs: &[Need]) {
        for (nth, need) in needs.iter().enumerate() {
            if self.writing.run.monitor.cancelled() || self.writing.is_lost() {
                return;
            }
            let is_looked_at = need.size >= LARGE_BYTES || nth % LOOKED_AT == 0;
            match copying(is_looked_at, || self.copy(need)) {
                // No failure is recorded, because the run stops.
                Err(_) if self.writing.run.monitor.cancelled() => return,
                Err(error) => self.writing.run.failures.add(&need.path(), "copy", &error),
                Ok(()) => {}
            }
            self.writing.has_done(need);
        }
    }

    fn copy(&mut self, need: &Need) -> io::Result<()> {
        until_unchanged(|| Ok(self.attempt(need)?.then_some(())))
    }

    /// Copies a file once. Returns false if it changed while it was read.
    fn attempt(&mut self, need: &Need) -> io::Result<bool> {
        let (writing, dir) = (self.writing, &need.dir);
        let source = during(Activity::Reading, || {
            self.origin.file_in(&mut self.from, dir.source, &dir.path, &need.name, writing.run.monitor)
        })?;
        let in_motion = source.is_in_motion();
        let zeros = match writing.store {
            WriteTarget::Tree(tree) if tree.settings().holes && source.has_holes() => Zeros::Holes,
            WriteTarget::Device(device) if device.keeps_holes() => Zeros::AllHoles,
            _ => Zeros::Bytes,
        };
        self.small.clear();
        let (staged, reused) = match writing.stage_over(need) {
            Some(staged) => {
                let same = copy_differences(&source, &staged, zeros, writing.run.monitor);
                let same = same.inspect_err(|_| writing.unstage(&staged))?;
                (staged, need.replaces.then_some(same))
            }
            None => match self.copy_whole(need, &source, zeros) {
                // A file that became shorter has changed: the caller tries again.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !source.is_unchanged()? => {
                    return Ok(false);
                }
                copied => (copied?, None),
            },
        };
        let fresh = source.fresh(&need.meta, self.as_listed);
        let fresh = fresh.inspect_err(|_| writing.unstage(&staged))?;
        if !source.is_unchanged()? {
            writing.unstage(&staged);
            return Ok(false);
        }
        let (meta, attrs) = fresh.as_ref().map_or((&need.meta, &need.attrs), |it| (&it.meta, &it.attrs));
        if in_motion {
            writing.note_in_motion(need, meta)?;
        }
        writing.publish(need, &mut self.to, &staged, meta, attrs.as_attrs(), source.len())?;
        if !self.small.is_empty() {
            writing.remember(need, &staged, meta, attrs.as_attrs(), &self.small);
        }
        reused.inspect(|bytes| writing.count_reused(need, *bytes));
        writing.run.monitor.add_bytes(source.len());
        Ok(true)
    }

    fn copy_whole(&mut self, need: &Need, source: &SourceFile, zeros: Zeros) -> io::Result<Staged> {
        let staged = self.writing.create(need, &mut self.to, need.meta.mode)?;
        let (holes, monitor) = (zeros != Zeros::Bytes, self.writing.run.monitor);
        let (content, len) = (source.content(), source.len());
        // Out of a pack, the kernel cannot copy.
        let is_small =
            content.start != 0 || !holes && len <= SMALL_BYTES && self.writing.remembers(need, len);
        let copied = if is_small {
            monitor.may_copy(len).and_then(|()| copy_small(content, len, &staged, &mut self.small))
        } else {
            staged.copy_from(content.fd, len, holes, monitor)
        };
        copied.inspect_err(|_| self.writing.unstage(&staged))?;
        Ok(staged)
    }
}

/// Copies a small file through memory, where its content stays.
fn copy_small(from: Slice<'_>, len: u64, staged: &Staged, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.resize(len as usize, 0);
    during(Activity::Reading, || from.read_exact_at(bytes, 0))?;
    staged.write_at(bytes, 0)
}

/// Copies the ranges that differ, and returns the number of equal bytes. If the file became shorter, returns 0: the
/// caller sees later that it changed.
fn copy_differences(
    source: &SourceFile,
    staged: &Staged,
    zeros: Zeros,
    monitor: &Monitor,
) -> io::Result<u64> {
    match differences(source.content(), source.len(), staged, zeros, monitor) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !source.is_unchanged()? => Ok(0),
        result => result,
    }
}
