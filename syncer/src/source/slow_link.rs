//! Decides whether a link is so slow that compressing pays: by the bandwidth limit, by how far the peer is, and by how
//! fast the link takes frames.

use std::time::Instant;

/// On slower links, compressing is faster than sending: about half the speed of one core at zstd level 3.
const SLOW_LINK_BYTES_PER_SECOND: f64 = 80e6;

/// Measures how fast the link takes the frames of one worker.
pub(crate) struct LinkMeter {
    bytes_per_second: f64,
    /// What frames that wait for nothing let the link seem to be at most: queues take the first of them on any link.
    most: f64,
    last: Instant,
}

impl LinkMeter {
    /// Starts with what is known before the first frame: a `limit` of the bandwidth in bytes per second, which all
    /// `workers` share, and whether the peer is far, where a link is rarely fast.
    pub(crate) fn start(limit: Option<u64>, is_far: bool, workers: usize) -> Self {
        let usual = SLOW_LINK_BYTES_PER_SECOND * if is_far { 0.5 } else { 1.0 };
        let most =
            limit.map_or(4.0 * SLOW_LINK_BYTES_PER_SECOND, |limit| limit as f64 / workers.max(1) as f64);
        Self { bytes_per_second: usual.min(most), most, last: Instant::now() }
    }

    pub(crate) fn is_slow(&self) -> bool {
        self.bytes_per_second < SLOW_LINK_BYTES_PER_SECOND
    }

    /// Records a frame. Only a frame that had to wait shows the speed of the link; any other shows that the link is
    /// faster than this worker.
    pub(crate) fn sent(&mut self, len: usize, waited: bool) {
        let now = Instant::now();
        let took = (now - self.last).as_secs_f64().max(1e-6);
        self.last = now;
        self.bytes_per_second = if waited {
            0.75 * self.bytes_per_second + 0.25 * len as f64 / took
        } else {
            (self.bytes_per_second * 1.1).min(self.most)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_and_a_far_peer_are_known_to_be_slow_before_the_first_frame() {
        assert!(LinkMeter::start(Some(12_000_000), false, 2).is_slow());
        assert!(LinkMeter::start(Some(100_000_000), false, 2).is_slow(), "each worker has half");
        assert!(!LinkMeter::start(Some(1_000_000_000), false, 2).is_slow());
        assert!(LinkMeter::start(None, true, 2).is_slow() && !LinkMeter::start(None, false, 2).is_slow());
    }

    #[test]
    fn frames_that_wait_show_a_slow_link_soon_however_many_went_into_queues_before() {
        let mut meter = LinkMeter::start(None, false, 2);
        (0..1000).for_each(|_| meter.sent(1 << 20, false));
        let waiting = (1..).find(|_| {
            meter.last -= std::time::Duration::from_millis(100);
            meter.sent(1 << 20, true);
            meter.is_slow()
        });
        assert!(waiting.is_some_and(|frames| frames < 8), "{waiting:?}");
        let mut limited = LinkMeter::start(Some(12_000_000), false, 1);
        (0..1000).for_each(|_| limited.sent(1 << 20, false));
        assert!(limited.is_slow());
    }
}
