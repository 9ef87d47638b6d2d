//! What a running engine tells whoever started it, and the one thing that it is told in return: to stop.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::atomic::{
        AtomicBool, AtomicU8, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

use contract::{Phase, PlannedAction, Progress};
use rustix::io::Errno;
use tokio::sync::watch;

const PHASES: [Phase; 8] = [
    Phase::Connect,
    Phase::Scan,
    Phase::Plan,
    Phase::Delta,
    Phase::Transfer,
    Phase::Apply,
    Phase::Commit,
    Phase::Snapshot,
];

/// So many bytes are moved or read between two looks whether to stop: some milliseconds, and far more than a system call costs.
pub const MAX_UNCHECKED_BYTES: u64 = 8 << 20;

type OnListening = dyn Fn(SocketAddr) + Send + Sync;
type OnPlanned = dyn Fn(&PlannedAction) + Send + Sync;

/// The counters of one end, shared by all its threads. Every method is a few relaxed atomic operations, so
/// that it may be called for each file and each block; the counters are not read as one, so a
/// [`snapshot`](Self::snapshot) taken while they move may be between two updates.
pub struct Monitor {
    phase: AtomicU8,
    files: AtomicU64,
    files_total: AtomicU64,
    bytes: AtomicU64,
    bytes_total: AtomicU64,
    /// Beside `cancel`, whose value is behind a lock that threads asking at every file would fight for.
    cancelled: AtomicBool,
    cancel: watch::Sender<bool>,
    on_listening: Box<OnListening>,
    on_planned: Box<OnPlanned>,
    #[cfg(test)]
    checks: Checks,
}

/// How often it was looked whether to stop, and at which look to be told so.
#[cfg(test)]
#[derive(Debug)]
struct Checks {
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
    /// A monitor that calls `on_listening`, on the engine's thread, with the address an end has begun to
    /// listen on. The default one tells nobody.
    pub fn new(on_listening: impl Fn(SocketAddr) + Send + Sync + 'static) -> Self {
        Self {
            phase: AtomicU8::new(Phase::Connect as u8),
            files: AtomicU64::new(0),
            files_total: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            bytes_total: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            cancel: watch::Sender::new(false),
            on_listening: Box::new(on_listening),
            on_planned: Box::new(|_| {}),
            #[cfg(test)]
            checks: Checks { made: AtomicU64::new(0), cancel_at: u64::MAX },
        }
    }

    /// Is told to stop at the look of this number, so that a test knows how much was done before.
    #[cfg(test)]
    pub fn canceled_at(look: u64) -> Self {
        Self { checks: Checks { made: AtomicU64::new(0), cancel_at: look }, ..Self::default() }
    }

    /// How often [`check`](Self::check) was called.
    #[cfg(test)]
    pub fn checks(&self) -> u64 {
        self.checks.made.load(SeqCst)
    }

    /// The same, calling `on_planned`, on the engine's thread, with each action of a dry run.
    #[must_use]
    pub fn with_planned(self, on_planned: impl Fn(&PlannedAction) + Send + Sync + 'static) -> Self {
        Self { on_planned: Box::new(on_planned), ..self }
    }

    /// A dry run would do this.
    pub fn planned(&self, action: &PlannedAction) {
        (self.on_planned)(action);
    }

    /// The end listens on `address`, which has the real port.
    pub fn listening(&self, address: SocketAddr) {
        (self.on_listening)(address);
    }

    /// The end has entered `phase`.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    /// What the plan says is to arrive, replacing what was said before. May be called again as a plan grows.
    pub fn set_totals(&self, files: u64, bytes: u64) {
        self.files_total.store(files, Relaxed);
        self.bytes_total.store(bytes, Relaxed);
    }

    /// The content of so many more files has arrived.
    pub fn add_files(&self, files: u64) {
        self.files.fetch_add(files, Relaxed);
    }

    /// So many more bytes of files have arrived.
    pub fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// How far the run is. The rate is left 0: it is a matter of when snapshots are taken.
    pub fn snapshot(&self) -> Progress {
        Progress {
            phase: PHASES[usize::from(self.phase.load(Relaxed))],
            files: self.files.load(Relaxed),
            files_total: self.files_total.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            bytes_total: self.bytes_total.load(Relaxed),
            rate: 0,
        }
    }

    /// Puts phase and counters back to where a run begins, for an end that serves several. A cancellation
    /// stays.
    pub fn reset(&self) {
        self.set_phase(Phase::Connect);
        self.set_totals(0, 0);
        self.files.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
    }

    /// Asks the engine to stop as soon as it can leave the destination in order. There is no way back.
    pub fn cancel(&self) {
        self.cancelled.store(true, SeqCst);
        self.cancel.send_replace(true);
    }

    /// Whether the engine was asked to stop.
    pub fn cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    /// Looks whether the engine was asked to stop. Whatever reads, writes or lists calls this for each entry and at least once in
    /// [`MAX_UNCHECKED_BYTES`].
    ///
    /// # Errors
    /// `ECANCELED` when it was.
    pub fn check(&self) -> io::Result<()> {
        #[cfg(test)]
        if self.checks.made.fetch_add(1, SeqCst) + 1 == self.checks.cancel_at {
            self.cancel();
        }
        match self.cancelled() {
            true => Err(Errno::CANCELED.into()),
            false => Ok(()),
        }
    }

    /// Waits until the engine is asked to stop; returns at once when it was before. Cancel-safe, and
    /// independent of the monitor's life: it never returns once the monitor is gone.
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
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn every_phase_comes_back_as_it_was_set() {
        let monitor = Monitor::default();
        for phase in PHASES {
            monitor.set_phase(phase);
            assert_eq!(monitor.snapshot().phase, phase);
        }
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
        let monitor = Monitor::new(move |address| *ear.lock().unwrap() = Some(address));
        let address = "127.0.0.1:7400".parse().unwrap();
        monitor.listening(address);
        assert_eq!(*heard.lock().unwrap(), Some(address));
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
