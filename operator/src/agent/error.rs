//! Why the agent could not do its part.

use thiserror::Error;

use super::{args::NoSuchShard, meeting::MeetingError};
use crate::launch::process::ProcessError;

/// Why the agent could not do its part.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The process does not start, or is lost.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Signals cannot be received.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
    /// The pod has no part in the run.
    #[error(transparent)]
    Shard(#[from] NoSuchShard),
    /// The two ends cannot meet.
    #[error(transparent)]
    Meeting(#[from] MeetingError),
}
