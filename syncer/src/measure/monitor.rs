//! Reports an engine's progress to its user, and the user's wish to stop to the engine.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::{
        OnceLock,
        atomic::{
            AtomicBool, AtomicU8, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

use contract::{BusyAnswer, Phase, PlannedAction, Progress, Side};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use tokio::sync::watch;

use crate::{
    measure::thread_time::{Activity, EffortBook, EffortPool, ThreadGroup, during},
    sys::bandwidth_limit::Pace,
};

/// The most bytes that are moved or read between two checks for a stop: some milliseconds of work, far more than a
/// system call.
pub const MAX_UNCHECKED_BYTES: u64 = 8 << 20;

type OnListening = dyn Fn(SocketAddr) + Send + Sync;
type OnPlanned = dyn Fn(&PlannedAction) + Send + Sync;
type OnWaiting = dyn Fn(&BusyAnswer) + Send + Sync;

/// The counters of one end, shared by all its threads. Every method is a few relaxed atomic operations, cheap enough
/// for each file and block. A [`snapshot`](Self::snapshot) may see some updates and not others.
pub struct Monitor {
    phase: AtomicU8,
    files: AtomicU64,
    files_total: AtomicU64,
    bytes: AtomicU64,
    bytes_total: AtomicU64,
    /// Bytes that local copies have moved, also of files that are not complete.
    copied: AtomicU64,
    /// A copy of `cancel`'s value, because threads that ask at every file would compete for its lock.
    cancelled: AtomicBool,
    cancel: watch::Sender<bool>,
    /// The same for threads that [`pause`](Self::pause), which `stops` wakes.
    stopped: Mutex<bool>,
    stops: Condvar,
    /// The bandwidth limit of local copies.
    pace: OnceLock<Pace>,
    /// The effort of the threads of this end.
    efforts: EffortBook,
    on_listening: Box<OnListening>,
    on_planned: Box<OnPlanned>,
    on_waiting: Box<OnWaiting>,
    #[cfg(test)]
    checks: CheckCount,
}

/// The number of checks for a stop, and the check at which to stop.
#[cfg(test)]
#[derive(Debug)]
struct CheckCount {
    made: AtomicU64,
    cancel_at: u64,
}

impl Default for Monitor {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor")
            .field("progress", &self.snapshot())
            .field("cancelled", &self.cancelled())
            .finish_non_exhaustive()
    }
}

impl Monitor {
    /// Makes a monitor that calls `on_listening`, on the engine's thread, with the address that an end listens on. The
    /// default one calls nothing.
    pub fn new(on_listening: impl Fn(SocketAddr) + Send + Sync + 'static) -> Self {
        Self {
            phase: AtomicU8::new(Phase::Connect as u8),
            files: AtomicU64::new(0),
            files_total: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            bytes_total: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            cancel: watch::Sender::new(false),
            stopped: Mutex::new(false),
            stops: Condvar::new(),
            pace: OnceLock::new(),
            efforts: EffortBook::default(),
            on_listening: Box::new(on_listening),
            on_planned: Box::new(|_| {}),
            on_waiting: Box::new(|_| {}),
            #[cfg(test)]
            checks: CheckCount { made: AtomicU64::new(0), cancel_at: u64::MAX },
        }
    }

    /// Makes a monitor that stops at the check of this number, so that a test knows how much work was done before.
    #[cfg(test)]
    pub fn canceled_at(look: u64) -> Self {
        Self { checks: CheckCount { made: AtomicU64::new(0), cancel_at: look }, ..Self::default() }
    }

    /// Returns how often [`check`](Self::check) was called.
    #[cfg(test)]
    pub fn checks(&self) -> u64 {
        self.checks.made.load(SeqCst)
    }

    /// Adds `on_planned`, which is called on the engine's thread with each action of a dry run, or of a run that shows
    /// its changes.
    #[must_use]
    pub fn with_planned(self, on_planned: impl Fn(&PlannedAction) + Send + Sync + 'static) -> Self {
        Self { on_planned: Box::new(on_planned), ..self }
    }

