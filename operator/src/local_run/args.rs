//! The command line of `volferry-operator run`, and its errors.

use std::{io, path::PathBuf};

use clap::Args;
use contract::{ExitCode, IdentityError};
use thiserror::Error;

use super::manifest::ManifestError;
use crate::engine::process::ProcessError;

/// How `run` is called.
#[derive(Debug, Clone, Args)]
pub struct LocalArgs {
    /// The manifest, of one or more documents; `-` is standard input. Documents of other kinds are passed
    /// over.
    pub file: PathBuf,
    /// The folder, or the block device, that stands for a claim; once for each claim.
    #[arg(long = "volume", value_name = "CLAIM=DIR", value_parser = parse_volume)]
    pub volumes: Vec<(String, String)>,
    /// List what would be done on standard output, one action a line, and change nothing; `--dry-run=json` says it in
    /// lines of JSON. No status is printed.
    #[arg(long, value_name = "FORM", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub dry_run: Option<LineForm>,
    /// The program that syncs. Absent: `volferry` beside this one.
    #[arg(long)]
    pub volferry: Option<PathBuf>,
}

/// The form of lines on standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LineForm {
    /// For people.
    Text,
    /// A JSON object each.
    Json,
}

/// The reasons why a manifest was not run.
#[derive(Debug, Error)]
pub enum LocalError {
    /// The manifest is unreadable or invalid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// No folder is given for a claim.
    #[error("no folder stands for the claim {0}: add --volume {0}=DIR")]
    NoVolume(String),
    /// A folder is given for a claim that no job of the manifest has.
    #[error("no job of the manifest has the claim {0}, for which --volume names a folder")]
    NoClaim(String),
    /// A job has an end that is not of this machine.
    #[error("job {0}: its endpoint is reached by `volferry sync SRC HOST::FOLDER`, and not from a manifest")]
    Endpoint(String),
    /// A run would copy a folder into itself.
    #[error(
        "job {job}: the folders {source_dir} and {destination_dir} contain one another: name two that do not, with --volume"
    )]
    SameFolder {
        /// The job's name.
        job: String,
        /// The source folder.
        source_dir: PathBuf,
        /// The destination folder.
        destination_dir: PathBuf,
    },
    /// The program `volferry` was not found.
    #[error("cannot find the program volferry: say where it is with --volferry PATH")]
    NoProgram(#[source] io::Error),
    /// No directory can be created for the run's keys.
    #[error("cannot make a folder for the run's keys and reports")]
    Scratch(#[source] io::Error),
    /// The keys cannot be created.
    #[error(transparent)]
    Keys(#[from] IdentityError),
    /// A process cannot be run.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Signal handlers cannot be installed.
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
    /// The status cannot be written.
    #[error("cannot write the status")]
    Output(#[source] io::Error),
}

impl LocalError {
    pub(super) fn exit(&self) -> ExitCode {
        match self {
            Self::Manifest(_)
            | Self::NoVolume(_)
            | Self::NoClaim(_)
            | Self::Endpoint(_)
            | Self::NoProgram(_)
            | Self::SameFolder { .. } => ExitCode::Usage,
            _ => ExitCode::Failed,
        }
    }
}

fn parse_volume(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((claim, dir)) if !claim.is_empty() && !dir.is_empty() => Ok((claim.into(), dir.into())),
        _ => Err("expected CLAIM=DIR".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_a_claim_and_a_folder() {
        assert_eq!(parse_volume("web=/srv/a=b"), Ok(("web".into(), "/srv/a=b".into())));
        for wrong in ["web", "=/srv", "web=", ""] {
            assert!(parse_volume(wrong).is_err(), "{wrong}");
        }
    }
}
