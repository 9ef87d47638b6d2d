//! Computes a speed over a recent span from samples of a counter.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// The growth of a counter per second over the last `span`, or since the start if that is shorter.
#[derive(Debug)]
pub(super) struct SpeedWindow {
    span: Duration,
    /// The samples, oldest first. Once the run is long enough, only the first is at least `span` old.
    samples: VecDeque<(Instant, u64)>,
}

impl SpeedWindow {
    /// Starts with a counter that is 0 at `start`.
    pub(super) fn new(span: Duration, start: Instant) -> Self {
        Self { span, samples: VecDeque::from([(start, 0)]) }
    }

    /// Adds the counter's `value` at `now`, and returns its growth per second. A counter that fell counts from the
    /// start again.
    pub(super) fn sample(&mut self, now: Instant, value: u64) -> u64 {
        if self.samples.back().is_some_and(|(_, last)| value < *last) {
            self.samples.clear();
        }
        self.samples.push_back((now, value));
        while self.samples.get(1).is_some_and(|(then, _)| now.duration_since(*then) >= self.span) {
            self.samples.pop_front();
        }
        let (then, before) = self.samples[0];
        match now.duration_since(then).as_secs_f64() {
            0.0 => 0,
            seconds => ((value - before) as f64 / seconds).round() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(250);

    fn rates(values: &[u64]) -> Vec<u64> {
        let start = Instant::now();
        let mut window = SpeedWindow::new(Duration::from_secs(1), start);
        let at = |step: usize| start + STEP * (step as u32 + 1);
        values.iter().enumerate().map(|(step, value)| window.sample(at(step), *value)).collect()
    }

    #[test]
    fn a_steady_stream_has_its_rate_from_the_first_sample_on() {
        assert_eq!(rates(&[25, 50, 75, 100, 125, 150, 175]), [100; 7]);
    }

    #[test]
    fn a_stall_shows_within_the_span() {
        assert_eq!(rates(&[100, 100, 100, 100, 100, 100]), [400, 200, 133, 100, 0, 0]);
    }

    #[test]
    fn a_counter_that_begins_again_has_no_negative_rate() {
        assert_eq!(rates(&[100, 200, 0, 25]), [400, 400, 0, 100]);
    }

    #[test]
    fn two_samples_at_one_instant_divide_nothing() {
        let now = Instant::now();
        assert_eq!(SpeedWindow::new(STEP, now).sample(now, 7), 0);
    }
}
