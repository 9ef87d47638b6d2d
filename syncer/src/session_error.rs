use std::{io, path::PathBuf};

use contract::{ExitCode, Reason, chain};
use thiserror::Error;

use crate::{
    destination::ApplyError,
    filter::{FilterError, PatternError},
    measure::monitor::Monitor,
    path::PathError,
    snapshot::SnapshotError,
    sys::{block_device::DeviceError, root::RootError},
    transport::TransportError,
    wire::Refusal,
};

/// Why a run failed.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The destination cannot be written to.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// A snapshot cannot be read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A run of several shards was to take a snapshot.
    #[error(
        "a run of several shards cannot take a snapshot: leave out --snapshot at this end, or --shard at the other"
    )]
    ShardedSnapshot,
    /// A run of several shards was to keep old versions.
    #[error(
        "a run of several shards cannot keep old versions: leave out --backup-dir at this end, or --shard at the other"
    )]
    ShardedBackup,
    /// A folder cannot be used for old versions.
    #[error("--backup-dir {path} cannot be used: {why}")]
    BackupPlace {
        /// The folder, as it was typed.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A peer asked a service for a folder that it may not use in this way, or that is not there.
    #[error(
        "{peer} may not {access} a folder `{folder}` here: its owner decides that, by the service's configuration or its file of keys"
    )]
    NotAllowed {
        /// The peer's name.
        peer: String,
        /// `read` or `write to`.
        access: &'static str,
        /// The folder's name.
        folder: String,
    },
    /// A demand of a folder's owner would not hold for what a peer asks.
    #[error(
        "{what} of this folder cannot be used: its owner's `{demand}` would not hold there\nhint: use the folder itself"
    )]
    NotHeld {
        /// What the peer asks for.
        what: &'static str,
        /// The demand, as the service's configuration spells it.
        demand: &'static str,
    },
    /// The owner of the destination takes no snapshots of others.
    #[error(
        "the destination takes no snapshots from others: its owner allows that with `--history all`, or with `history = \"all\"` in the \
         configuration of a service"
    )]
    HistoryNotTaken,
    /// Too many peers wait for a folder.
    #[error("{0} peers wait for this folder already, and no more may: try again later")]
    QueueFull(usize),
    /// A pattern cannot be read.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A path of a list cannot be a path of a tree.
    #[error("a path of --files-from cannot be used")]
    FilesFrom(#[from] PathError),
    /// The link to the peer failed, or the peer refused the run.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The source's root cannot be opened.
    #[error("cannot read the source")]
    Source(#[source] RootError),
    /// The source is the destination of another run.
    #[error(
        "another run writes to the source {path} now, and half of its changes would be copied: run again when it is over"
    )]
    SourceBusy {
        /// The source's root.
        path: PathBuf,
    },
    /// The source is a destination, and a run into it was cut off in the middle of a file.
    #[error(
        "a run that writes in place into the source {path} was cut off in the middle of a file: run it again first"
    )]
    SourceHalfWritten {
        /// The source's root.
        path: PathBuf,
    },
    /// The folder of a single file cannot be opened at the destination.
    #[error("cannot use the destination")]
    Folder(#[source] RootError),
    /// The source's device, or its image, cannot be read.
    #[error("cannot read the source")]
    SourceDevice(#[source] DeviceError),
    /// The destination's device, or its image, cannot be written to.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// One end has a tree, and the other a device.
    #[error("{0}")]
    Kinds(String),
    /// A flag for files and folders was given for a device.
    #[error(
        "{flag} is for files and folders, and cannot be used with a block device or an image: leave it out"
    )]
    NotForDevices {
        /// The flag, as it is typed.
        flag: &'static str,
    },
    /// A flag that chooses among the entries of a folder was given for a single file.
    #[error("{flag} is for folders, and the source is a single file: leave it out")]
    NotForFiles {
        /// The flag, as it is typed.
        flag: &'static str,
    },
    /// The single file of a run cannot be read.
    #[error("cannot read the source {path}: {why}")]
    SourceFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A tree cannot be read at all.
    #[error("cannot read the tree at {path}")]
    Scan {
        /// Its root.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A guard refused the run.
    #[error("{message}")]
    Guard {
        /// A word for programs, in CamelCase.
        reason: Reason,
        /// The problem and the next step.
        message: String,
    },
    /// Source and destination are the same tree, or one contains the other.
    #[error("{0}")]
    SameTree(String),
    /// Another shard of the run has ended too early, or never joined.
    #[error("{0}")]
    Shard(String),
    /// The board of the run's shards cannot be read or written.
    #[error(
        "cannot use .volferry/shards on the destination, by which the shards of a run know of each other"
    )]
    ShardBoard(#[source] io::Error),
    /// The destination could not be made durable.
    #[error("the destination could not be made durable; run again when the volume is well")]
    Commit(#[source] io::Error),
}

/// What a run says that the other end stopped.
const STOPPED: &str = "the other end was stopped on request";

/// Checks whether the run was told to stop.
///
/// # Errors
/// [`TransportError::Canceled`] if it was.
pub(crate) fn go_on(monitor: &Monitor) -> Result<(), SessionError> {
    Ok(monitor.check().map_err(|_| TransportError::Canceled)?)
}

/// Returns the error of the link in the place of the store's that follows from it.
pub(crate) fn of_link(error: SessionError) -> SessionError {
    match error {
        SessionError::Snapshot(SnapshotError::Link(error)) => match error.downcast::<TransportError>() {
            Ok(error) => error.into(),
            Err(_) => TransportError::Nonsense("the peer does not speak as a store of snapshots does").into(),
        },
        error => error,
    }
}

impl SessionError {
    /// Returns the exit code of a process that fails with this error.
    pub fn exit(&self) -> ExitCode {
        self.refusal().exit
    }

    /// Returns the failure in the form for the peer, the report and the exit code.
    pub(crate) fn refusal(&self) -> Refusal {
        let reason = match self {
            Self::Apply(ApplyError::Busy { .. }) => Reason::DestinationBusy,
            Self::Apply(ApplyError::TakenOver { .. }) => Reason::DestinationTakenOver,
            Self::Apply(ApplyError::Open(RootError::Missing(_))) | Self::Folder(RootError::Missing(_)) => {
                Reason::DestinationMissing
            }
            Self::Apply(ApplyError::Owners) => Reason::OwnershipNotPermitted,
            Self::Apply(ApplyError::Journal { .. }) => Reason::JournalUnusable,
            Self::Apply(ApplyError::Backup { .. }) => Reason::BackupDirUnusable,
            Self::Apply(_) => Reason::DestinationUnusable,
            Self::Snapshot(error) if error.is_missing() => Reason::SnapshotNotFound,
            Self::Snapshot(SnapshotError::Offsite { reason, .. }) => reason.clone(),
            Self::Snapshot(_) => Reason::SnapshotUnusable,
            Self::NotAllowed { .. } | Self::NotHeld { .. } | Self::HistoryNotTaken => Reason::NotAllowed,
            Self::QueueFull(_) => Reason::QueueFull,
            Self::ShardedSnapshot => Reason::ShardedSnapshot,
            Self::ShardedBackup => Reason::ShardedBackup,
            Self::BackupPlace { .. } => Reason::BackupDirUnusable,
            Self::Filter(FilterError::Pattern(PatternError::Rule(_))) => Reason::RsyncPattern,
            Self::Filter(FilterError::NoWay(_)) => Reason::NothingIncluded,
            Self::Filter(_) => Reason::InvalidPattern,
            Self::FilesFrom(_) => Reason::InvalidPath,
            Self::Source(_) | Self::Scan { .. } => Reason::TreeUnreadable,
            Self::SourceBusy { .. } => Reason::SourceBusy,
            Self::SourceHalfWritten { .. } => Reason::SourceHalfWritten,
            Self::Folder(_) | Self::ShardBoard(_) => Reason::DestinationUnusable,
            Self::SourceDevice(_) => Reason::DeviceUnreadable,
            Self::Device(error) => reason_of_device(error),
            Self::Kinds(_) => Reason::KindMismatch,
            Self::NotForFiles { .. } => Reason::NotForFiles,
            Self::SourceFile { .. } => Reason::TreeUnreadable,
            Self::NotForDevices { .. } => Reason::NotForDevices,
            Self::Guard { reason, .. } => reason.clone(),
            Self::Shard(_) => Reason::ShardLost,
            Self::SameTree(_) => Reason::SameTree,
            Self::Commit(_) => Reason::CommitFailed,
            // Here nobody asked for it.
            Self::Transport(TransportError::Refused(refusal)) if refusal.reason == Reason::Canceled => {
                return Refusal { message: STOPPED.into(), ..(**refusal).clone() };
            }
            Self::Transport(TransportError::Refused(refusal)) => return (**refusal).clone(),
            Self::Transport(TransportError::Canceled) => return Refusal::canceled(),
            Self::Transport(error) => reason_of_transport(error),
        };
        let exit = match self {
            Self::BackupPlace { .. } => ExitCode::Usage,
            Self::Snapshot(SnapshotError::Offsite { exit, .. }) => *exit,
            _ => reason.exit(),
        };
        let message = self.message();
        Refusal { exit, reason, message }
    }

    /// Returns the message, with a hint where that of the reason does not say where to look.
    fn message(&self) -> String {
        match self {
            Self::Snapshot(
                error @ (SnapshotError::NoPath { .. }
                | SnapshotError::Ambiguous { .. }
                | SnapshotError::OtherPlan(_)),
            ) => format!("{error}{}", error.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default()),
            _ => chain(self),
        }
    }

    /// Returns whether the peer said what is wrong, at its end.
    pub(crate) fn is_of_peer(&self) -> bool {
        matches!(self, Self::Transport(TransportError::Refused(_)))
    }

    pub(crate) fn is_canceled(&self) -> bool {
        match self {
            Self::Transport(TransportError::Canceled) => true,
            Self::Transport(TransportError::Refused(refusal)) => refusal.reason == Reason::Canceled,
            _ => false,
        }
    }

    /// Returns the error, or `Canceled` if this end was told to stop and therefore lost the connection. A thread may
    /// find the connection closed before the stop is recorded as the reason.
    pub(crate) fn or_stopped(self, monitor: &Monitor) -> Self {
        match self {
            Self::Transport(TransportError::Lost(_)) if monitor.cancelled() => {
                TransportError::Canceled.into()
            }
            error => error,
        }
    }

    /// Returns the error, or the cause that the peer named, if the connection was lost.
    pub(crate) fn or_cause(self, cause: Option<TransportError>) -> Self {
        match (self, cause) {
            (Self::Transport(TransportError::Lost(_)), Some(cause)) => Self::Transport(cause),
            (error, _) => error,
        }
    }
}

/// Returns the reason of a failure at a device that is written.
fn reason_of_device(error: &DeviceError) -> Reason {
    match error {
        DeviceError::Busy { .. } | DeviceError::InUse { .. } => Reason::DestinationBusy,
        DeviceError::TooSmall { .. } => Reason::DestinationTooSmall,
        _ => Reason::DestinationUnusable,
    }
}

/// Returns the reason of a failure of the transport that is neither the peer's word nor a stop.
fn reason_of_transport(error: &TransportError) -> Reason {
    match error {
        TransportError::Identity(_) => Reason::IdentityUnusable,
        TransportError::OtherKey(_) => Reason::IdentityRefused,
        TransportError::NotAccepted(_) => Reason::KeyNotAccepted,
        TransportError::OtherJob => Reason::OtherJob,
        TransportError::OtherProtocol => Reason::OtherProtocol,
        TransportError::Address { .. } => Reason::AddressUnusable,
        TransportError::Lost(_)
        | TransportError::NoAnswer(_)
        | TransportError::NoContact(_)
        | TransportError::NameUnknown { .. } => Reason::PeerLost,
        _ => Reason::ProtocolViolation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_the_other_one_stopped_says_so() {
        let refused = |refusal| SessionError::from(TransportError::Refused(Box::new(refusal))).refusal();
        let Refusal { exit, reason, message } = refused(Refusal::canceled());
        assert_eq!((exit, reason, &*message), (ExitCode::Failed, Reason::Canceled, STOPPED));
        let other = Refusal { reason: Reason::DestinationBusy, ..Refusal::canceled() };
        assert_eq!(refused(other.clone()), other);
    }

    #[test]
    fn an_end_that_was_told_to_stop_does_not_take_its_own_end_for_the_loss_of_the_peer() {
        let lost = || SessionError::from(TransportError::Lost("the peer closed it".into()));
        let monitor = Monitor::default();
        assert!(!lost().or_stopped(&monitor).is_canceled());
        monitor.cancel();
        assert!(lost().or_stopped(&monitor).is_canceled());
        let other = SessionError::Commit(io::ErrorKind::StorageFull.into());
        assert!(!other.or_stopped(&monitor).is_canceled());
    }
}
