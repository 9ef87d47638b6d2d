//! Content of files of the same machine: copied by several threads, by clone where the file system can.

use std::{io, os::fd::AsFd as _};

use async_channel::{Receiver, Sender};
use contract::Side;

use crate::{
    apply::Staged,
    attrs::AttrsBuf,
    cores::cores,
    effort::{Activity, ThreadGroup, copying, during},
    monitor::Monitor,
    session::{
        local::differences::{Zeros, differences},
        plan::need::{Fetch, Need},
        reading::source_file::{CHANGED, LastDir, MAX_ATTEMPTS, Origin, SourceFile},
        session_error::SessionError,
        sink::writing::{WriteTarget, Writing},
    },
    slice::Slice,
    transport::TransportError,
    xattr,
};

/// Runs `work` with workers that copy what it fetches.
pub(crate) fn copy_all(
    writing: Writing<'_>,
    origin: Origin<'_>,
    work: impl FnOnce(&mut dyn Fetch) -> Result<(), SessionError>,
) -> Result<(), SessionError> {
    let workers = cores();
    let (jobs, queue) = async_channel::bounded(workers * 16);
    let pool = writing.monitor.pool(Side::Sink, ThreadGroup::Workers);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers)
            .map(|_| {
                let queue = queue.clone();
                let copier = Copier { writing, origin, from: LastDir::default(), to: LastDir::default() };
                let pool = &pool;
                scope.spawn(move || pool.run(Activity::Copying, || copier.run(&queue)))
            })
            .collect();
        // With the workers gone after a cancellation, nobody takes from the queue: a send has to fail, not to wait.
        drop(queue);
        let result = work(&mut CopyFetch { jobs: &jobs });
        jobs.close();
        for worker in workers {
            let _ = during(Activity::Idle, || worker.join());
        }
        match writing.monitor.cancelled() {
            true => Err(TransportError::Canceled.into()),
            false => result,
        }
    })
}

/// In files from this size on, reading and writing are told apart; of smaller ones, in each of so many.
const LARGE_BYTES: u64 = 1 << 20;
const LOOKED_AT: usize = 16;

/// Distributes a directory's files to the workers in parts of this many.
const FILES_PER_JOB: usize = 64;

struct CopyFetch<'a> {
    jobs: &'a Sender<Vec<Need>>,
}

impl Fetch for CopyFetch<'_> {
    fn fetch(&mut self, mut needs: Vec<Need>) -> Result<(), SessionError> {
        while !needs.is_empty() {
            let rest = needs.split_off(needs.len().min(FILES_PER_JOB));
            let _ = during(Activity::Idle, || self.jobs.send_blocking(needs));
            needs = rest;
        }
        Ok(())
    }

    /// All that is needed is at the source. The workers are waited for when the queue is closed.
    fn finish(&mut self, made_from_others: Vec<Need>) -> Result<(), SessionError> {
        self.fetch(made_from_others)
    }
}

struct Copier<'a> {
    writing: Writing<'a>,
    origin: Origin<'a>,
    from: LastDir,
    to: LastDir,
}

impl Copier<'_> {
    fn run(mut self, queue: &Receiver<Vec<Need>>) {
        while let Ok(needs) = during(Activity::Idle, || queue.recv_blocking()) {
            for (nth, need) in needs.iter().enumerate() {
                if self.writing.monitor.cancelled() || self.writing.is_lost() {
                    return;
                }
                let is_looked_at = need.size >= LARGE_BYTES || nth % LOOKED_AT == 0;
                match copying(is_looked_at, || self.copy(need)) {
                    // Nobody asks what became of it: the run stops.
                    Err(_) if self.writing.monitor.cancelled() => return,
                    Err(error) => self.writing.failures.add(&need.path(), "copy", &error),
                    Ok(()) => {}
                }
                self.writing.has_done(need);
            }
        }
    }

    fn copy(&mut self, need: &Need) -> io::Result<()> {
        for _ in 0..MAX_ATTEMPTS {
            if self.attempt(need)? {
                return Ok(());
            }
        }
        Err(io::Error::other(CHANGED))
    }

    /// One try; false when the file changed while it was read.
    fn attempt(&mut self, need: &Need) -> io::Result<bool> {
        let (writing, dir) = (self.writing, &need.dir);
        let source = during(Activity::Reading, || {
            self.origin.file_in(&mut self.from, dir.source, &dir.path, &need.name, writing.monitor)
        })?;
        let zeros = match writing.store {
            WriteTarget::Tree(tree) if tree.settings().holes && source.has_holes() => Zeros::Holes,
            WriteTarget::Device(device) if device.keeps_holes() => Zeros::AllHoles,
            _ => Zeros::Bytes,
        };
        let (staged, reused) = match writing.stage_over(need) {
            Some(staged) => {
                let same = copy_differences(&source, &staged, zeros, writing.monitor);
                let same = same.inspect_err(|_| writing.unstage(&staged))?;
                (staged, need.replaces.then_some(same))
            }
            None => match self.copy_whole(need, &source, zeros) {
                // A file that has become shorter has changed, and is read again.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !source.is_unchanged()? => {
                    return Ok(false);
                }
                copied => (copied?, None),
            },
        };
        let attrs = match writing.store {
            WriteTarget::Tree(_) if source.is_stored() => Ok(need.attrs.clone()),
            WriteTarget::Tree(tree) => {
                let settings = tree.settings();
                xattr::of_open(source.as_fd(), settings.attrs | settings.count_attrs)
            }
            WriteTarget::Device(_) => Ok(AttrsBuf::default()),
        };
        let attrs = attrs.inspect_err(|_| writing.unstage(&staged))?;
        if !source.is_unchanged()? {
            writing.unstage(&staged);
            return Ok(false);
        }
        let (meta, attrs) = (source.meta(&need.meta), attrs.as_attrs());
        writing.publish(need, &mut self.to, &staged, &meta, attrs, source.len())?;
        reused.inspect(|bytes| writing.count_reused(need, *bytes));
        writing.monitor.add_bytes(source.len());
        Ok(true)
    }

    fn copy_whole(&mut self, need: &Need, source: &SourceFile, zeros: Zeros) -> io::Result<Staged> {
        let staged = self.writing.create(need, &mut self.to, need.meta.mode)?;
        let (holes, monitor) = (zeros != Zeros::Bytes, self.writing.monitor);
        let copied = match source.content() {
            content if content.start == 0 => staged.copy_from(content.fd, source.len(), holes, monitor),
            content => {
                monitor.may_copy(source.len()).and_then(|()| copy_part(content, source.len(), &staged))
            }
        };
        copied.inspect_err(|_| self.writing.unstage(&staged))?;
        Ok(staged)
    }
}

/// BasisSearch a small file out of the pack that it is in.
fn copy_part(from: Slice<'_>, len: u64, staged: &Staged) -> io::Result<()> {
    let mut bytes = vec![0; len as usize];
    from.read_exact_at(&mut bytes, 0)?;
    staged.write_at(&bytes, 0)
}

/// A file that has become shorter is found to have changed later.
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
