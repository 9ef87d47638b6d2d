//! Why a destination cannot be written to.

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::{codec::DecodeError, sys::root::RootError};

/// Why a destination cannot be written to at all.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The root cannot be opened.
    #[error("cannot open the destination")]
    Open(#[from] RootError),
    /// The folder that Volferry keeps on a volume cannot be made or used.
    #[error("cannot use {path}/.volferry, where the run's files are staged")]
    Own {
        /// The destination.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The journal has an entry that cannot be finished.
    #[error(
        "the update of {file}, which was being written in place, could not be finished: the file may be partly old and partly new. If \
         nothing else helps, remove that file and {}, and run again: the file is then copied as a whole", entry.display()
    )]
    Journal {
        /// The file, if that is known.
        file: String,
        /// The entry.
        entry: PathBuf,
        /// The reason.
        source: JournalError,
    },
    /// Another run holds the destination.
    #[error("another run is writing to {path}: wait for it, or stop it")]
    Busy {
        /// The destination.
        path: PathBuf,
    },
    /// Another run holds the destination now, and this one stopped.
    #[error(
        "another run has taken {path} over, so this one stopped and changes nothing more: see that only one run at a time writes to \
         it; it was taken for dead, or the volume's file system does not keep locks between nodes"
    )]
    TakenOver {
        /// The destination.
        path: PathBuf,
    },
    /// An entry of the source has a name that is Volferry's own at the destination.
    #[error(
        "the source has an entry {name}, which is Volferry's own folder at {path}, where names that differ in case are the same: rename it, \
         or leave it out with --exclude"
    )]
    OwnName {
        /// The destination.
        path: PathBuf,
        /// The entry's name.
        name: String,
    },
    /// The backup folder, for entries that a run replaces or deletes, cannot be used.
    #[error("cannot use {path} as the backup folder")]
    Backup {
        /// The folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The run has to keep owners, and the process may not set them.
    #[error(
        "owners shall be kept or set, but this process may not change them: run it as root, or leave out --chown, or \
         `--ownership always`"
    )]
    Owners,
}

/// Why an entry of the journal cannot be used.
#[derive(Debug, Error)]
pub enum JournalError {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Its content does not match its hashes or its format.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

impl From<DecodeError> for JournalError {
    fn from(_: DecodeError) -> Self {
        Self::Damaged("its table cannot be read")
    }
}
