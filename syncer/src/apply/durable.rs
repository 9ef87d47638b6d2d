//! What was written becomes durable: some of it while a run goes on, all of it at its end.

use std::{
    io,
    sync::{
        OnceLock,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use rustix::io::Errno;

use super::{ApplyError, Destination};
use crate::entry::Time;

/// How long a run goes on before what it wrote is first sent to the disk. Each pause is twice the one before, up to that in which kernels and
/// journals do so by themselves: a file system that others write to, too, is not kept busy for them.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The first error of making something durable. A kernel tells each of them once.
#[derive(Debug, Default)]
pub(super) struct FirstError(OnceLock<Errno>);

impl FirstError {
    fn keep(&self, result: Result<(), Errno>) -> Result<(), Errno> {
        if let Err(error) = result {
            let _ = self.0.set(error);
        }
        self.0.get().map_or(Ok(()), |error| Err(*error))
    }
}

impl Destination {
    /// The time from which on what is at the destination may not have the content that its length and time stand for: a run changed it, and did not get to the
    /// end of making it durable.
    pub fn doubtful_since(&self) -> Option<Time> {
        self.own.dirty().since()
    }

    /// Takes note on the volume that it is being changed; to be called before any content is.
    ///
    /// # Errors
    /// [`ApplyError::TakenOver`]; [`ApplyError::Own`] when it cannot be noted.
    pub fn begin(&self) -> Result<(), ApplyError> {
        self.still_held()?;
        let marked = self.own.dirty().mark(self.own.dir());
        marked.map_err(|source| ApplyError::Own { path: self.path.clone(), source })
    }

    /// Makes everything durable, if anything was changed, by this run or by one before it that did not get there. `is_whole`: all is as it is at the source.
    ///
    /// # Errors
    /// When that fails, or has failed before in this run.
    pub fn commit(&self, is_whole: bool) -> io::Result<()> {
        if !self.own.dirty().is_marked() {
            return Ok(());
        }
        self.sync()?;
        // What could not be synced may be what is in doubt.
        if is_whole || self.doubtful_since().is_none() {
            self.own.check()?;
            let shards = self.own.team().map_or(1, |team| team.shard().count);
            self.own.dirty().clear(self.own.dir(), shards)?;
        }
        Ok(())
    }

    /// Makes everything written so far durable: one `syncfs` of the volume.
    fn sync(&self) -> io::Result<()> {
        Ok(self.own.dirty().moving_on(|| self.not_durable.keep(rustix::fs::syncfs(&self.root)))?)
    }

    /// Does `work`, and meanwhile sends to the disk what it has written, so that there is less to wait for at the end.
    pub fn sync_during<T>(&self, work: impl FnOnce() -> T) -> T {
        let (working, ended) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut pause = FIRST_PAUSE;
                while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) && self.sync().is_ok() {
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            });
            let done = work();
            drop(working);
            done
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_was_told_once_is_not_forgotten() {
        let first = FirstError::default();
        assert_eq!(first.keep(Ok(())), Ok(()));
        assert_eq!(first.keep(Err(Errno::IO)), Err(Errno::IO));
        assert_eq!(first.keep(Ok(())), Err(Errno::IO));
        assert_eq!(first.keep(Err(Errno::NOSPC)), Err(Errno::IO));
    }
}
