use serde::{Deserialize, Serialize};

use crate::{
    contact::Fingerprint,
    history::{CopySelection, HistoryRequest},
    params::RunParams,
};

/// What a peer may do with a folder of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FolderAccess {
    /// The peer gets the folder's files.
    Read,
    /// The peer sends files into the folder.
    Write,
}

/// What a peer asks of a service, once both have shown their keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FolderRequest {
    /// The folder's name.
    pub folder: String,
    /// The path below the folder; empty for the folder itself.
    pub path: String,
    /// The direction.
    pub access: FolderAccess,
    /// The parameters of a run that reads, for which the service is the source.
    #[serde(default)]
    pub params: RunParams,
    /// The snapshot of the folder that is read instead of its files.
    #[serde(default)]
    pub source_snapshot: Option<String>,
    /// The paths that a run that reads is limited to.
    #[serde(default)]
    pub paths: Option<Vec<Vec<u8>>>,
    /// Snapshots are copied instead of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryRequest>,
}

impl FolderRequest {
    /// The most paths or snapshots of a request, whose list takes more memory than its bytes.
    pub const MAX_PATHS: usize = 1 << 17;

    /// Returns whether a request takes no more memory than an honest one.
    pub fn is_bounded(&self) -> bool {
        let named = match &self.history {
            Some(HistoryRequest { selection: CopySelection::Named(texts), .. }) => texts.len(),
            _ => 0,
        };
        named <= Self::MAX_PATHS && self.paths.as_ref().is_none_or(|paths| paths.len() <= Self::MAX_PATHS)
    }
}

/// Returns the name of the job of all peers of a service that has this key.
pub fn service_job(service: Fingerprint) -> String {
    format!("volferry serve {service}")
}
