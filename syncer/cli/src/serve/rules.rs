//! What the files of a service say: which peers may use which folders.

use std::path::{Path, PathBuf};

use contract::{Fingerprint, FolderAccess};
use thiserror::Error;

use super::{
    folders_apart::overlap,
    peers::{FileStamp, Peers, PeersError},
    service_config::{ServedFolder, ServiceConfig},
};
use crate::toml_file::ConfigFileError;

/// Why the files of a service cannot be used.
#[derive(Debug, Error)]
pub(crate) enum RulesError {
    #[error(transparent)]
    Config(#[from] ConfigFileError),
    #[error(transparent)]
    Peers(#[from] PeersError),
    #[error("{path}: {what}", path = .path.display())]
    Overlap { path: PathBuf, what: String },
}

/// What the files of a service say.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) config: ServiceConfig,
    pub(crate) peers: Peers,
    /// The state of the file of keys when it was read.
    pub(super) stamp: Option<FileStamp>,
}

impl Rules {
    pub(crate) fn read(path: &Path) -> Result<Self, RulesError> {
        let config = ServiceConfig::read(path)?;
        match overlap(path, &config) {
            Some(what) => Err(RulesError::Overlap { path: path.into(), what }),
            None => Self::of(config),
        }
    }

    pub(super) fn of(config: ServiceConfig) -> Result<Self, RulesError> {
        // Looked at first, so that a change during the read is noticed.
        let stamp = FileStamp::of(&config.authorized);
        let peers = Peers::read(&config.authorized)?;
        for (folder, served) in &config.folders {
            for name in served.named().filter(|name| !peers.has_name(name)) {
                tracing::warn!(folder, peer = name, "a peer of this folder has no key");
            }
        }
        Ok(Self { config, peers, stamp })
    }

    /// Returns a folder, if the peer with this key may use it in this way.
    pub(crate) fn permit(
        &self,
        key: Fingerprint,
        folder: &str,
        access: FolderAccess,
    ) -> Option<&ServedFolder> {
        let peer = self.peers.of_key(key)?;
        let served = self.config.folders.get(folder)?;
        let granted = match access {
            FolderAccess::Read => &peer.read,
            FolderAccess::Write => &peer.write,
        };
        let may = granted.contains(folder) || served.lets(&peer.peer, access);
        may.then_some(served)
    }
}
