//! Limits the bandwidth: data is sent or copied in small pieces, each at its scheduled time.
//!
//! It is the generic cell rate algorithm (ITU-T I.371). A piece of n bytes takes n / rate seconds of a clock that may
//! lag behind the present by at most the burst, so unused time is not saved up.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The longest time that the clock may lag behind the present. It makes up for timers that are late (a millisecond, or
/// several on a busy machine) without losing rate.
const BURST: Duration = Duration::from_millis(20);

/// The time that one piece takes at the limit, unless its size would exceed the bounds.
const PIECE: Duration = Duration::from_millis(5);
const MIN_PIECE_BYTES: usize = 1 << 10;
const MAX_PIECE_BYTES: usize = 256 << 10;

/// UDP payload for each byte of a QUIC stream: packets of 1,200 to 1,452 bytes carry 16 bytes of tag and 15 to 30 of
/// headers.
pub(crate) const WIRE_OVERHEAD: f64 = 1.03;

/// A limit shared by all streams of a connection, or by all threads that copy files.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes_per_second: f64,
    /// The number of bytes that each byte counts as.
    overhead: f64,
    clock: Mutex<Option<Instant>>,
}

impl Pace {
    /// Allows at most `bytes_per_second`; 0 counts as 1. Each byte counts as `overhead` bytes.
    pub(crate) fn new(bytes_per_second: u64, overhead: f64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1) as f64, overhead, clock: Mutex::new(None) }
    }

    /// Returns the size of the pieces that data is cut into.
    pub(crate) fn piece_bytes(&self) -> usize {
        ((self.bytes_per_second * PIECE.as_secs_f64()) as usize).clamp(MIN_PIECE_BYTES, MAX_PIECE_BYTES)
    }

    /// Waits until `bytes` more may be sent.
    pub(crate) async fn wait(&self, bytes: usize) {
        let now = Instant::now();
        let wait = self.reserve(now, bytes);
        if wait > Duration::ZERO {
            tokio::time::sleep_until((now + wait).into()).await;
        }
    }

    /// Returns the time until which bytes have been reserved, which moves on with each piece.
    pub(crate) fn reserved(&self) -> Option<Instant> {
        *self.clock.lock()
    }

    /// Reserves the time for `bytes`, and returns how long to wait for it from `now`.
    pub(crate) fn reserve(&self, now: Instant, bytes: usize) -> Duration {
        let cost = Duration::from_secs_f64(bytes as f64 * self.overhead / self.bytes_per_second);
        let mut clock = self.clock.lock();
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let start = clock.map_or(now, |clock| clock.max(earliest));
        *clock = Some(start + cost);
        (start + cost).saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends pieces for `seconds`, with sleeps that are up to `jitter` too long, and returns when each left.
    fn departures(pace: &Pace, start: Instant, seconds: u64, jitter: Duration) -> Vec<(Duration, usize)> {
        let (mut now, mut sent) = (start, Vec::new());
        while now < start + Duration::from_secs(seconds) {
            let wait = pace.reserve(now, pace.piece_bytes());
            if wait > Duration::ZERO {
                now += wait + jitter * (sent.len() as u32 % 4) / 4;
            }
            sent.push((now - start, pace.piece_bytes()));
        }
        sent
    }

    #[test]
    fn any_two_seconds_hold_what_the_limit_allows() {
        for rate in [1 << 20, 10 << 20, 100 << 20, 1 << 30] {
            let pace = Pace::new(rate, WIRE_OVERHEAD);
            let sent = departures(&pace, Instant::now(), 6, Duration::from_millis(4));
            for begin in (500..4000).step_by(100).map(Duration::from_millis) {
                let within = |at: Duration| at >= begin && at < begin + Duration::from_secs(2);
                let bytes: usize = sent.iter().filter(|(at, _)| within(*at)).map(|(_, bytes)| bytes).sum();
                let share = bytes as f64 * WIRE_OVERHEAD / (2.0 * rate as f64);
                assert!((0.95..1.05).contains(&share), "{rate} B/s from {begin:?}: {share}");
            }
        }
    }

    #[test]
    fn time_that_was_not_used_is_not_saved_up() {
        let pace = Pace::new(1 << 20, WIRE_OVERHEAD);
        let start = Instant::now();
        pace.reserve(start, 1 << 10);
        let later = start + Duration::from_secs(60);
        assert_eq!(pace.reserve(later, 10 << 10), Duration::ZERO);
        assert!(pace.reserve(later, 1 << 20) > Duration::from_millis(950));
    }
}
