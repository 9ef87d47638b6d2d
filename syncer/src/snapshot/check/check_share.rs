//! A part of a store that is checked at a time, and the pace at which the store is read.

use std::{
    fmt, io,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{hash::ContentId, monitor::Monitor};

/// The nth of several parts of a store, counted from 1. All parts together cover everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreShare {
    /// The number of the part.
    pub nth: u64,
    /// The number of parts.
    pub of: u64,
}

impl Default for StoreShare {
    fn default() -> Self {
        Self { nth: 1, of: 1 }
    }
}

impl fmt::Display for StoreShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.nth, self.of)
    }
}

impl StoreShare {
    /// Reads `N/M`; `None` unless N is from 1 to M.
    pub fn parse(text: &str) -> Option<Self> {
        let (nth, of) = text.split_once('/')?;
        let share = Self { nth: nth.parse().ok()?, of: of.parse().ok()? };
        (1..=share.of).contains(&share.nth).then_some(share)
    }

    /// Returns whether the content belongs to this part.
    pub fn has(self, id: &ContentId) -> bool {
        let word = id.0.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
        word % self.of.max(1) == self.nth.saturating_sub(1)
    }
}

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
    pub(super) fn go_on(&self) -> io::Result<()> {
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
            let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn a_part_is_one_of_several() {
        assert_eq!(StoreShare::parse("2/3"), Some(StoreShare { nth: 2, of: 3 }));
        for text in ["", "2", "0/3", "4/3", "0/0", "a/b", "1/3\n", "-1/3"] {
            assert_eq!(StoreShare::parse(text), None, "{text}");
        }
    }

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
