//! `volferry keygen`.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use contract::{ExitCode, IdentityError, IdentityPair, chain};
use thiserror::Error;

use crate::refuse_own_folder;

#[derive(Debug, Error)]
enum KeygenError {
    #[error(
        "{path} is there already, and a key is never overwritten: choose another --out, or remove the old keys",
        path = .0.display()
    )]
    Exists(PathBuf),
    #[error("{path} is no folder, and two files go into one: choose another --out", path = .0.display())]
    NoFolder(PathBuf),
    #[error("cannot make keys there")]
    Place(#[from] io::Error),
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// Makes a pair of identities in `out`, and prints the purpose of each file.
pub(super) fn run(out: &Path) -> ExitCode {
    match generate(out) {
        Ok(()) => {
            let _ = writeln!(
                io::stdout(),
                "{}: for `volferry send`\n{}: for `volferry receive`",
                out.join("source").display(),
                out.join("sink").display()
            );
            ExitCode::Done
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}", chain(&error));
            ExitCode::Failed
        }
    }
}

/// Writes a pair of identities to `out`, unless a file of it exists: a new half must never join an old one.
fn generate(out: &Path) -> Result<(), KeygenError> {
    refuse_own_folder::check(out)?;
    if out.exists() && !out.is_dir() {
        return Err(KeygenError::NoFolder(out.into()));
    }
    let taken = ["source", "sink"]
        .map(|name| out.join(name))
        .into_iter()
        .find(|path| path.symlink_metadata().is_ok());
    match taken {
        Some(path) => Err(KeygenError::Exists(path)),
        None => Ok(IdentityPair::generate_for_new_job()?.write(out)?),
    }
}
