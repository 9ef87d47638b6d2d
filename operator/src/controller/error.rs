//! The errors of a reconciliation, and how long to wait before it is tried again.

use std::time::Duration;

use thiserror::Error;

use super::{apply::ApplyError, read::DereferenceError, stores::WatchError};
use crate::{
    leases::held_namespaces::NotTaken, pods::cleanup::CleanupError, run::write_record::RecordError,
    snapshots::make_capture::CaptureError,
};

/// The maximum duration of one reconciliation. Without it, a connection that was lost silently would block its job for
/// ever.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// The wait before a failed reconciliation is tried again, which doubles with each failure in a row.
const ERROR_PAUSE: Duration = Duration::from_secs(5);
/// The same if it failed only because somebody else wrote to the object meanwhile.
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);
/// The longest of these waits.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The reasons why a reconciliation was aborted. It is tried again.
#[derive(Debug, Error)]
pub(crate) enum Error {
    /// An object cannot be read.
    #[error(transparent)]
    Dereference(#[from] DereferenceError),
    /// An object cannot be created or changed.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// What captures a source cannot be made or removed.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// An object cannot be removed.
    #[error(transparent)]
    Cleanup(#[from] CleanupError),
    /// The SyncRun of a run cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Nobody knows which release of the operator holds the namespace.
    #[error(transparent)]
    NotTaken(#[from] NotTaken),
    /// A watch has ended or fails, so that the operator does not learn of changes.
    #[error(transparent)]
    Unwatched(#[from] WatchError),
    /// The job has changed since the watch reported it.
    #[error("there is a newer version of the job")]
    Outdated,
    /// The status cannot be written.
    #[error("cannot write the status")]
    Status(#[source] kube::Error),
    /// The status of a SyncGrant cannot be written.
    #[error("cannot note in a SyncGrant which namespace uses it")]
    Grant(#[source] kube::Error),
    /// The status cannot be converted to JSON.
    #[error("cannot render the status")]
    Render(#[source] serde_json::Error),
    /// The reconciliation took too long, usually because the API server does not answer.
    #[error("no end within {} s", TIMEOUT.as_secs())]
    TimedOut,
}

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

    /// Returns whether somebody else wrote to the SyncJob or its SyncRun meanwhile, which is no failure.
    pub(crate) fn is_conflict(&self) -> bool {
        let source = match self {
            Self::Outdated => return true,
            Self::Status(source) | Self::Grant(source) | Self::Record(RecordError { source, .. }) => source,
            _ => return false,
        };
        is_stale(source)
    }
}

fn is_stale(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict() || status.is_not_found())
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
