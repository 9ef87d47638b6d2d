//! `volferry`: moves one tree onto another, on one machine or over QUIC. The typed flags become a configuration, the
//! configuration a session of the engine, and its outcome the exit code.

mod bar;
mod bench;
mod config;
mod doctor;
mod flags;
mod generate;
mod itemize;
mod keygen;
mod list_file;
mod live;
mod logging;
mod mounts;
mod path_list;
mod pattern_file;
mod rate;
mod report;
mod report_file;
mod run;
mod run_log;
mod screen;
mod signals;
mod snapshot;
mod summary;

use std::{
    io::{self, Write as _},
    process,
};

use clap::{
    CommandFactory as _, Parser as _,
    error::{ContextKind, ContextValue, ErrorKind},
};
use contract::ExitCode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use config::{Config, Surroundings};
use flags::Flags;

use syncer::buffers;

fn main() -> process::ExitCode {
    perform().into()
}

/// Carries out the command in the process's arguments.
fn perform() -> ExitCode {
    let config = Flags::try_parse().and_then(|flags| {
        let command = flags.command.name();
        Config::resolve(flags, Surroundings::here()).map_err(|error| usage_error(command, &error))
    });
    match config {
        Ok(Config::Keygen { out }) => keygen::run(&out),
        Ok(Config::Report(flags)) => report::run(&flags),
        Ok(Config::Doctor(flags)) => {
            raise_file_limit();
            doctor::run(&flags)
        }
        Ok(Config::Bench(flags, link)) => {
            raise_file_limit();
            buffers::keep_freed_memory();
            bench::run(&flags, link)
        }
        Ok(Config::Generate(flags)) => generate::run(&flags),
        Ok(Config::Snapshot(command)) => {
            raise_file_limit();
            snapshot::run(*command)
        }
        Ok(Config::Run(run)) => {
            raise_file_limit();
            buffers::keep_freed_memory();
            run::run(*run)
        }
        Err(error) => answer(&error),
    }
}

/// Raises the limit on open files to the largest that the process may have: a walk holds one for each level of a tree.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Prints help or version on standard output, an error on standard error.
fn answer(error: &clap::Error) -> ExitCode {
    // If the text cannot be printed, no error can be either.
    let _ = error.print();
    if let Some(hint) = takers(error) {
        let _ = writeln!(io::stderr(), "{hint}");
    }
    if error.use_stderr() { ExitCode::Usage } else { ExitCode::Done }
}

/// Returns a line that names the commands which take a flag that was given to another.
fn takers(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = flag.strip_prefix("--").filter(|_| error.kind() == ErrorKind::UnknownArgument)?;
    let mut flags = Flags::command();
    flags.build();
    let is_it = |arg: &clap::Arg| {
        arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|names| names.contains(&name))
    };
    let takes = |command: &&clap::Command| command.get_arguments().any(is_it);
    let takers =
        flags.get_subcommands().filter(takes).map(|command| format!("`volferry {}`", command.get_name()));
    let takers = takers.collect::<Vec<_>>().join(" and ");
    (!takers.is_empty()).then(|| format!("hint: {flag} has no effect here; {takers} takes it"))
}

/// Returns `error` in the form of the parser's own errors, with the usage of `command`.
fn usage_error(command: &str, error: &config::ConfigError) -> clap::Error {
    let mut flags = Flags::command();
    flags.build();
    match flags.find_subcommand_mut(command) {
        Some(command) => command.error(ErrorKind::ValueValidation, error),
        None => flags.error(ErrorKind::ValueValidation, error),
    }
}
