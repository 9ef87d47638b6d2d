//! Says why an endpoint is not served.

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::{agent::own_key::KeyError, engine::process::ProcessError, fault::Fault};

/// The reasons why an endpoint is not served.
#[derive(Debug, Error)]
pub(super) enum ServiceError {
    #[error("no API server is configured")]
    Client(#[source] kube::Error),
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("cannot write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("the SyncEndpoint cannot be served: {}", .0.message)]
    Spec(Fault),
}
