//! `volferry`: moves one tree onto another, on one machine or over QUIC. The typed flags become a configuration, the
//! configuration a session of the engine, and its outcome the exit code.

mod bar;
mod bench;
mod changed_list;
mod completions;
mod config;
mod doctor;
mod enroll;
mod filter_files;
mod flag_defaults;
mod flags;
mod generate;
mod itemize;
mod key_lines;
mod keygen;
mod link_to_service;
mod list_file;
mod logging;
mod messages;
mod open_offsite;
mod output;
mod path_list;
mod pattern_file;
mod peers;
mod refuse_own_folder;
mod remote;
mod report;
mod report_file;
mod run;
mod run_log;
mod screen;
mod serve;
mod show_progress;
mod signals;
mod snapshot;
mod speed_window;
mod summary;
mod toml_file;
mod users_service_keys;

use std::{
    env,
    ffi::OsString,
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
use flag_defaults::{COMMANDS, Defaults};
use flags::{Flags, dashed_paths, rsync_flags};

use syncer::buffers;

fn main() -> process::ExitCode {
    output::exit(perform()).into()
}

/// Carries out the command in the process's arguments.
fn perform() -> ExitCode {
    match completions::answer() {
        Ok(false) => {}
        Ok(true) => return ExitCode::Done,
        Err(error) => return answer(&error.into()),
    }
    let config = parse().and_then(|flags| {
        let command = flags.command.name();
        Ok(Config::resolve(flags, Surroundings::here()).map_err(|error| usage_error(command, &error))?)
    });
    signals::outlive_size_limit();
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
        Ok(Config::Defaults) => show_defaults(),
        Ok(Config::Generate(flags)) => generate::run(&flags),
        Ok(Config::Snapshot(command)) => {
            raise_file_limit();
            snapshot::run(&command)
        }
        Ok(Config::Enroll(flags)) => enroll::run(&flags),
        Ok(Config::Peers(command)) => peers::run(&command),
        Ok(Config::Serve(flags)) => {
            raise_file_limit();
            buffers::keep_freed_memory();
            serve::run(&flags, Surroundings::here())
        }
        Ok(Config::Remote) => {
            raise_file_limit();
            buffers::keep_freed_memory();
            remote::far_end::run()
        }
        Ok(Config::Run(run)) => {
            raise_file_limit();
            buffers::keep_freed_memory();
            run::run(*run)
        }
        Err(error) => answer(&error),
    }
}

/// Why the command line cannot be carried out.
struct RefusedLine {
    error: clap::Error,
    /// A further line.
    hint: Option<&'static str>,
}

impl From<clap::Error> for RefusedLine {
    fn from(error: clap::Error) -> Self {
        Self { error, hint: None }
    }
}

/// Reads the process's arguments, and adds the defaults of flags.
fn parse() -> Result<Flags, RefusedLine> {
    let args: Vec<OsString> = env::args_os().collect();
    let command = args.get(1).and_then(|name| name.to_str());
    let Some(command) = command.filter(|name| COMMANDS.contains(name)) else {
        return Ok(Flags::try_parse_from(&args)?);
    };
    let args = match command {
        "sync" => dashed_paths::spell_out(&args).map_err(|error| usage_error(command, &error))?,
        _ => args.clone(),
    };
    let OwnLine { flags: parsed, args } = ours(&args, command)?;
    let defaults = Defaults::read().map_err(|error| usage_error(command, &error))?;
    if defaults.is_empty() {
        return Ok(parsed);
    }
    let mut flags = Flags::command();
    let typed = flags.try_get_matches_from_mut(&args)?;
    let (Some(of), Some((_, typed))) = (flags.find_subcommand(command), typed.subcommand()) else {
        return Ok(parsed);
    };
    let words = defaults.words(of, typed).map_err(|error| usage_error(command, &error))?;
    let line = args[..2].iter().chain(&words).chain(&args[2..]);
    Flags::try_parse_from(line).map_err(|error| RefusedLine {
        error,
        hint: Some(
            "hint: a default has a part in this; `volferry config` shows them, and where they are set",
        ),
    })
}

/// A command line with flags of this program only, and what they say.
struct OwnLine {
    flags: Flags,
    args: Vec<OsString>,
}

/// Parses the arguments. Flags of rsync are translated only if there is another error without that.
fn ours(args: &[OsString], command: &str) -> Result<OwnLine, clap::Error> {
    let error = match Flags::try_parse_from(args) {
        Err(error) if error.use_stderr() && command != "receive" => error,
        parsed => return parsed.map(|flags| OwnLine { flags, args: args.to_vec() }),
    };
    let mut flags = Flags::command();
    flags.build();
    let shorts = flags.find_subcommand(command).into_iter().flat_map(clap::Command::get_arguments);
    let shorts: Vec<char> = shorts.filter_map(clap::Arg::get_short).collect();
    let translated = rsync_flags::translate(args[2..].iter().cloned(), &|letter| shorts.contains(&letter));
    match translated {
        Ok(ours) if ours[..] == args[2..] => Err(error),
        Ok(ours) => {
            let args: Vec<_> = args[..2].iter().cloned().chain(ours).collect();
            Flags::try_parse_from(&args)
                .map_err(|other| if error.kind() == ErrorKind::UnknownArgument { other } else { error })
                .map(|flags| OwnLine { flags, args })
        }
        Err(refused) => Err(usage_error(command, &refused)),
    }
}

/// Prints the defaults of flags, after each was read as its flag would be.
fn show_defaults() -> ExitCode {
    let mut flags = Flags::command();
    flags.build();
    let shown = Defaults::read().and_then(|defaults| defaults.show(&flags));
    match shown {
        Ok(text) => {
            output::print(text.as_bytes());
            ExitCode::Done
        }
        Err(error) => answer(&usage_error("config", &error).into()),
    }
}

/// Raises the limit on open files to the largest that the process may have: a walk holds one for each level of a tree.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Prints help or version on standard output, an error on standard error.
fn answer(RefusedLine { error, hint }: &RefusedLine) -> ExitCode {
    // If the text cannot be printed, no error can be either.
    let _ = error.print();
    if let Some(hint) = takers(error).or_else(|| both_ends(error)) {
        let _ = writeln!(io::stderr(), "{hint}");
    }
    if let Some(hint) = hint {
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
    let takers: Vec<_> = takers.collect();
    let verb = if takers.len() == 1 { "takes" } else { "take" };
    (!takers.is_empty())
        .then(|| format!("hint: {flag} has no effect here; {} {verb} it", takers.join(" and ")))
}

/// Returns a line that asks for both ends of a command that takes two and got fewer: the parser names one of them.
fn both_ends(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return None };
    let usage = usage.to_string();
    let takes_two = usage.contains("<SRC>") && usage.contains("<DST>");
    (takes_two && error.kind() == ErrorKind::MissingRequiredArgument)
        .then(|| "hint: name both ends, first SRC, which is read, and then DST, which is written".into())
}

/// Returns `error` in the form of the parser's own errors, with the usage of `command`.
fn usage_error(command: &str, error: &dyn std::error::Error) -> clap::Error {
    let mut flags = Flags::command();
    flags.build();
    match flags.find_subcommand_mut(command) {
        Some(command) => command.error(ErrorKind::ValueValidation, error),
        None => flags.error(ErrorKind::ValueValidation, error),
    }
}
