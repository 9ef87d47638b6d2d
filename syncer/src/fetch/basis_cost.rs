//! Decides whether reading a basis pays, from the measurements of this run.
//!
//! Reading and hashing old bytes costs processor time, and saves the transfer of the bytes that are found again. Both
//! are measured, so the same files are compared over a slow link and sent in full over a fast one:
//!
//! > continue to read while (share of reused bytes) × (time for a byte to arrive) ≥ (processor time to read a byte)
//!
//! The time to read from a slow disk does not count, because the link works meanwhile.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

use crate::sys::cores::cores;

/// The number of bytes that are assumed to be compared at the start, half of them reused: one part of 8 MiB without
/// reuse is not yet a reason to stop reading if sending takes four times as long as reading.
const ASSUMED: u64 = 8 << 20;

/// The number of compared bytes at which all measurements are halved, because files differ.
const HALVED_AT: u64 = 64 << 20;

/// Where reading does not pay, one byte in this many is still read, to see whether that has changed; so is a file that
/// is more than this many times larger than all bytes compared so far.
const PROBED: u64 = 8;

/// The measurements of a run, on all of its threads.
pub(crate) struct BasisCost {
    threads: u32,
    state: Mutex<CostState>,
}

#[derive(Default)]
struct CostState {
    seen: Seen,
    /// The start of the measurement of arriving content.
    since: Option<Instant>,
    /// Bytes that were skipped since the last read.
    skipped: u64,
}

/// Measured bytes and times.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Bytes of new files that were compared with a basis.
    compared: u64,
    /// Bytes of these that were reused.
    reused: u64,
    /// Bytes of large files that arrived.
    arrived: u64,
    /// Bytes of old files that were read.
    read: u64,
    /// Processor time that `read` took.
    reading: Duration,
}

impl BasisCost {
    /// Starts without measurements.
    pub(crate) fn new() -> Self {
        let threads = cores() as u32;
        Self { threads, state: Mutex::default() }
    }

    /// Returns whether to read the next `bytes` of a basis.
    pub(crate) fn pays(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let arriving = state.since.map_or(Duration::ZERO, |since| since.elapsed());
        // A small sample says nothing about a much larger file.
        let is_unknown = bytes > PROBED * state.seen.compared;
        let pays =
            is_unknown || state.seen.pays(arriving, self.threads) || state.skipped >= (PROBED - 1) * bytes;
        state.skipped = if pays { 0 } else { state.skipped + bytes };
        pays
    }

    /// Runs `read`, which reads this many old bytes, and measures its processor time.
    pub(crate) fn reading<T>(&self, bytes: u64, read: impl FnOnce() -> T) -> T {
        let start = thread_time();
        let result = read();
        let spent = thread_time().saturating_sub(start);
        let mut state = self.state.lock();
        state.seen.read += bytes;
        state.seen.reading += spent;
        result
    }

    /// Records content that arrived. `reused` is the number of bytes taken from the basis, if one was read to compare.
    pub(crate) fn came(&self, len: u64, reused: Option<u64>) {
        let mut state = self.state.lock();
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
    /// Returns whether reading costs less than it saves. `arriving` is the time since content began to arrive;
    /// `threads` share the reading.
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

/// Returns the processor time of this thread.
fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
impl BasisCost {
    /// Simulates that nothing was reused of what was read.
    pub(crate) fn nothing_found() -> Self {
        let cost = Self::new();
        cost.reading(1, || while thread_time() == Duration::ZERO {});
        cost.came(HALVED_AT - 1, Some(0));
        cost.state.lock().since = Some(Instant::now() + Duration::from_secs(3600));
        cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Simulates that `reused` of `compared` bytes were found, read at 1 GiB a second.
    fn seen(compared: u64, reused: u64) -> Seen {
        Seen { compared, reused, arrived: compared - reused, read: 1 << 30, reading: Duration::from_secs(1) }
    }

    /// Returns the time in which the content of `seen` arrives at `rate` bytes a second.
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
        let Seen { compared, reused, arrived, .. } = cost.state.lock().seen;
        assert_eq!((compared, reused, arrived), (HALVED_AT / 2, HALVED_AT / 4, HALVED_AT / 4));
    }
}