    /// Adds `on_waiting`, which is called when the other end answers that it is busy, and when its queue moves on.
    #[must_use]
    pub fn with_waiting(self, on_waiting: impl Fn(&BusyAnswer) + Send + Sync + 'static) -> Self {
        Self { on_waiting: Box::new(on_waiting), ..self }
    }

    /// Reports that the other end is busy.
    pub fn waiting(&self, answer: &BusyAnswer) {
        (self.on_waiting)(answer);
    }

    /// Reports an action.
    pub fn planned(&self, action: &PlannedAction) {
        (self.on_planned)(action);
    }

    /// Reports that the end listens on `address`, with the real port.
    pub fn listening(&self, address: SocketAddr) {
        (self.on_listening)(address);
    }

    /// Reports that the end has entered `phase`.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    /// Sets the number of files and bytes that are expected. May be called again as a plan grows.
    pub fn set_totals(&self, files: u64, bytes: u64) {
        self.files_total.store(files, Relaxed);
        self.bytes_total.store(bytes, Relaxed);
    }

    /// Adds files whose content has arrived.
    pub fn add_files(&self, files: u64) {
        self.files.fetch_add(files, Relaxed);
    }

    /// Adds bytes of files that have arrived.
    pub fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Returns the book of efforts of this end's threads.
    pub(crate) fn efforts(&self) -> &EffortBook {
        &self.efforts
    }

