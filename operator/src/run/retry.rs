//! Decides whether and when a failed try is followed by another. Pure.

use jiff::{SignedDuration, Timestamp};

const FIRST_WAIT: SignedDuration = SignedDuration::from_secs(10);
/// The longest pause before a try.
pub const LONGEST_WAIT: SignedDuration = SignedDuration::from_mins(5);

/// Returns how long to wait before the try after `failed` failed ones (at least 1): 10 s, doubled each time, at most 5
/// min.
pub fn wait(failed: i32) -> SignedDuration {
    let doublings = u32::try_from(failed - 1).unwrap_or(0).min(16);
    (FIRST_WAIT * (1 << doublings)).min(LONGEST_WAIT)
}

/// Returns when the next try starts, after one more try has failed just now and `retries` of `limit` retries were used
/// before it; `None` if the retries are used up, or if it would start after the `deadline`.
pub fn next(retries: i32, limit: u32, deadline: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let at = now.checked_add(wait(retries + 1)).ok()?;
    (i64::from(retries) < i64::from(limit) && at < deadline).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn waits_double_up_to_five_minutes() {
        let seconds: Vec<i64> = (1..=7).map(|failed| wait(failed).as_secs()).collect();
        assert_eq!(seconds, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(wait(i32::MAX), LONGEST_WAIT);
    }

    #[test]
    fn retries_are_bounded_by_number() {
        assert_eq!(next(0, 2, at(9999), at(0)), Some(at(10)));
        assert_eq!(next(1, 2, at(9999), at(0)), Some(at(20)));
        assert_eq!(next(2, 2, at(9999), at(0)), None);
        assert_eq!(next(0, 0, at(9999), at(0)), None);
    }

    #[test]
    fn a_try_that_would_start_after_the_deadline_is_not_made() {
        assert_eq!(next(0, 5, at(10), at(0)), None);
        assert_eq!(next(0, 5, at(11), at(0)), Some(at(10)));
    }
}
