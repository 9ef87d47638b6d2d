//! Forecasts how long a run takes from now on. Pure.

use std::time::Duration;

use contract::Progress;

/// The longest remaining time that is shown as a forecast.
const MAX_TIME_LEFT: Duration = Duration::from_secs(100 * 3600);

/// Returns the remaining time at `steady_rate`, in bytes per second; `None` while hardly any bytes arrive.
pub(crate) fn time_left(progress: &Progress, steady_rate: u64) -> Option<Duration> {
    let left = progress.bytes_total.saturating_sub(progress.bytes);
    let seconds = left as f64 / steady_rate as f64;
    Duration::try_from_secs_f64(seconds).ok().filter(|left| *left < MAX_TIME_LEFT)
}
