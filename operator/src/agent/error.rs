//! The errors of the agent.

use thiserror::Error;

use super::{args::NoSuchShard, meeting::MeetingError};
use crate::launch::process::ProcessError;

/// The reasons why the agent failed.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The process cannot be started, or is lost.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Signal handlers cannot be installed.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
    /// The pod's index is not one of the run's shards.
    #[error(transparent)]
    Shard(#[from] NoSuchShard),
    /// The two ends cannot be connected.
    #[error(transparent)]
    Meeting(#[from] MeetingError),
}
