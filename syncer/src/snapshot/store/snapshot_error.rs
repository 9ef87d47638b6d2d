//! Errors of operations on snapshots.

use std::{
    io,
    path::{Path, PathBuf},
};

use contract::{ExitCode, Reason, human};
use thiserror::Error;

use super::{room_for_next_list::is_full, snapshot_id::SnapshotId};
use crate::{codec::DecodeError, destination::ApplyError, root::RootError};

/// The number of free inodes from which on a full file system is taken to lack room for bytes, and not for files.
const FEW_INODES: u64 = 32;

/// The reason why an operation on a volume's snapshots failed.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// A store elsewhere cannot be used.
    #[error("{message}")]
    Offsite {
        /// The word for programs.
        reason: Reason,
        /// The exit code of a run that it ends.
        exit: ExitCode,
        /// What happened, with its causes and the next step.
        message: String,
    },
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
    /// The store has objects or a log, and no list.
    #[error(
        "{path} is missing or damaged, with its copy, and the folder has snapshots: nothing is changed",
        path = .0.display()
    )]
    NoList(PathBuf),
    /// The list is lost, and its copy may be older.
    #[error("{path} is missing or damaged: its copy is read, and nothing is changed", path = .0.display())]
    OnlyCopy(PathBuf),
    /// No snapshot has this id or tag.
    #[error("there is no snapshot {0}")]
    Unknown(String),
    /// No forgotten snapshot has this id.
    #[error("there is no forgotten snapshot {0}")]
    NotForgotten(String),
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
    /// No snapshot has this path.
    #[error("no snapshot has {0}")]
    NoHistory(String),
    /// A path of a snapshot is of another kind than the command needs.
    #[error("{path} in snapshot {id} is no file, but a {is}")]
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
    /// A forgotten snapshot was to be pinned: the next prune would remove it all the same.
    #[error("snapshot {0} is forgotten")]
    PinForgotten(SnapshotId),
    /// The policy has no rule.
    #[error("the policy has no rule, and would keep nothing")]
    EmptyPolicy,
    /// The first snapshot would copy more than fits.
    #[error(
        "{path} cannot clone files, so its first snapshot copies {bytes}, and {free} are free: no snapshot was taken",
        path = .path.display(), bytes = human::bytes(*.bytes), free = human::bytes(*.free)
    )]
    NoRoomForFirst {
        /// The volume.
        path: PathBuf,
        /// The bytes of all files.
        bytes: u64,
        /// The free bytes.
        free: u64,
    },
    /// What is copied does not fit.
    #[error(
        "{bytes} are to be copied to {path}, and {free} are free: nothing was copied",
        path = .path.display(), bytes = human::bytes(*.bytes), free = human::bytes(*.free)
    )]
    NoRoomForCopy {
        /// The volume.
        path: PathBuf,
        /// The bytes that are missing there.
        bytes: u64,
        /// The free bytes.
        free: u64,
    },
    /// The store that snapshots are copied from is damaged, or answers with something else than was asked.
    #[error("the store that is copied from cannot be used: {0}")]
    Elsewhere(String),
    /// A restore would do something else than what was shown.
    #[error(
        "the restore would do something else than the plan that was shown, its plan is {0}: nothing was changed"
    )]
    OtherPlan(String),
    /// Content that is read elsewhere cannot be kept until it is checked.
    #[error("cannot keep a file in {path} until it is checked", path = .path.display())]
    NoTemporary {
        /// The folder of temporary files.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// An archive cannot be written to its end.
    #[error("cannot write the archive to {path}", path = .path.display())]
    ArchiveNotWritten {
        /// Where it goes.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A snapshot cannot be written as an archive.
    #[error("the snapshot cannot be written as an archive: {0}")]
    NoArchive(String),
    /// An archive cannot be imported.
    #[error("the archive cannot be imported, and nothing was changed: {0}")]
    Archive(String),
    /// The files of an archive are longer than is allowed.
    #[error(
        "the archive cannot be imported, and nothing was changed: its files up to {path} are longer than {max} together",
        max = human::bytes(*.max)
    )]
    ArchiveTooLong {
        /// The file with which they are longer.
        path: String,
        /// The bytes that are allowed.
        max: u64,
    },
    /// The log does not say any more which snapshots were forgotten or collected.
    #[error(
        "the log of the volume is damaged from line {0} on, so it is not known which snapshots were removed there: nothing was copied"
    )]
    DamagedLog(u64),
    /// The other end of a copy was lost.
    #[error("the other end was lost")]
    Link(#[source] io::Error),
    /// The file system cannot clone.
    #[error("{} cannot clone files", .0.display())]
    CannotClone(PathBuf),
    /// A tag, note or name is too long or has forbidden characters.
    #[error("{0}")]
    Invalid(String),
    /// Objects that a restore needs are damaged.
    #[error(
        "snapshot {id} needs {} damaged or missing, the first for {path}: nothing was changed",
        human::plural(*.count, "object that is", "objects that are")
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
    /// Returns the error of a peer that sends what no store sends.
    pub(crate) fn malformed() -> Self {
        Self::Link(io::Error::new(io::ErrorKind::InvalidData, "it does not speak as a store does"))
    }

    /// Returns whether there is no such snapshot, so that another try finds none either.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(
            self,
            Self::Unknown(_)
                | Self::Ambiguous { .. }
                | Self::None(_)
                | Self::NoPath { .. }
                | Self::Invalid(_)
        )
    }

    /// Returns whether the command itself is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::EmptyPolicy | Self::Invalid(_))
    }

    /// Returns whether another run or command holds the volume.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Apply(ApplyError::Busy { .. }))
    }

    /// Returns whether the other end of a copy was lost.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Link(_))
    }

    /// Returns whether the error is of an object of the store that is copied from: other snapshots may be whole.
    pub fn is_of_an_object(&self) -> bool {
        matches!(
            self,
            Self::Damaged { .. }
                | Self::Hash(_)
                | Self::Version { .. }
                | Self::Elsewhere(_)
                | Self::Invalid(_)
        ) || matches!(self, Self::Io { operation: "read" | "open", .. })
    }

    /// Returns whether the file system, or the user's quota, is full.
    pub(crate) fn is_no_room(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }

    /// Returns whether the store is damaged as a whole, which needs a repair.
    pub fn needs_repair(&self) -> bool {
        matches!(self, Self::NoList(_) | Self::OnlyCopy(_) | Self::DamagedLog(_))
    }

    /// Returns the next step for the user, if there is one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Io { source, path, .. } if is_full(source) && lacks_inodes(path) => {
                "the file system has room for no more files: remove some, or make it with more inodes".into()
            }
            Self::Io { source, .. } if is_full(source) => {
                "`volferry snapshot prune` needs no room, and gives back that of the snapshots that it drops"
                    .into()
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotADirectory => {
                "another user who could write to the volume may have put it there: put the folder back in its place"
                    .into()
            }
            Self::ArchiveNotWritten { source, .. } if is_full(source) => "make room there".into(),
            Self::NoTemporary { .. } => "set TMPDIR to a folder with room for the longest file".into(),
            Self::Version { .. } => "use the newer volferry that wrote it".into(),
            Self::NoList(_) | Self::OnlyCopy(_) | Self::DamagedLog(_) => {
                "`volferry snapshot repair DIR` shows what it would bring back and what it would forget"
                    .into()
            }
            Self::Damaged { .. } | Self::Hash(_) | Self::NotWhole { .. } => {
                "`volferry snapshot verify` names everything that is damaged, and repairs what it can".into()
            }
            Self::NoHistory(_) => "`volferry snapshot ls DIR ID` shows what a snapshot has".into(),
            Self::Unknown(_) => "`volferry snapshot list` shows all snapshots".into(),
            Self::NotForgotten(_) => {
                "`volferry snapshot list --all` shows those that were forgotten, until the next prune".into()
            }
            Self::Ambiguous { .. } => "give more digits of the id".into(),
            Self::None(_) => "`volferry snapshot create` makes one".into(),
            Self::NoPath { id, .. } => format!("`volferry snapshot ls DIR {id}` shows what it has"),
            Self::Pinned(id) => format!("`volferry snapshot unpin DIR {id}` first"),
            Self::PinForgotten(id) => format!("`volferry snapshot forget --undo DIR {id}` brings it back first"),
            Self::EmptyPolicy => {
                "give a rule such as `--keep-daily 7`, or `--forgotten` to collect only what was forgotten"
                    .into()
            }
            Self::NoRoomForFirst { .. } => {
                "make room, or see with `--engine copy` whether it fits all the same: equal files are stored once".into()
            }
            Self::Archive(_) => {
                "`tar -tvf` lists an archive; `volferry snapshot create` takes a snapshot of what `tar -xf` makes of it"
                    .into()
            }
            Self::ArchiveTooLong { .. } => "`--max-bytes` allows longer ones".into(),
            Self::OtherPlan(_) => "`-n` shows what it would do now".into(),
            Self::NoRoomForCopy { .. } => {
                "make room there, or name fewer snapshots: what an old one needs may not be needed by newer ones"
                    .into()
            }
            Self::CannotClone(_) => {
                "use `--engine copy`, or `--engine auto` to clone only where that is possible".into()
            }
            _ => return None,
        })
    }
}

/// Returns whether the file system of a path, which may be gone by now, has hardly any inodes left.
fn lacks_inodes(path: &Path) -> bool {
    let stat = path.ancestors().find_map(|path| rustix::fs::statvfs(path).ok());
    stat.is_some_and(|stat| stat.f_files > 0 && stat.f_favail < FEW_INODES)
}

/// Adds the operation and the path to an error of the system.
pub(crate) fn io_error(
    operation: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(io::Error) -> SnapshotError {
    let path = path.into();
    move |source| SnapshotError::Io { operation, path, source }
}
