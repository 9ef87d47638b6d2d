//! `kubectl volferry`: a plugin of kubectl that shows SyncJobs and their runs, and asks for, suspends and resumes runs.
//!
//! `args` defines the commands, and `commands` has the short ones. `cluster` talks to the API server, `lines`,
//! `top_table` and `table` format objects as text, and `output` prints. `quoting` is for commands that users are told
//! or that this one starts. `push_and_pull` moves files between this machine and a claim, `browse_and_get` reads
//! snapshots, `pair` is also `unpair` and `rotate`, `move_workload` is the command `move`, `doctor` looks for problems,
//! and `migrate` converts objects of other tools to SyncJobs. `report` is the command of that name of
//! `volferry-operator`. `operator/doc/api.md` lists the commands.

mod args;
mod await_object;
mod browse_and_get;
mod claim_place;
mod claim_pod;
mod cluster;
mod commands;
mod copy;
mod doctor;
mod error;
mod exec_stream;
mod lines;
mod logs;
mod lost_connection;
mod migrate;
mod move_args;
mod move_workload;
mod one_pod;
mod output;
mod pair;
mod pair_args;
mod progress_line;
mod push_and_pull;
mod quoting;
pub mod report;
mod stream;
mod table;
mod top;
mod top_table;

use std::{io, process::ExitCode};

pub use args::PluginArgs;

use error::PluginError;

/// Runs one command. An error goes to standard error with a `hint:` line, and the exit code is 1.
pub async fn run(args: PluginArgs) -> ExitCode {
    let typed = args.scope.clone();
    match commands::run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        // A closed pipe is no error.
        Err(PluginError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        // The findings are printed, each with its hint.
        Err(PluginError::Unwell) => ExitCode::FAILURE,
        // The program that failed has said why.
        Err(PluginError::Ended { status }) => status.into(),
        Err(error) => {
            output::complain(&format!("error: {}", error::told(&error)));
            output::complain(&format!("hint: {}", error.hint(&typed)));
            ExitCode::FAILURE
        }
    }
}
