//! The errors of the conversion of other tools' objects or command lines.

use std::path::PathBuf;

use thiserror::Error;

use crate::manifest_file::ManifestFileError;

/// The reasons why no SyncJob could be written.
#[derive(Debug, Error)]
pub(crate) enum MigrateError {
    #[error(transparent)]
    File(#[from] ManifestFileError),
    #[error("{} has no ReplicationSource and no ReplicationDestination", .path.display())]
    Nothing { path: PathBuf },
    #[error("{object}: {field} is not what VolSync has there")]
    Field { object: String, field: String, source: serde_json::Error },
    #[error("this is not a command line of pv-migrate: {0}")]
    PvMigrate(String),
    #[error("cannot write a SyncJob as YAML")]
    Yaml(#[from] serde_saphyr::SerializeError),
    #[error("cannot write a SyncJob as JSON")]
    Json(#[from] serde_json::Error),
}

impl MigrateError {
    /// Returns what the user can do next.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::File(ManifestFileError::Read { .. } | ManifestFileError::TooLong(_)) => {
                "give a file with manifests, or - for standard input".into()
            }
            Self::File(_) | Self::Nothing { .. } | Self::Field { .. } => {
                "`kubectl get replicationsources,replicationdestinations -o yaml` prints what this reads"
                    .into()
            }
            Self::PvMigrate(_) => "for example `pv-migrate --source old --dest new`".into(),
            Self::Yaml(_) | Self::Json(_) => "report this with the object".into(),
        }
    }
}
