//! The errors of a reconciliation, and how long to wait before it is tried again.

use std::time::Duration;

use thiserror::Error;

use super::{
    apply::ApplyError, cleanup::CleanupError, read::DereferenceError, record::RecordError,
    watched::WatchEnded,
};

/// The maximum duration of one reconciliation. Without it, a connection that was lost silently would block its job for
/// ever.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
/// The wait before a failed reconciliation is tried again.
const ERROR_PAUSE: Duration = Duration::from_secs(5);
/// The wait if it failed only because somebody else wrote to the object meanwhile.
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);

/// The reasons why a reconciliation was aborted. It is tried again.
#[derive(Debug, Error)]
pub(super) enum Error {
    /// An object cannot be read.
    #[error(transparent)]
    Dereference(#[from] DereferenceError),
    /// An object cannot be created or changed.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// An object cannot be removed.
    #[error(transparent)]
    Cleanup(#[from] CleanupError),
    /// The SyncRun of a run cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A watch has ended, so that the operator no longer learns of changes.
    #[error(transparent)]
    Unwatched(#[from] WatchEnded),
    /// The job has changed since the watch reported it.
    #[error("there is a newer version of the job")]
    Outdated,
    /// The status cannot be written.
    #[error("cannot write the status")]
    Status(#[source] kube::Error),
    /// The status cannot be converted to JSON.
    #[error("cannot render the status")]
    Render(#[source] serde_json::Error),
    /// The reconciliation took too long, usually because the API server does not answer.
    #[error("no end within {} s", TIMEOUT.as_secs())]
    TimedOut,
}

impl Error {
    /// Returns how long to wait before the reconciliation is tried again.
    pub(super) fn pause(&self) -> Duration {
        if self.is_conflict() { CONFLICT_PAUSE } else { ERROR_PAUSE }
    }

    /// Returns whether somebody else wrote to the SyncJob or its SyncRun meanwhile, which is no failure.
    pub(super) fn is_conflict(&self) -> bool {
        let source = match self {
            Self::Outdated => return true,
            Self::Status(source) | Self::Record(RecordError { source, .. }) => source,
            _ => return false,
        };
        is_stale(source)
    }
}

fn is_stale(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict() || status.is_not_found())
}
