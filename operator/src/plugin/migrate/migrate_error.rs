//! The errors of the conversion of other tools' objects or command lines.

use std::{io, path::PathBuf};

use thiserror::Error;

/// The maximum size of the manifests to read, in bytes.
pub(super) const MAX_BYTES: u64 = 64 << 20;

/// The reasons why no SyncJob could be written.
#[derive(Debug, Error)]
pub(crate) enum MigrateError {
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has more than {MAX_BYTES} bytes", .path.display())]
    TooLong { path: PathBuf },
    #[error("{} is not YAML or JSON", .path.display())]
    Parse { path: PathBuf, source: Box<serde_saphyr::Error> },
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
            Self::Read { .. } | Self::TooLong { .. } => {
                "give a file with manifests, or - for standard input".into()
            }
            Self::Parse { .. } | Self::Nothing { .. } | Self::Field { .. } => {
                "`kubectl get replicationsources,replicationdestinations -o yaml` prints what this reads"
                    .into()
            }
            Self::PvMigrate(_) => "for example `pv-migrate --source old --dest new`".into(),
            Self::Yaml(_) | Self::Json(_) => "report this with the object".into(),
        }
    }
}
