//! Whether it pays to read what the destination has, judged by what this run has found so far.
//!
//! To read and hash old bytes costs processor time, and saves the arrival of those that are found again. Both are
//! measured, so the same files are compared over a slow link and sent over a fast one:
//!
//! > read on, while (share found again) × (time for a byte to arrive) ≥ (processor time to read a byte)
//!
//! A disk that is slow to read is not counted: it works while the link does.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

use crate::cores::cores;

/// So many bytes are taken for compared, and half of them for found again, before any were: one part of 8 MiB that is
/// all new is not yet a reason to look no further where sending takes four times what reading does.
const ASSUMED: u64 = 8 << 20;

/// When so much was compared, all that was seen counts half: files are not all alike.
const HALVED_AT: u64 = 64 << 20;

/// Where it does not pay, one byte in so many is read all the same, to see whether that has changed; and all of what is
/// larger than so many times what was compared.
const PROBED: u64 = 8;

/// What a run has seen, on all of its threads.
pub(crate) struct BasisCost {
    threads: u32,
    state: Mutex<CostState>,
}

#[derive(Default)]
struct CostState {
    seen: Seen,
    /// What the arrival of content is measured from.
    since: Option<Instant>,
    /// Bytes that were not read since some were.
    skipped: u64,
}

/// Bytes, and what they took.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Of new files, where something was read to compare them with.
    compared: u64,
    /// Of these, what was there.
    reused: u64,
    /// What came of large files.
    arrived: u64,
    /// Of old files.
    read: u64,
    /// Processor time that `read` took.
    reading: Duration,
}

impl BasisCost {
    /// Nothing was seen yet.
    pub(crate) fn new() -> Self {
        let threads = cores() as u32;
        Self { threads, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, CostState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the next `bytes` of what the destination has should be read.
    pub(crate) fn pays(&self, bytes: u64) -> bool {
        let mut state = self.lock();
        let arriving = state.since.map_or(Duration::ZERO, |since| since.elapsed());
        // What was seen of little says nothing of much.
        let is_unknown = bytes > PROBED * state.seen.compared;
        let pays =
            is_unknown || state.seen.pays(arriving, self.threads) || state.skipped >= (PROBED - 1) * bytes;
        state.skipped = if pays { 0 } else { state.skipped + bytes };
        pays
    }

    /// Does what reads so many old bytes.
    pub(crate) fn reading<T>(&self, bytes: u64, read: impl FnOnce() -> T) -> T {
        let start = thread_time();
        let result = read();
        let spent = thread_time().saturating_sub(start);
        let mut state = self.lock();
        state.seen.read += bytes;
        state.seen.reading += spent;
        result
    }

    /// Takes note of content that came. `reused` is how many bytes of it were there, if anything was read to compare it
    /// with.
    pub(crate) fn came(&self, len: u64, reused: Option<u64>) {
        let mut state = self.lock();
        let since = *state.since.get_or_insert_with(Instant::now);
        state.seen.arrived += len - reused.unwrap_or(0);
        if let Some(reused) = reused {
            state.seen.compared += len;
            state.seen.reused += reused;
        }
        if state.seen.compared >= HALVED_AT {
            state.seen = state.seen.halved();
            state.since = Some(since + since.elapsed() / 2);
        }
    }
}

impl Seen {
    /// Whether reading costs less than what it saves. `arriving` is how long content has been arriving; reading is
    /// shared by this many threads.
    fn pays(&self, arriving: Duration, threads: u32) -> bool {
        if self.compared < ASSUMED || self.read == 0 || self.arrived == 0 {
            return true;
        }
        let found = (self.reused + ASSUMED / 2) as f64 / (self.compared + ASSUMED) as f64;
        let byte_arrives = arriving.as_secs_f64() / self.arrived as f64;
        let byte_is_read = self.reading.as_secs_f64() / f64::from(threads) / self.read as f64;
        found * byte_arrives >= byte_is_read
    }

    fn halved(self) -> Self {
        let Self { compared, reused, arrived, read, reading } = self;
        Self {
            compared: compared / 2,
            reused: reused / 2,
            arrived: arrived / 2,
            read: read / 2,
            reading: reading / 2,
        }
    }
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
impl BasisCost {
    /// Nothing was found in what was read.
    pub(crate) fn nothing_found() -> Self {
        let cost = Self::new();
        cost.reading(1, || while thread_time() == Duration::ZERO {});
        cost.came(HALVED_AT - 1, Some(0));
        cost.lock().since = Some(Instant::now() + Duration::from_secs(3600));
        cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Of `compared` bytes so many were there; a GiB was read in a second.
    fn seen(compared: u64, reused: u64) -> Seen {
        Seen { compared, reused, arrived: compared - reused, read: 1 << 30, reading: Duration::from_secs(1) }
    }

    /// How long content takes to arrive at so many bytes a second.
    fn at(rate: u64, seen: Seen) -> Duration {
        Duration::from_secs_f64(seen.arrived as f64 / rate as f64)
    }

    #[test]
    fn what_is_found_is_worth_its_reading_the_more_the_slower_the_link_is() {
        let nothing = seen(60 * MIB, 0);
        let fast = [1 << 30, 300 << 20].map(|rate| nothing.pays(at(rate, nothing), 1));
        let slow = [10 << 20, 1 << 20].map(|rate| nothing.pays(at(rate, nothing), 1));
        assert_eq!((fast, slow), ([false; 2], [true; 2]));
        let half = seen(60 * MIB, 30 * MIB);
        assert!(half.pays(at(300 << 20, half), 1) && !half.pays(at(10 << 30, half), 1));
    }

    #[test]
    fn reading_is_shared_by_threads() {
        let some = seen(60 * MIB, 10 * MIB);
        let arriving = at(500 << 20, some);
        assert!(!some.pays(arriving, 1) && some.pays(arriving, 4));
    }

    #[test]
    fn nothing_is_passed_over_before_something_was_compared() {
        let cost = BasisCost::new();
        assert!(cost.pays(MIB));
        cost.reading(MIB, || ());
        cost.came(100 * MIB, None);
        assert!(cost.pays(MIB));
    }

    #[test]
    fn an_eighth_is_read_where_it_does_not_pay() {
        let cost = BasisCost::nothing_found();
        let read: Vec<_> = (0..24).map(|_| cost.pays(MIB)).collect();
        assert_eq!(read, [[false; 7].as_slice(), &[true]].concat().repeat(3));
        let read: Vec<_> =
            [MIB, 2 * MIB, 4 * MIB, 2 * MIB, MIB].into_iter().map(|len| cost.pays(len)).collect();
        assert_eq!(read, [false, false, false, false, true], "files of other lengths");
        assert!(!cost.pays(8 * HALVED_AT - 8) && cost.pays(8 * HALVED_AT), "more than is known of");
    }

    #[test]
    fn what_was_seen_long_ago_counts_less() {
        let cost = BasisCost::new();
        cost.came(HALVED_AT, Some(0));
        cost.came(HALVED_AT / 2, Some(HALVED_AT / 2));
        let Seen { compared, reused, arrived, .. } = cost.lock().seen;
        assert_eq!((compared, reused, arrived), (HALVED_AT / 2, HALVED_AT / 4, HALVED_AT / 4));
    }
}
