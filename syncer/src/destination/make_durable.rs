//! Makes the writes of a run durable: some of them while it goes on, all of them at its end.

use std::{
    collections::HashSet,
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use rustix::{fs::OFlags, io::Errno};

use crate::{
    destination::{Destination, Scope, destination_error::ApplyError},
    entry::Time,
    measure::monitor::Monitor,
    path::RelPath,
    sys::{root::open_child, stat::device_of_stat},
};

/// The time from the start of a run to its first sync. Each pause is twice the one before, up to `LONGEST_PAUSE`, the
/// interval at which kernels and journals write back anyway, so that other writers to the same file system are not
/// slowed down.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A run that writes fewer bytes is synced at its end alone.
const MIN_BYTES: u64 = 4 << 20;

/// The time that a stopped run waits for the disk: it has two seconds to write the report and release the lock.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// The interval at which a run that waits for the disk checks whether it was told to stop.
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Destination {
    /// Returns the time since when entries of the destination may lack the content that their lengths and times stand
    /// for: an earlier run changed them, and was cut off before all was durable.
    pub fn doubtful_since(&self) -> Option<Time> {
        self.state.dirty().since()
    }

    /// Returns whether doubt stays after a run of this scope, since it leaves out what earlier runs may have changed.
    pub(crate) fn keeps_doubt(&self, scope: &Scope) -> bool {
        self.state.dirty().outlives(scope)
    }

    /// Marks the volume as being changed. Callers do this before they change any content.
    ///
    /// # Errors
    /// [`ApplyError::TakenOver`]; [`ApplyError::Own`] when the mark cannot be made.
    pub(crate) fn begin(&self, scope: &Scope) -> Result<(), ApplyError> {
        self.still_held()?;
        let marked = self.state.dirty().mark(self.state.dir(), scope);
        marked.map_err(|source| ApplyError::Own { path: self.path.clone(), source })
    }

    /// Makes all changes durable, those of this run and of earlier runs that were cut off, and removes the mark.
    /// `settled` is the scope of a run after which all of it equals the source.
    ///
    /// # Errors
    /// When a sync fails, or has failed before in this run; `ECANCELED` when the monitor is told to stop meanwhile.
    /// Then the mark stays.
    pub(crate) fn commit(&self, settled: Option<&Scope>, monitor: &Monitor) -> io::Result<()> {
        self.commit_within(Duration::ZERO, settled, monitor)
    }

    /// Makes the changes of an unfinished run durable, as [`Self::commit`] does. A run that was told to stop waits for
    /// the disk for one second at most; later changes stay in doubt for the next run.
    ///
    /// # Errors
    /// The errors of [`Self::commit`].
    pub fn commit_unfinished(&self, monitor: &Monitor) -> io::Result<()> {
        self.commit_within(STOP_PATIENCE, None, monitor)
    }

    fn commit_within(
        &self,
        patience: Duration,
        settled: Option<&Scope>,
        monitor: &Monitor,
    ) -> io::Result<()> {
        if !self.state.dirty().is_marked() {
            return Ok(());
        }
        self.sync(monitor, patience)?;
        // Unless that is settled, files that an earlier run left in doubt may not have been synced: their mark stays.
        if settled.is_some() || self.doubtful_since().is_none() {
            self.state.check()?;
            let shards = self.state.shard_board().map_or(1, |team| team.shard().count);
            self.state.dirty().clear(self.state.dir(), settled, shards)?;
        }
        Ok(())
    }

    /// Makes everything written so far durable, by one `syncfs` of the volume. After a stop it waits no longer than
    /// `patience`.
    fn sync(&self, monitor: &Monitor, patience: Duration) -> io::Result<()> {
        let root = self.root.as_fd().try_clone_to_owned()?;
        Ok(self.state.dirty().moving_on(|| self.sync_file_system(root, monitor, patience))?)
    }

    fn sync_file_system(&self, dir: OwnedFd, monitor: &Monitor, patience: Duration) -> Result<(), Errno> {
        match until_stopped(move || rustix::fs::syncfs(&dir), monitor, patience) {
            Err(Errno::CANCELED) => Err(Errno::CANCELED),
            result => self.not_durable.keep(result),
        }
    }

    /// Makes all that the volume has durable, whoever has written it, before a move removes it at the source.
    ///
    /// # Errors
    /// When a sync fails, or has failed before in this run; `ECANCELED` when the monitor is told to stop meanwhile.
    pub(crate) fn sync_all(&self, monitor: &Monitor) -> io::Result<()> {
        self.sync(monitor, Duration::ZERO)
    }

    /// Makes durable what other file systems have that are mounted in the destination: those that these folders are on.
    ///
    /// # Errors
    /// The errors of [`Self::sync_all`].
    pub(crate) fn sync_mounted<'p>(
        &self,
        folders: impl Iterator<Item = &'p RelPath>,
        monitor: &Monitor,
    ) -> io::Result<()> {
        let mut synced = HashSet::new();
        for path in folders {
            // One that another process has removed meanwhile has nothing to sync.
            let Ok(dir) = self.root.dir(path) else { continue };
            // The descriptor of a folder is an `O_PATH` one, which cannot be synced.
            let dir = open_child(dir, b".", OFlags::RDONLY)?;
            if synced.insert(device_of_stat(&rustix::fs::fstat(&dir)?)) {
                self.sync_file_system(dir, monitor, Duration::ZERO)?;
            }
        }
        Ok(())
    }

    /// Calls `work`, which writes about `bytes` bytes, and syncs the volume at intervals meanwhile, so that less is
    /// left for the end. Starts no thread for few bytes.
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

/// Runs a long system call on a thread of its own. When the monitor is told to stop and `patience` is over, it returns
/// and leaves the thread behind. The kernel keeps the volume busy until the call ends, but the lock on the volume can
/// be released.
///
/// # Errors
/// The error of the call; `ECANCELED` when the call had not ended.
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
    use super::*;
    use crate::destination::first_error::FirstError;

    /// Ends the call when the test lets it, so that the result does not depend on the speed of the machine.
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
