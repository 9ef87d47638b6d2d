//! Why a bench failed.

use std::{io, path::PathBuf, time::SystemTime};

use contract::{ExitCode, Reason, Report, RunResult};
use thiserror::Error;

use crate::run::LinkError;

#[derive(Debug, Error)]
pub(super) enum BenchError {
    #[error("cannot use {path}", path = .path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("{path} is not a folder\nhint: name a folder of the volume", path = .0.display())]
    NoFolder(PathBuf),
    #[error(
        "cannot read {path}\nhint: --tree takes small, large, mixed, or a file that describes a tree",
        path = .path.display()
    )]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} does not describe a tree: {message}", path = .path.display())]
    Parse { path: PathBuf, message: String },
    #[error("{path} describes no possible tree: {fault}", path = .path.display())]
    Impossible { path: PathBuf, fault: String },
    #[error(
        "the bench takes {needed}, and {path} has room for {free}\nhint: make room, or choose a smaller --tree",
        path = .path.display()
    )]
    NoRoom { path: PathBuf, needed: String, free: String },
    #[error("cannot make {path}", path = .path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error("cannot remove {path}\nhint: the next bench removes it, or remove it by hand", path = .path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error(
        "{path} has the name of a folder of a bench, and no mark that a bench made it\nhint: look at what is in it, and rename or remove \
         it by hand",
        path = .0.display()
    )]
    NotMade(PathBuf),
    #[error("the bench was stopped")]
    Stopped,
    #[error("{}: {}", .report.run, .report.message)]
    Run { exit: ExitCode, report: Box<Report> },
    #[error("a bench needs the folders of both volumes, or of one and a link to the other")]
    NoFolders,
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("cannot write {path}", path = .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot print the result")]
    Output(#[from] io::Error),
}

impl BenchError {
    pub(super) fn exit(&self) -> ExitCode {
        match self {
            Self::Run { exit, .. } => *exit,
            Self::Link(error) => error.exit(),
            _ => ExitCode::Failed,
        }
    }

    /// Returns the report of a bench that began at that time and failed, as one run of this name.
    pub(super) fn report(&self, run: &str, start_time: String, message: String) -> Report {
        let (result, reason) = match self {
            Self::Stopped => (RunResult::Canceled, Reason::Canceled),
            Self::NoRoom { .. } => (RunResult::Failed, Reason::NoRoom),
            Self::Run { report, .. } => (report.result, report.reason.clone().unwrap_or(Reason::BenchFailed)),
            Self::Link(error) => (RunResult::Failed, error.reason()),
            _ => (RunResult::Failed, Reason::BenchFailed),
        };
        Report {
            run: run.into(),
            result,
            reason: Some(reason),
            message,
            start_time,
            completion_time: contract::timestamp(SystemTime::now()),
            ..Report::default()
        }
    }
}
