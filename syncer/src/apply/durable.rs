//! What was written becomes durable: some of it while a run goes on, all of it at its end.

use std::{
    io,
    os::fd::AsFd as _,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use rustix::io::Errno;

use super::{Destination, apply_error::ApplyError};
use crate::{entry::Time, monitor::Monitor};

/// How long a run goes on before what it wrote is first sent to the disk. Each pause is twice the one before, up to
/// that in which kernels and journals do so by themselves: a file system that others write to, too, is not kept busy
/// for them.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A run that writes fewer bytes waits for them at its end alone.
const MIN_BYTES: u64 = 4 << 20;

/// How long a run that was told to stop waits for the disk: the report is written, and the lock released, within two
/// seconds.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// How often a run that waits for the disk looks whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Destination {
    /// The time from which on what is at the destination may not have the content that its length and time stand for: a
    /// run changed it, and did not get to the end of making it durable.
    pub fn doubtful_since(&self) -> Option<Time> {
        self.state.dirty().since()
    }

    /// Takes note on the volume that it is being changed; to be called before any content is.
    ///
    /// # Errors
    /// [`ApplyError::TakenOver`]; [`ApplyError::Own`] when it cannot be noted.
    pub fn begin(&self) -> Result<(), ApplyError> {
        self.still_held()?;
        let marked = self.state.dirty().mark(self.state.dir());
        marked.map_err(|source| ApplyError::Own { path: self.path.clone(), source })
    }

    /// Makes everything durable, if anything was changed, by this run or by one before it that did not get there.
    /// `is_whole`: all is as it is at the source.
    ///
    /// # Errors
    /// When that fails, or has failed before in this run; `ECANCELED` when the monitor is told to stop meanwhile. Then
    /// the mark stays.
    pub fn commit(&self, is_whole: bool, monitor: &Monitor) -> io::Result<()> {
        self.commit_within(Duration::ZERO, is_whole, monitor)
    }

    /// Makes durable what a run has done that did not get to its end, as [`Self::commit`] does. One that was told to
    /// stop waits for the disk for a second; what is not durable by then is in doubt for the next run.
    pub fn commit_unfinished(&self, monitor: &Monitor) -> io::Result<()> {
        self.commit_within(STOP_PATIENCE, false, monitor)
    }

    fn commit_within(&self, patience: Duration, is_whole: bool, monitor: &Monitor) -> io::Result<()> {
        if !self.state.dirty().is_marked() {
            return Ok(());
        }
        self.sync(monitor, patience)?;
        // What could not be synced may be what is in doubt.
        if is_whole || self.doubtful_since().is_none() {
            self.state.check()?;
            let shards = self.state.shard_board().map_or(1, |team| team.shard().count);
            self.state.dirty().clear(self.state.dir(), shards)?;
        }
        Ok(())
    }

    /// Makes everything written so far durable: one `syncfs` of the volume. After a stop it is waited for no longer
    /// than `patience`.
    fn sync(&self, monitor: &Monitor, patience: Duration) -> io::Result<()> {
        let root = self.root.as_fd().try_clone_to_owned()?;
        let sync = move || rustix::fs::syncfs(&root);
        Ok(self.state.dirty().moving_on(|| match until_stopped(sync, monitor, patience) {
            Err(Errno::CANCELED) => Err(Errno::CANCELED),
            result => self.not_durable.keep(result),
        })?)
    }

    /// Does `work`, which writes about so many `bytes`, and meanwhile sends to the disk what it has written, so that
    /// there is less to wait for at the end. For few bytes, no thread is started.
    pub fn sync_during<T>(&self, bytes: u64, monitor: &Monitor, work: impl FnOnce() -> T) -> T {
        if bytes < MIN_BYTES {
            return work();
        }
        let (working, ended) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut pause = FIRST_PAUSE;
                while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout)
                    && self.sync(monitor, Duration::ZERO).is_ok()
                {
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            });
            let done = work();
            drop(working);
            done
        })
    }
}

/// Makes a call that may take long and cannot be broken off, on a thread of its own, and leaves that thread to itself
/// when the monitor is told to stop and `patience` is over. The kernel holds the volume for as long as the call takes,
/// but not the lock on it.
///
/// # Errors
/// Those of the call; `ECANCELED` when it was not waited for.
fn until_stopped(
    call: impl FnOnce() -> Result<(), Errno> + Send + 'static,
    monitor: &Monitor,
    patience: Duration,
) -> Result<(), Errno> {
    let (tell, done) = mpsc::channel();
    let named = thread::Builder::new().name("sync".into());
    named.spawn(move || tell.send(call())).map_err(|_| Errno::AGAIN)?;
    let mut left = patience;
    loop {
        match done.recv_timeout(LOOK_EVERY) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => return Err(Errno::IO),
            Err(RecvTimeoutError::Timeout) if !monitor.cancelled() => {}
            Err(RecvTimeoutError::Timeout) if left.is_zero() => return Err(Errno::CANCELED),
            Err(RecvTimeoutError::Timeout) => left = left.saturating_sub(LOOK_EVERY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::first_error::FirstError, *};

    /// The call ends when the test lets it, so what is seen does not depend on how fast the machine is.
    #[test]
    fn a_stop_does_not_wait_for_a_call_that_does_not_end() {
        let (end, ended) = mpsc::channel::<()>();
        let call = move || ended.recv().map_err(|_| Errno::IO);
        let monitor = Monitor::default();
        monitor.cancel();
        assert_eq!(until_stopped(call, &monitor, LOOK_EVERY * 2), Err(Errno::CANCELED));
        drop(end);
    }

    #[test]
    fn without_a_stop_a_call_is_waited_for_and_its_error_told() {
        for result in [Ok(()), Err(Errno::NOSPC)] {
            assert_eq!(until_stopped(move || result, &Monitor::default(), Duration::ZERO), result);
        }
    }

    #[test]
    fn an_error_that_was_told_once_is_not_forgotten() {
        let first = FirstError::default();
        assert_eq!(first.keep(Ok(())), Ok(()));
        assert_eq!(first.keep(Err(Errno::IO)), Err(Errno::IO));
        assert_eq!(first.keep(Ok(())), Err(Errno::IO));
        assert_eq!(first.keep(Err(Errno::NOSPC)), Err(Errno::IO));
    }
}
