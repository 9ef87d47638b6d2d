//! The errors of the agent.

use contract::Reason;
use thiserror::Error;

use super::{args::NoSuchShard, contacts::MeetingError, own_key::KeyError};
use crate::engine::process::ProcessError;

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
    /// There is no key to show to the endpoint.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The Secret for object storage lacks the key.
    #[error(
        "the Secret of destination.objectStore is missing or has no entry {0}: `volferry snapshot key FILE` makes that \
         file"
    )]
    StoreKey(String),
    /// The two ends cannot be connected.
    #[error(transparent)]
    Meeting(#[from] MeetingError),
}

impl AgentError {
    /// Returns the reason for the report; `None` for one that only says that the syncer failed.
    pub(super) fn reason(&self) -> Option<Reason> {
        match self {
            Self::Meeting(_) => Some(Reason::PeerNotMet),
            Self::Key(KeyError::NotStored { .. } | KeyError::NoApiServer) => Some(Reason::KeyNotStored),
            Self::Key(_) => Some(Reason::IdentityUnusable),
            Self::StoreKey(_) => Some(Reason::ObjectStoreUnusable),
            Self::Process(_) | Self::Signals(_) | Self::Shard(_) => None,
        }
    }
}
