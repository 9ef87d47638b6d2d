//! The end of `volferry snapshot copy` that another machine started by ssh: it answers from a store of this machine, or
//! copies into one. What crosses is described in `syncer/doc/snapshots.md`.

use std::{fs::File, path::PathBuf};

use contract::{ExitCode, chain};

use super::history_request::{OFFER, TAKE, read_take_args};
use crate::snapshot::history_ends::{into, offering};
use syncer::{
    monitor::Monitor,
    snapshot::{
        SnapshotError,
        copy::{StreamedHistory, refuse_history, serve_history},
    },
};

/// What the other end asks for, and the stream to it.
pub(super) struct FarHistory {
    pub args: Vec<String>,
    pub path: PathBuf,
    pub from: File,
    pub to: File,
}

/// Does what the other end asks for. It tells of what goes wrong here.
pub(super) fn run(history: FarHistory) -> ExitCode {
    let FarHistory { args, path, from, to } = history;
    let done = match args.split_first() {
        Some((word, [])) if word == OFFER => offer(&path, from, to),
        Some((word, rest)) if word == TAKE => take(&path, rest, from, to),
        _ => Err(SnapshotError::Invalid("the other end asks for what this program does not know".into())),
    };
    match done {
        Ok(()) => ExitCode::Done,
        Err(error) => {
            eprintln!("volferry remote: {}", chain(&error));
            if error.is_lost() { ExitCode::PeerLost } else { ExitCode::Failed }
        }
    }
}

fn offer(path: &std::path::Path, from: File, to: File) -> Result<(), SnapshotError> {
    let mut stream = Some((from, to));
    let offered = offering(path, |history| match stream.take() {
        Some((from, to)) => serve_history(history, from, to).map(drop),
        None => Ok(()),
    });
    match (offered, stream) {
        (Err(error), Some((from, to))) => refuse_history(&error, from, to),
        (offered, _) => offered,
    }
}

fn take(path: &std::path::Path, args: &[String], from: File, to: File) -> Result<(), SnapshotError> {
    let mut source = StreamedHistory::new(from, to);
    let asked = read_take_args(args);
    let asked = asked.ok_or_else(|| SnapshotError::Invalid("the other end names no snapshots".into()));
    let done = asked.and_then(|it| into(path, &mut source, &it.selection, it.wait, &Monitor::default()));
    source.finish(&done)
}
