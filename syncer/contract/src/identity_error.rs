use std::{io, path::PathBuf};

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
    /// The system has no randomness.
    #[error("the system's random number generator failed")]
    Random,
}
