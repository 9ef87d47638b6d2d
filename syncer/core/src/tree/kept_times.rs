//! The times that a file system can keep, learned from what it stores.

use super::entry::Time;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A time that every file system keeps in its own steps, and that tells the steps apart.
const PLAIN: Time = Time { seconds: 1_700_000_001, nanos: 987_654_321 };

/// Two distances from 1970, in seconds, that lie beyond the last time of most file systems.
const FAR_SECONDS: [i64; 2] = [1 << 40, (1 << 40) + 0x0123_4567];

/// The steps of known file systems, from those of ext4 and NTFS to those of FAT.
const STEPS_NANOS: [u64; 7] = [1, 100, 1000, 1_000_000, 10_000_000, NANOS_PER_SECOND, 2 * NANOS_PER_SECOND];

/// The modification times that a file system keeps. By default all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptTimes {
    /// The first time; earlier ones become this one.
    pub first: Time,
    /// The last time; later ones become this one.
    pub last: Time,
    /// The distance in nanoseconds between two times. A time between them becomes the earlier one.
    pub step_nanos: u64,
}

impl Default for KeptTimes {
    fn default() -> Self {
        Self::ALL
    }
}

impl KeptTimes {
    /// All times.
    pub const ALL: Self = Self {
        first: Time { seconds: i64::MIN, nanos: 0 },
        last: Time { seconds: i64::MAX, nanos: 0 },
        step_nanos: 1,
    };

    /// Finds out which times a file system keeps. `store` sets a file's time and returns the time that the file then
    /// has. A file system that follows no known rule counts as one that keeps all times.
    pub fn learn(mut store: impl FnMut(Time) -> Option<Time>) -> Self {
        let all = Self::ALL;
        let Some(plain) = store(PLAIN) else { return all };
        let explains = |step_nanos: &u64| Self { step_nanos: *step_nanos, ..all }.kept(PLAIN) == plain;
        let Some(step_nanos) = STEPS_NANOS.into_iter().find(explains) else { return all };
        let first = limit(-1, &mut store).filter(|first| *first < PLAIN).unwrap_or(all.first);
        let last = limit(1, &mut store).filter(|last| *last > PLAIN).unwrap_or(all.last);
        Self { first, last, step_nanos }
    }

    /// Returns the time that a file has after it was set to `time`.
    pub fn kept(self, time: Time) -> Time {
        let Time { seconds, nanos } = time;
        if seconds <= self.first.seconds {
            self.first
        } else if seconds >= self.last.seconds {
            self.last
        } else if self.step_nanos >= NANOS_PER_SECOND {
            let step = (self.step_nanos / NANOS_PER_SECOND) as i64;
            Time { seconds: seconds.div_euclid(step) * step, nanos: 0 }
        } else {
            Time { seconds, nanos: nanos - nanos % self.step_nanos as u32 }
        }
    }
}

/// Returns the time that all times far before (`sign` -1) or after 1970 become; `None` if they stay different.
fn limit(sign: i64, store: &mut impl FnMut(Time) -> Option<Time>) -> Option<Time> {
    let [nearer, farther] = FAR_SECONDS.map(|seconds| Time { seconds: sign * seconds, nanos: 0 });
    let limit = store(nearer).filter(|stored| *stored != nearer)?;
    store(farther).filter(|stored| *stored == limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: i64, nanos: u32) -> Time {
        Time { seconds, nanos }
    }

    /// Stores as Linux does for a file system with these limits and steps.
    fn linux(first: i64, last: i64, step: u32) -> impl Fn(Time) -> Option<Time> {
        move |Time { seconds, nanos }| {
            let clamped = seconds.clamp(first, last);
            let nanos = if clamped == first || clamped == last { 0 } else { nanos - nanos % step };
            Some(time(clamped, nanos))
        }
    }

    #[test]
    fn what_is_learned_says_of_any_time_what_the_file_system_stores() {
        let fat = |wanted: Time| {
            let Time { seconds, .. } = linux(315_532_800, 4_354_819_198, 1)(wanted)?;
            Some(time(seconds & !1, 0))
        };
        let small = linux(i32::MIN.into(), i32::MAX.into(), 1_000_000_000);
        let large = linux(i32::MIN.into(), 15_032_385_535, 1);
        let stores: [&dyn Fn(Time) -> Option<Time>; 5] =
            [&Some, &small, &large, &fat, &linux(0, u32::MAX.into(), 100)];
        for (nth, store) in stores.into_iter().enumerate() {
            let kept = KeptTimes::learn(store);
            for seconds in [0, 1, 2, 1_700_000_000, 1_700_000_001, 2_500_000_000, 20_000_000_000] {
                for wanted in [time(seconds, 0), time(-seconds, 1), time(seconds, 999_999_999)] {
                    assert_eq!(Some(kept.kept(wanted)), store(wanted), "{nth}: {wanted:?}");
                }
            }
        }
        assert_eq!(KeptTimes::learn(Some), KeptTimes::ALL);
    }

    #[test]
    fn a_file_system_that_follows_no_rule_counts_as_one_that_keeps_all_times() {
        let mut clock = 0;
        let ignores = |_| {
            clock += 1;
            Some(time(1_800_000_000 + clock, 0))
        };
        assert_eq!(KeptTimes::learn(ignores), KeptTimes::ALL);
        assert_eq!(KeptTimes::learn(|_| None), KeptTimes::ALL);
        let wraps = |wanted: Time| Some(time((wanted.seconds as i32).into(), wanted.nanos));
        assert_eq!(KeptTimes::learn(wraps), KeptTimes::ALL);
        let refuses_far_ones = |wanted: Time| (wanted.seconds.abs() < 1 << 33).then_some(wanted);
        assert_eq!(KeptTimes::learn(refuses_far_ones), KeptTimes::ALL);
    }
}
