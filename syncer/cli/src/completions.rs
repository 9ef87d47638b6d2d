//! What a shell completes after `volferry`: commands, flags and files, hosts of ssh's configuration, and the ids and
//! tags of snapshots.

use std::{
    env,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Arg, Command, CommandFactory as _, ValueHint};
use clap_complete::{
    ArgValueCompleter, CompleteEnv, CompletionCandidate, PathCompleter, Shell, engine::ValueCompleter as _,
    env::Shells,
};

use crate::{flags::Flags, snapshot::names};

/// The variable by which the script of a shell asks this program for completions.
const ASKED: &str = "VOLFERRY_COMPLETE";

/// How deep files of ssh's configuration may include others, as ssh has it.
const MAX_INCLUDES: usize = 16;

/// The line of zsh's script that offers words, each with a space behind it, and what takes its place: a word that ends
/// with a colon, such as `HOST:`, gets no space, because a path follows.
const ZSH_WORDS: &str = "[[ -n $other ]] && _describe -V 'values' other\n";
const ZSH_HOSTS: &str = r"local -a hosts=(${(M)other:#*\\:})
        other=(${other:#*\\:})
        [[ -n $hosts ]] && _describe -V 'hosts' hosts -S ''
        [[ -n $other ]] && _describe -V 'values' other
";

/// Calls the function of zsh's script when its file is loaded for the first completion.
const ZSH_FIRST: &str =
    "\nif [[ \"$funcstack[1]\" = _volferry ]]; then _clap_dynamic_completer_volferry; fi\n";

/// Returns the script that has a shell ask this program, for a file of the shell or for its `source`.
pub(super) fn script(shell: Shell) -> io::Result<Vec<u8>> {
    let shells = Shells::builtins();
    let unknown = || io::Error::other(format!("{shell} is not known"));
    let completer = shells.completer(&shell.to_string()).ok_or_else(unknown)?;
    let mut script = Vec::new();
    completer.write_registration(ASKED, "volferry", "volferry", "volferry", &mut script)?;
    if shell == Shell::Zsh {
        let text = String::from_utf8_lossy(&script).replace(ZSH_WORDS, ZSH_HOSTS);
        script = [text.as_bytes(), ZSH_FIRST.as_bytes()].concat();
    }
    Ok(script)
}

/// Answers the script of a shell; returns whether one asked.
pub(super) fn answer() -> Result<bool, clap::Error> {
    let here = env::current_dir().ok();
    CompleteEnv::with_factory(command).var(ASKED).try_complete(env::args_os(), here.as_deref())
}

/// Returns all commands, with what their values can be.
fn command() -> Command {
    let mut flags = Flags::command();
    flags.build();
    with_values(flags)
}

fn with_values(command: Command) -> Command {
    let can_be_far = matches!(command.get_name(), "sync" | "copy");
    command.mut_args(|arg| with_value(arg, can_be_far)).mut_subcommands(with_values)
}

/// Adds what a value can be, unless its type says so. Places may be on other machines if `can_be_far`.
fn with_value(arg: Arg, can_be_far: bool) -> Arg {
    let name = arg.get_value_names().and_then(<[_]>::first).map(ToString::to_string);
    match (arg.get_id().as_str(), name.as_deref()) {
        ("place", _) => arg.add(ArgValueCompleter::new(|typed: &OsStr| hosts(typed, ""))),
        (_, Some("SRC" | "DST" | "FROM" | "TO")) if can_be_far => arg.add(ArgValueCompleter::new(places)),
        ("expect_volume", _) => arg,
        (_, Some("ID" | "A" | "B")) => arg.add(ArgValueCompleter::new(snapshots)),
        (_, Some("FILE")) => arg.value_hint(ValueHint::FilePath),
        _ => arg,
    }
}

/// Returns files, and hosts that ssh knows.
fn places(typed: &OsStr) -> Vec<CompletionCandidate> {
    let mut all = PathCompleter::any().complete(typed);
    all.extend(hosts(typed, ":"));
    all
}

/// Returns the hosts of ssh's configuration that begin as `typed`, which may have a user before the host.
fn hosts(typed: &OsStr, end: &str) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str().filter(|typed| !typed.contains(['/', ':'])) else { return Vec::new() };
    let (user, begun) = typed.split_at(typed.rfind('@').map_or(0, |at| at + 1));
    let Some(folder) = home().map(|home| home.join(".ssh")) else { return Vec::new() };
    let mut known = Vec::new();
    add_hosts(&folder.join("config"), &folder, MAX_INCLUDES, &mut known);
    add_hosts(Path::new("/etc/ssh/ssh_config"), Path::new("/etc/ssh"), MAX_INCLUDES, &mut known);
    known.sort();
    known.dedup();
    known.retain(|host| host.starts_with(begun));
    known.into_iter().map(|host| CompletionCandidate::new(format!("{user}{host}{end}"))).collect()
}

/// Adds the names of a file, and of those that it includes; patterns are no names.
fn add_hosts(file: &Path, folder: &Path, depth: usize, known: &mut Vec<String>) {
    let Some(text) = fs::read_to_string(file).ok().filter(|_| depth > 0) else { return };
    for line in text.lines() {
        let mut words = line.split([' ', '\t', '=']).filter(|word| !word.is_empty());
        match words.next().map(str::to_ascii_lowercase).as_deref() {
            Some("host") => {
                known.extend(words.filter(|name| !name.contains(['*', '?', '!'])).map(String::from));
            }
            Some("include") => words
                .flat_map(|name| included(&folder.join(expanded(Path::new(name)))))
                .for_each(|file| add_hosts(&file, folder, depth - 1, known)),
            _ => {}
        }
    }
}

/// Returns the file, or the files of its folder if their name is a pattern with one `*`, as in `conf.d/*.conf`.
fn included(file: &Path) -> Vec<PathBuf> {
    let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let Some((begin, end)) = name.split_once('*') else { return vec![file.into()] };
    let entries = file.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let is_meant = |name: &str| name.starts_with(begin) && name.ends_with(end);
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_meant))
        .map(|entry| entry.path())
        .collect()
}

/// Returns the snapshots of the first folder on the line that has some.
fn snapshots(typed: &OsStr) -> Vec<CompletionCandidate> {
    let words = env::args_os().skip_while(|word| word != "--").skip(2);
    let named = words.map(|word| names::of_volume(&expanded(Path::new(&word))));
    let named = named.into_iter().find(|names| !names.is_empty()).unwrap_or_default();
    let begins = |name: &str| typed.to_str().is_some_and(|typed| name.starts_with(typed));
    let candidate = |(name, help): (String, String)| CompletionCandidate::new(name).help(Some(help.into()));
    named.into_iter().filter(|(name, _)| begins(name)).map(candidate).collect()
}

/// Returns a path with the home folder for a `~` at its beginning, which a shell leaves in a word that it completes.
fn expanded(path: &Path) -> PathBuf {
    let below = path.strip_prefix("~").ok().and_then(|below| Some(home()?.join(below)));
    below.unwrap_or_else(|| path.into())
}

fn home() -> Option<PathBuf> {
    env::var_os("HOME").map(PathBuf::from)
}
