//! Errors of operations on snapshots.

use std::{io, path::PathBuf};

use contract::plural;
use thiserror::Error;

use super::{id::SnapshotId, retain::EmptyPolicy};
use crate::{apply::ApplyError, codec::DecodeError, root::RootError};

/// The reason why an operation on a volume's snapshots failed.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The system refused.
    #[error("cannot {operation} {path}", path = .path.display())]
    Io {
        /// The operation.
        operation: &'static str,
        /// Its file or folder.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The volume cannot be opened.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The volume is in use, or cannot be written to.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// A file of the store was written by a newer program.
    #[error("{path} has format version {version}, and this program reads version {known}", path = .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The version that this program reads.
        known: u32,
    },
    /// A file of the store is damaged.
    #[error("{what} is damaged")]
    Damaged {
        /// The object and its place.
        what: String,
        /// The error in it.
        source: DecodeError,
    },
    /// An object does not have the hash of its name.
    #[error("{0} is damaged: its content does not have the hash that it was stored under")]
    Hash(String),
    /// The list of snapshots has unreadable records, so it is unknown which objects they refer to.
    #[error(
        "{path} has {records} damaged records, so it is not known which objects are still needed: nothing is removed",
        path = .path.display()
    )]
    DamagedRoots {
        /// The list.
        path: PathBuf,
        /// The number of unreadable records.
        records: usize,
    },
    /// No snapshot has this id or tag.
    #[error("there is no snapshot {0}")]
    Unknown(String),
    /// Several snapshots match.
    #[error("{text} fits {} snapshots: {}", .fits.len(), .fits.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Ambiguous {
        /// The user's text.
        text: String,
        /// The snapshots that match.
        fits: Vec<SnapshotId>,
    },
    /// The volume has no snapshots.
    #[error("{} has no snapshots", .0.display())]
    None(PathBuf),
    /// A snapshot does not have this path.
    #[error("snapshot {id} has no {path}")]
    NoPath {
        /// The snapshot.
        id: SnapshotId,
        /// The path in it.
        path: String,
    },
    /// A path of a snapshot is of another kind than the command needs.
    #[error("{path} in snapshot {id} is {is}")]
    WrongKind {
        /// The snapshot.
        id: SnapshotId,
        /// The path in it.
        path: String,
        /// Its kind.
        is: &'static str,
    },
    /// A pinned snapshot was to be forgotten.
    #[error("snapshot {0} is pinned")]
    Pinned(SnapshotId),
    /// The policy has no rule.
    #[error(transparent)]
    EmptyPolicy(#[from] EmptyPolicy),
    /// The file system cannot clone.
    #[error("{} cannot clone files", .0.display())]
    CannotClone(PathBuf),
    /// A tag, note or name is too long or has forbidden characters.
    #[error("{0}")]
    Invalid(String),
    /// Objects that a restore needs are damaged.
    #[error(
        "snapshot {id} needs {} damaged or missing, the first for {path}: nothing was changed",
        plural(*.count, "object that is", "objects that are")
    )]
    NotWhole {
        /// The snapshot.
        id: SnapshotId,
        /// The number of objects.
        count: u64,
        /// A file that needs one of them.
        path: String,
    },
}

impl SnapshotError {
    /// Returns the next step for the user, if there is one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Version { .. } => "use the newer volferry that wrote it".into(),
            Self::Damaged { .. } | Self::Hash(_) | Self::NotWhole { .. } | Self::DamagedRoots { .. } => {
                "`volferry snapshot verify` names everything that is damaged, and repairs what it can".into()
            }
            Self::Unknown(_) => "`volferry snapshot list` shows all snapshots".into(),
            Self::Ambiguous { .. } => "give more digits of the id".into(),
            Self::None(_) => "`volferry snapshot create` makes one".into(),
            Self::NoPath { id, .. } => format!("`volferry snapshot ls DIR {id}` shows what it has"),
            Self::Pinned(id) => format!("`volferry snapshot unpin DIR {id}` first"),
            Self::EmptyPolicy(_) => {
                "give a rule such as `--keep-daily 7`, or `--forgotten` to collect only what was forgotten"
                    .into()
            }
            Self::CannotClone(_) => {
                "use `--engine copy`, or `--engine auto` to clone only where that is possible".into()
            }
            _ => return None,
        })
    }
}

/// Adds the operation and the path to an error of the system.
pub(super) fn io_error(
    operation: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(io::Error) -> SnapshotError {
    let path = path.into();
    move |source| SnapshotError::Io { operation, path, source }
}

/// Formats an error and its causes as one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let errors = std::iter::successors(Some(error), |error| error.source());
    errors.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
