//! Decides how long a run waits before it reads a file that has just changed, so that any later change gives the file
//! another time.

use std::{io, os::fd::AsFd, time::Duration};

use rustix::{
    fs::Stat,
    time::{ClockId, clock_gettime},
};

use crate::{
    entry::Time,
    measure::monitor::Monitor,
    sys::stat::{changed, modified, regular},
};

/// The longest tick of the kernel's clock for files (`CONFIG_HZ=100`).
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// The tick of file systems that keep whole seconds; some of them (FAT) keep only even ones.
const SLOW_TICK: Duration = Duration::from_secs(2);

/// Reads the state of an open regular file once its times are in the past, so that any later change gives it another
/// time, by which the next run recognises the change. Waits for the end of the clock's present tick if the file was
/// changed in it, or until the monitor is told to stop.
pub(crate) fn settled(fd: impl AsFd, monitor: &Monitor) -> io::Result<Stat> {
    loop {
        let stat = regular(&fd)?;
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let now = Time { seconds: now.tv_sec, nanos: now.tv_nsec as u32 };
        match until_past(modified(&stat), changed(&stat), now) {
            Some(wait) => monitor.pause(wait)?,
            None => return Ok(stat),
        }
    }
}

/// Returns how long it takes until a change of a file would get another time than `modified`; `None` if it would
/// already. A time further in the future than a tick was set by a program, and is not waited for. `changed` shows the
/// file system's precision.
fn until_past(modified: Time, changed: Time, now: Time) -> Option<Duration> {
    let nanos = |time: Time| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
    let (tick, unit) = if changed.nanos == 0 { (SLOW_TICK, 1_000_000_000) } else { (TICK, 1) };
    let present = nanos(now) / unit * unit;
    let ahead = nanos(modified) - present;
    let wait = nanos(modified) + unit - nanos(now);
    let is_present = (0..=tick.as_nanos() as i128).contains(&ahead);
    is_present.then(|| Duration::from_nanos(wait.max(0) as u64).min(tick).max(Duration::from_millis(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: i64, nanos: u32) -> Time {
        Time { seconds, nanos }
    }

    #[test]
    fn only_a_time_that_a_change_could_still_have_is_waited_for() {
        let millis = |millis: u64| Some(Duration::from_millis(millis));
        let now = time(100, 500_000_000);
        for (modified, changed, expected) in [
            (time(100, 499_999_999), time(100, 499_999_999), None),
            (time(100, 500_000_000), time(100, 500_000_000), millis(1)),
            (time(100, 503_999_999), time(100, 503_999_999), millis(4)),
            (time(100, 600_000_000), time(100, 400_000_000), None),
            (time(99, 0), time(99, 0), None),
            (time(100, 0), time(100, 0), millis(500)),
            (time(101, 0), time(101, 0), millis(1500)),
            (time(200, 0), time(100, 0), None),
            (time(100, 0), time(100, 7), None),
        ] {
            assert_eq!(until_past(modified, changed, now), expected, "{modified:?} {changed:?}");
        }
    }
}
