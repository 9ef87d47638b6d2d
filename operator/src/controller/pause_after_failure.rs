//! How long to wait before a failed reconciliation is tried again. Pure.

use std::time::Duration;

use super::error::Error;

/// The wait before a failed reconciliation is tried again, which doubles with each failure in a row.
const ERROR_PAUSE: Duration = Duration::from_secs(5);
/// The same if it failed only because somebody else wrote to the object meanwhile.
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);
/// The longest of these waits.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Returns the pause before another attempt, after that number of earlier failures in a row.
pub(crate) fn pause_after(failures: u32) -> Duration {
    growing(ERROR_PAUSE, failures)
}

fn growing(first: Duration, failures: u32) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(failures)).min(LONGEST_PAUSE)
}

impl Error {
    /// Returns how long to wait before the reconciliation is tried again, after that number of earlier failures in a
    /// row.
    pub(crate) fn pause(&self, failures: u32) -> Duration {
        match self {
            // The look at a watch costs nothing.
            Self::Unwatched(_) => ERROR_PAUSE,
            _ => {
                let first = if self.is_conflict() { CONFLICT_PAUSE } else { ERROR_PAUSE };
                growing(first, failures)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_are_tried_again_ever_later_up_to_minutes() {
        let missing =
            kube::Error::Api(Box::new(kube::core::Status::failure("gone", "NotFound").with_code(404)));
        let errors = [Error::TimedOut, Error::Outdated, Error::Status(missing)];
        for error in errors {
            let pauses: Vec<Duration> = (0..20).map(|failures| error.pause(failures)).collect();
            assert!(pauses.is_sorted() && pauses[1] == pauses[0] * 2, "{error}: {pauses:?}");
            assert_eq!(pauses[19], LONGEST_PAUSE, "{error}");
        }
        assert_eq!((Error::TimedOut.pause(0), Error::Outdated.pause(0)), (ERROR_PAUSE, CONFLICT_PAUSE));
    }
}
