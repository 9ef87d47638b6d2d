//! The errors of the conversion of other tools' objects or command lines.

use std::path::PathBuf;

use thiserror::Error;

use api::manifest_file::ManifestFileError;

/// The reasons why no SyncJob could be written.
#[derive(Debug, Error)]
pub enum MigrateError {
    /// The file has no documents.
    #[error(transparent)]
    File(#[from] ManifestFileError),
    /// The file has no object of VolSync.
    #[error("{} has no ReplicationSource and no ReplicationDestination", .path.display())]
    Nothing {
        /// The file.
        path: PathBuf,
    },
    /// A field is of another type than VolSync's.
    #[error("{object}: {field} is not what VolSync has there")]
    Field {
        /// The kind and the name of the object.
        object: String,
        /// The path of the field.
        field: String,
        /// The error of the decoder.
        source: serde_json::Error,
    },
    /// The arguments are not pv-migrate's; with its parser's message.
    #[error("this is not a command line of pv-migrate: {0}")]
    PvMigrate(String),
    /// The draft cannot be written.
    #[error("cannot write a SyncJob as YAML")]
    Yaml(#[from] serde_saphyr::SerializeError),
    /// The draft cannot be encoded.
    #[error("cannot write a SyncJob as JSON")]
    Json(#[from] serde_json::Error),
}

impl MigrateError {
    /// Returns what the user can do next.
    pub fn hint(&self) -> String {
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
