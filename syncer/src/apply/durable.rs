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

use super::Destination;

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
    /// Makes everything written so far durable: one `syncfs` of the volume.
    ///
    /// # Errors
    /// When that fails, or has failed before in this run.
    pub fn sync(&self) -> io::Result<()> {
        Ok(self.not_durable.keep(rustix::fs::syncfs(&self.root))?)
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
