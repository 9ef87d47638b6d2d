//! The link to a folder of a service: by which keys the two know each other, and what to do where one is missing.

use std::{io, path::PathBuf, time::Duration};

use contract::{FolderRequest, Identity, IdentityError, OwnKey, PublicKey, Side, service_job};
use syncer::session::{Endpoint, LinkMode, LinkOptions};
use thiserror::Error;

use crate::{
    remote::place::ServicePlace,
    users_service_keys::{OwnFiles, OwnFilesError},
};

/// Why a service cannot be asked.
#[derive(Debug, Error)]
pub(crate) enum AskError {
    #[error(transparent)]
    OwnFiles(#[from] OwnFilesError),
    #[error(
        "the key of the service at {address} is not known\nhint: `volferry enroll {host}` fetches it by ssh, or name it with \
         --service-key"
    )]
    Unknown { address: String, host: String },
    #[error("there is no key {path} by which the service would know this user\nhint: `volferry enroll {host}` makes one", path = .path.display())]
    NoKey { path: PathBuf, host: String },
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// A folder of a service, and how to reach it.
#[derive(Debug)]
pub(crate) struct Asks {
    pub(crate) place: ServicePlace,
    pub(crate) mode: LinkMode,
    /// The end that this process is.
    pub(crate) side: Side,
    /// The file of the own key, unless it is the usual one.
    pub(crate) identity: Option<PathBuf>,
    /// The service's key, unless the usual file names it.
    pub(crate) service_key: Option<PublicKey>,
    pub(crate) connect_timeout: Duration,
    pub(crate) request: FolderRequest,
}

impl Asks {
    /// Reads the keys.
    pub(crate) fn link(self) -> Result<LinkOptions, AskError> {
        let (address, host) = (self.place.address(), self.place.host.clone());
        // A process without a home, as in a pod, names both keys.
        let files = || OwnFiles::of_host(&host);
        let known = match self.service_key {
            Some(key) => Some(key),
            None => files()?.service_key(self.place.port)?,
        };
        let unknown = || AskError::Unknown { address: address.clone(), host: host.clone() };
        let service = known.ok_or_else(unknown)?.fingerprint();
        // A process that names both keys uses none of these files.
        let reached = match (&self.identity, self.service_key) {
            (Some(_), Some(_)) => None,
            _ => files()?.reached(),
        };
        let path = self.identity.map_or_else(|| files().map(|files| files.key()), Ok)?;
        let own = match OwnKey::read(&path) {
            Err(IdentityError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(AskError::NoKey { path, host });
            }
            read => read?,
        };
        let identity = Identity::of_key(own, self.side, &service_job(service), service)?;
        let address = reached.map_or(address, |reached| format!("{reached}:{}", self.place.port));
        let endpoint = Endpoint::Ask { address, request: Box::new(self.request) };
        Ok(LinkOptions {
            endpoint,
            mode: self.mode,
            identity,
            others: Vec::new(),
            connect_timeout: self.connect_timeout,
        })
    }
}
