//! The pace at which a store is read.

use std::{
    io,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::monitor::Monitor;

/// Bounds how fast several threads read together, in bytes a second.
#[derive(Debug)]
pub struct ReadPace<'a> {
    per_second: Option<u64>,
    due: Mutex<Instant>,
    monitor: &'a Monitor,
}

impl<'a> ReadPace<'a> {
    /// Creates a pace; `None` means no limit. The monitor stops waiting threads.
    pub fn new(per_second: Option<u64>, monitor: &'a Monitor) -> Self {
        Self { per_second, due: Mutex::new(Instant::now()), monitor }
    }

    /// Checks for a stop.
    ///
    /// # Errors
    /// If the monitor is told to stop.
    pub(crate) fn go_on(&self) -> io::Result<()> {
        self.monitor.check()
    }

    /// Waits until the pace allows another read, and charges `bytes`.
    ///
    /// # Errors
    /// If the monitor is told to stop.
    pub fn spend(&self, bytes: u64) -> io::Result<()> {
        let Some(per_second) = self.per_second else { return self.go_on() };
        let cost = Duration::from_secs_f64(bytes as f64 / per_second.max(1) as f64);
        let now = Instant::now();
        let wait = {
            let mut due = self.due.lock();
            let begins = (*due).max(now);
            *due = begins.checked_add(cost).unwrap_or(begins);
            begins - now
        };
        self.monitor.pause(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_paid_for_before_more_are_read_and_a_stop_ends_the_wait() {
        let monitor = Monitor::default();
        let pace = ReadPace::new(Some(1000), &monitor);
        let began = Instant::now();
        (0..4).for_each(|_| pace.spend(20).unwrap());
        assert!(began.elapsed() >= Duration::from_millis(60));
        pace.spend(u64::MAX).unwrap();
        monitor.cancel();
        assert!(pace.spend(1).is_err());
        ReadPace::new(None, &Monitor::default()).spend(u64::MAX).unwrap();
    }
}
