use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// Why an identity cannot be made, stored or used.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// The file cannot be read or written.
    #[error("identity file {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// This process may not read the file.
    #[error(
        "this user may not read the identity file {path}\nhint: give it to the user that runs volferry, with mode 600"
    )]
    NotPermitted {
        /// The file.
        path: PathBuf,
    },
    /// Users other than its owner may read the file.
    #[error("identity file {path} can be read by others (mode {mode:o}): run `chmod 600 {path}`")]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The text is not an identity.
    #[error("not an identity file as `volferry keygen` writes it: {0}")]
    Malformed(&'static str),
    /// The file is none.
    #[error("{path} is not an identity file as `volferry keygen` writes it: {why}")]
    MalformedFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: &'static str,
    },
    /// The system has no randomness.
    #[error("the system's random number generator failed")]
    Random,
}

impl IdentityError {
    /// Names the file of a text that is not an identity.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        match self {
            Self::Malformed(why) => Self::MalformedFile { path: path.into(), why },
            error => error,
        }
    }
}
