//! The errors of a reconciliation, and which of them are no failures.

use thiserror::Error;

use super::{apply::ApplyError, read::DereferenceError, reconcile_timeout::TIMEOUT, stores::WatchError};
use crate::{
    leases::held_namespaces::NotTaken, pods::cleanup::CleanupError, run::write_record::RecordError,
    snapshots::make_capture::CaptureError,
};

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

impl Error {
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
