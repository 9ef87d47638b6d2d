//! Tells from the end of ssh why the far end did not answer: its key, ssh itself, no program there, or another version.

use std::{io, time::Duration};

use contract::{ExitCode, Reason};
use syncer::session::SessionError;
use thiserror::Error;

use super::{
    bootstrap::CopyError,
    greeting::GreetingError,
    ssh::{Ssh, SshEnd},
};

/// The status of ssh for an error of its own, and those of a shell that cannot run a program.
const OF_SSH: i32 = 255;
const NOT_RUN: [i32; 2] = [126, 127];

/// Why this end did not meet the far end.
#[derive(Debug, Error)]
pub(crate) enum RemoteError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("cannot start `{program}`")]
    Start { program: String, source: io::Error },
    #[error("ssh refuses the key of {host}: {why}")]
    HostKey { host: String, why: &'static str },
    #[error("ssh to {host} failed: {last}")]
    Ssh { host: String, last: String },
    #[error("{program} did not get through to {host}: {last}")]
    Shell { program: String, host: String, last: String },
    #[error("{host} did not answer over ssh within {} s", .timeout.as_secs())]
    NoAnswer { host: String, timeout: Duration },
    #[error("{host} has no program `{program}`")]
    NoProgram { host: String, program: String },
    #[error("the program `{program}` at {host} is of another version: {why}")]
    OtherVersion { host: String, program: String, why: String },
    #[error("this program cannot be copied to {host}")]
    Copy { host: String, source: CopyError },
    #[error("{host} ended before it answered ({status}): {last}")]
    Ended { host: String, status: String, last: String, told: Option<ExitCode> },
    #[error("{host} did not answer as volferry does")]
    Greeting { host: String, source: GreetingError },
}

impl RemoteError {
    /// Returns the reason for the report and the exit code.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Session(_) => Reason::PeerLost,
            Self::Start { .. } => Reason::RemoteShellMissing,
            Self::HostKey { .. } => Reason::HostKeyRefused,
            Self::Ssh { .. } | Self::NoAnswer { .. } => Reason::SshFailed,
            Self::Shell { .. } => Reason::RemoteShellFailed,
            Self::NoProgram { .. } => Reason::NoRemoteProgram,
            Self::OtherVersion { .. } => Reason::OtherProtocol,
            Self::Copy { source: CopyError::Unusable, .. } => Reason::RemoteCopyUnusable,
            Self::Copy { .. } => Reason::RemoteCopyFailed,
            Self::Ended { .. } | Self::Greeting { .. } => Reason::RemoteEnded,
        }
    }
}

/// Finds out from the end of ssh why the far end did not answer.
pub(crate) fn explain(
    host: String,
    program: String,
    answer_timeout: Option<Duration>,
    error: CopyError,
    ssh: Ssh,
) -> RemoteError {
    if let (true, Some(timeout)) = (ssh.is_late(), answer_timeout) {
        let _ = ssh.end();
        return RemoteError::NoAnswer { host, timeout };
    }
    let source = match error {
        CopyError::Greeting(GreetingError::OtherProtocol { theirs }) => {
            let why = format!("it speaks {theirs}");
            return RemoteError::OtherVersion { host, program, why };
        }
        CopyError::Greeting(source) => source,
        source => return RemoteError::Copy { host, source },
    };
    if !matches!(source, GreetingError::Read(_)) {
        return RemoteError::Greeting { host, source };
    }
    let other_program = ssh.other_program().map(String::from);
    let SshEnd { status, errors } = ssh.end();
    let has = |text: &str| errors.iter().any(|line| line.contains(text));
    // What volferry says itself there, or else the last line.
    let said = errors
        .iter()
        .find_map(|line| line.strip_prefix("error: ").or_else(|| Some(line.split_once(": error: ")?.1)));
    let last = errors.iter().rev().map(|line| line.trim()).find(|line| !line.is_empty());
    let last = said.or(last).unwrap_or("it gave no reason").to_owned();
    let code = status.and_then(|status| status.code());
    let told = said.and(code).and_then(ExitCode::from_status);
    match code {
        Some(OF_SSH) if has("HOST IDENTIFICATION HAS CHANGED") => {
            RemoteError::HostKey { host, why: "it is another one than the last time" }
        }
        Some(OF_SSH) if has("Host key verification failed") => {
            RemoteError::HostKey { host, why: "it is not known here" }
        }
        Some(OF_SSH) => match other_program {
            Some(program) => RemoteError::Shell { program, host, last },
            None => RemoteError::Ssh { host, last },
        },
        Some(code) if NOT_RUN.contains(&code) || has("ommand not found") => {
            RemoteError::NoProgram { host, program }
        }
        Some(2) if has("unrecognized subcommand") => {
            let why = "it does not know this command".into();
            RemoteError::OtherVersion { host, program, why }
        }
        _ => {
            let closed = || "it closed its output, and goes on".into();
            let status = status.map_or_else(closed, |status| status.to_string());
            RemoteError::Ended { host, status, last, told }
        }
    }
}