    /// Starts a pool for threads that one end starts in the present phase.
    pub(crate) fn pool(&self, side: Side, group: ThreadGroup) -> EffortPool<'_> {
        EffortPool::new(&self.efforts, self.snapshot().phase, side, group)
    }

    /// Returns the progress. The rate is 0, because it depends on the times of snapshots.
    pub fn snapshot(&self) -> Progress {
        let bytes_total = self.bytes_total.load(Relaxed);
        // Clones and holes are only in the first sum, and the beginning of a large file only in the second.
        let bytes = self.bytes.load(Relaxed).max(self.copied.load(Relaxed).min(bytes_total));
        Progress {
            phase: Phase::ALL[usize::from(self.phase.load(Relaxed))],
            files: self.files.load(Relaxed),
            files_total: self.files_total.load(Relaxed),
            bytes,
            bytes_total,
            rate: 0,
        }
    }

    /// Resets phase and counters for the next run of the same end. A cancellation stays.
    pub fn reset(&self) {
        self.set_phase(Phase::Connect);
        self.set_totals(0, 0);
        self.files.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
        self.copied.store(0, Relaxed);
        self.efforts.clear();
    }

    /// Tells the engine to stop as soon as it can leave the destination in order. This cannot be undone.
    pub fn cancel(&self) {
        self.cancelled.store(true, SeqCst);
        self.cancel.send_replace(true);
        *self.stopped.lock() = true;
        self.stops.notify_all();
    }

    /// Returns whether the engine was asked to stop.
    pub fn cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    /// Checks whether the engine was asked to stop. Every loop that reads, writes or lists calls this for each entry
    /// and at least once in [`MAX_UNCHECKED_BYTES`].
    ///
    /// # Errors
    /// `ECANCELED` if it was.
    pub fn check(&self) -> io::Result<()> {
        #[cfg(test)]
        if self.checks.made.fetch_add(1, SeqCst) + 1 >= self.checks.cancel_at {
            self.cancel();
        }
        if self.cancelled() { Err(Errno::CANCELED.into()) } else { Ok(()) }
    }

    /// Limits the rate of local copies from now on, in bytes per second. Only the first limit counts.
    pub fn limit_copies(&self, bytes_per_second: u64) {
        let _ = self.pace.set(Pace::new(bytes_per_second, 1.0));
    }

    /// Returns the number of bytes that a local copy may move between two calls of [`may_copy`](Self::may_copy).
    pub fn copy_bytes(&self) -> u64 {
        self.pace.get().map_or(MAX_UNCHECKED_BYTES, |pace| pace.piece_bytes() as u64)
    }

    /// Waits until a local copy may move `bytes` more, at most [`copy_bytes`](Self::copy_bytes).
    ///
    /// # Errors
    /// `ECANCELED` if the engine was asked to stop.
    pub fn may_copy(&self, bytes: u64) -> io::Result<()> {
        self.check()?;
        self.copied.fetch_add(bytes, Relaxed);
        let Some(pace) = self.pace.get() else { return Ok(()) };
        match pace.reserve(Instant::now(), bytes as usize) {
            Duration::ZERO => Ok(()),
            wait => during(Activity::Network, || self.pause(wait)),
        }
    }

    /// Waits for the given time, or until the engine is asked to stop.
    ///
    /// # Errors
    /// `ECANCELED` when it was.
    pub fn pause(&self, wait: Duration) -> io::Result<()> {
        self.stops.wait_while_for(&mut self.stopped.lock(), |stopped| !*stopped, wait);
        self.check()
    }

    /// Waits until the engine is asked to stop; returns at once if it was asked before. Cancel-safe. If the monitor is
    /// dropped first, it never returns.
    pub fn until_cancelled(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut cancel = self.cancel.subscribe();
        async move {
            if cancel.wait_for(|cancelled| *cancelled).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn every_phase_comes_back_as_it_was_set() {
        let monitor = Monitor::default();
        for phase in Phase::ALL {
            monitor.set_phase(phase);
            assert_eq!(monitor.snapshot().phase, phase);
        }
    }

    #[test]
    fn a_large_file_moves_the_progress_before_its_copy_is_complete() {
        let monitor = Monitor::default();
        monitor.set_totals(1, 100);
        for (piece, shown) in [(30, 30), (40, 70), (60, 100)] {
            monitor.may_copy(piece).unwrap();
            assert_eq!(monitor.snapshot().bytes, shown, "no more than all, also of a second attempt");
        }
        monitor.reset();
        assert_eq!(monitor.snapshot().bytes, 0);
    }

    #[test]
    fn counters_add_up_over_threads_and_a_reset_clears_them() {
        let monitor = Monitor::default();
        monitor.set_phase(Phase::Transfer);
        monitor.set_totals(8, 800);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    monitor.add_files(1);
                    monitor.add_bytes(100);
                });
            }
        });
        let expected = Progress {
            phase: Phase::Transfer,
            files: 4,
            files_total: 8,
            bytes: 400,
            bytes_total: 800,
            rate: 0,
        };
        assert_eq!(monitor.snapshot(), expected);
        monitor.reset();
        assert_eq!(monitor.snapshot(), Progress::default());
    }

    #[test]
    fn a_listening_end_is_announced_with_its_address() {
        let heard = Arc::new(Mutex::new(None));
        let ear = Arc::clone(&heard);
        let monitor = Monitor::new(move |address| *ear.lock() = Some(address));
        let address = "127.0.0.1:7400".parse().unwrap();
        monitor.listening(address);
        assert_eq!(*heard.lock(), Some(address));
    }

    #[test]
    fn a_pause_ends_with_a_stop() {
        let hour = Duration::from_secs(3600);
        let monitor = Monitor::default();
        std::thread::scope(|scope| {
            let paused = scope.spawn(|| monitor.pause(hour));
            monitor.cancel();
            assert!(paused.join().unwrap().is_err());
        });
        assert!(monitor.pause(Duration::ZERO).is_err());
        Monitor::default().pause(Duration::from_millis(1)).unwrap();
    }

    #[tokio::test]
    async fn cancellation_wakes_who_waits_and_passes_who_comes_late() {
        let monitor = Monitor::default();
        assert!(!monitor.cancelled());
        tokio::join!(monitor.until_cancelled(), async { monitor.cancel() });
        assert!(monitor.cancelled());
        monitor.until_cancelled().await;
        monitor.reset();
        assert!(monitor.cancelled(), "a stop asked for outlives the run");
    }
}
