//! Why a reconciliation failed, and when it is tried again.

use std::time::Duration;

use thiserror::Error;

use super::{
    apply::ApplyError, cleanup::CleanupError, read::DereferenceError, record::RecordError,
    watched::WatchEnded,
};

/// How long one reconciliation may take. Without a bound, a connection that died without a word would hold
/// its job up for ever.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait before trying again what failed.
const ERROR_PAUSE: Duration = Duration::from_secs(5);
/// The same, where somebody else has written to the object in between.
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);

/// Why a reconciliation was broken off. It is tried again.
#[derive(Debug, Error)]
pub(super) enum Error {
    /// Something cannot be read.
    #[error(transparent)]
    Dereference(#[from] DereferenceError),
    /// Something cannot be made.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Something cannot be removed.
    #[error(transparent)]
    Cleanup(#[from] CleanupError),
    /// A run cannot be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The operator hears of nothing any more.
    #[error(transparent)]
    Unwatched(#[from] WatchEnded),
    /// The job has changed since the watch brought it.
    #[error("there is a newer version of the job")]
    Outdated,
    /// The status cannot be written.
    #[error("cannot write the status")]
    Status(#[source] kube::Error),
    /// The status has no JSON form.
    #[error("cannot render the status")]
    Render(#[source] serde_json::Error),
    /// The API server does not answer.
    #[error("no end within {} s", TIMEOUT.as_secs())]
    TimedOut,
}

impl Error {
    /// Returns how long to wait before the reconciliation is tried again.
    pub(super) fn pause(&self) -> Duration {
        if self.is_conflict() { CONFLICT_PAUSE } else { ERROR_PAUSE }
    }

    /// Returns whether somebody else wrote to the SyncJob or its SyncRun in between, which is no failure.
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
