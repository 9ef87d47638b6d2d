//! Defaults of flags: from environment variables, and from the user's file. Flags of the command line come before both.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt::Write as _,
    fs::File,
    io::{self, Read as _},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource};
use thiserror::Error;

use crate::{
    remote::place::Place,
    toml_file::{ConfigFileError, Field, FlagValue, TomlFile},
};

/// The variable that names another file; `none` stands for no defaults at all.
const FILE_VARIABLE: &str = "VOLFERRY_CONFIG";

/// The largest file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The commands whose flags may have defaults.
pub(crate) const COMMANDS: [&str; 3] = ["sync", "send", "receive"];

/// When a default counts, beside the absence of the flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// Another flag on the command line.
    Flag(&'static str),
    /// In `sync`, a place on another machine.
    Far,
    /// In `sync`, a place that is reached by ssh.
    Ssh,
    /// In `sync`, a folder of a service.
    Service,
    /// An end that dials: in `sync`, a place on another machine.
    Dials,
    /// A folder as the source, and not a snapshot of it.
    Folder,
}

/// The flags that may have defaults: none that asks for something of one run, such as --delete.
const FLAGS: [(&str, Needs); 35] = [
    ("bandwidth-limit", Needs::Nothing),
    ("bootstrap", Needs::Ssh),
    ("compression", Needs::Nothing),
    ("connect-timeout", Needs::Dials),
    ("delete-limit", Needs::Flag("delete")),
    ("exclude", Needs::Folder),
    ("exclude-from", Needs::Folder),
    ("filter", Needs::Folder),
    ("filter-from", Needs::Folder),
    ("identity", Needs::Service),
    ("ignore-files", Needs::Folder),
    ("itemize-changes", Needs::Nothing),
    ("link", Needs::Far),
    ("log-file", Needs::Nothing),
    ("log-format", Needs::Nothing),
    ("max-delete", Needs::Flag("delete")),
    ("max-size", Needs::Folder),
    ("min-size", Needs::Folder),
    ("no-acls", Needs::Folder),
    ("no-hard-links", Needs::Folder),
    ("no-permissions", Needs::Folder),
    ("no-sparse", Needs::Nothing),
    ("no-specials", Needs::Folder),
    ("no-times", Needs::Folder),
    ("no-xattrs", Needs::Folder),
    ("one-file-system", Needs::Folder),
    ("ownership", Needs::Folder),
    ("progress", Needs::Nothing),
    ("quiet", Needs::Nothing),
    ("remote-program", Needs::Ssh),
    ("report", Needs::Nothing),
    ("rsh", Needs::Ssh),
    ("verbose", Needs::Nothing),
    ("verify", Needs::Nothing),
    ("write", Needs::Nothing),
];

/// Why defaults cannot be used.
#[derive(Debug, Error)]
pub(crate) enum DefaultsError {
    #[error(
        "cannot read the defaults in {path}: {source}\nhint: see that this user may read it, or set VOLFERRY_CONFIG=none to go \
         without",
        path = .path.display()
    )]
    Read { path: PathBuf, source: io::Error },
    #[error(transparent)]
    File(#[from] ConfigFileError),
    #[error(
        "{} belongs to another user, or others can write to it, and it may name programs to run\nhint: chown it to the user \
         that runs volferry, and `chmod go-w` it", .0.display()
    )]
    Unsafe(PathBuf),
    #[error(
        "{set_by}: there is no default `{name}`\nhint: `volferry config` lists the flags that may have one"
    )]
    Unknown { set_by: String, name: String },
    #[error("{set_by}: {name} takes {expected}")]
    Value { set_by: String, name: String, expected: &'static str },
}

/// A default, as it is written.
#[derive(Debug)]
struct GivenDefault {
    name: &'static str,
    /// The command that it is for; `None` for all that take the flag.
    command: Option<&'static str>,
    value: FlagValue,
    set_by: String,
}

/// The defaults of flags, those that come first before the others.
#[derive(Debug, Default)]
pub(crate) struct Defaults {
    file: Option<PathBuf>,
    is_there: bool,
    given: Vec<GivenDefault>,
}

impl Defaults {
    /// Reads the variables and the file of this process's user.
    ///
    /// # Errors
    /// If the file cannot be read, or a default has no flag.
    pub(crate) fn read() -> Result<Self, DefaultsError> {
        let named = env::var_os(FILE_VARIABLE).filter(|path| !path.is_empty());
        if named.as_deref() == Some(OsStr::new("none")) {
            return Ok(Self::default());
        }
        let mut given: Vec<_> = env::vars_os().filter_map(of_variable).collect();
        given.sort_unstable_by_key(|it| it.name);
        let is_named = named.is_some();
        let Some(path) = named.map(PathBuf::from).or_else(usual_file) else {
            return Ok(Self { given, ..Self::default() });
        };
        let text = match read_file(&path) {
            Err(DefaultsError::Read { source, .. })
                if source.kind() == io::ErrorKind::NotFound && !is_named =>
            {
                return Ok(Self { file: Some(path), given, is_there: false });
            }
            text => text,
        };
        given.extend(of_file(&path, text?)?);
        Ok(Self { file: Some(path), is_there: true, given })
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// Returns the words for a command line that `typed` was read from: the defaults of flags that it does not have and
    /// that do not contradict it.
    ///
    /// # Errors
    /// If a default has a value of another kind than its flag.
    pub(crate) fn words(
        &self,
        command: &Command,
        typed: &ArgMatches,
    ) -> Result<Vec<OsString>, DefaultsError> {
        let is_typed = |id: &str| {
            typed.try_contains_id(id).is_ok_and(|known| known)
                && typed.value_source(id) == Some(ValueSource::CommandLine)
        };
        let mut words = Vec::new();
        if is_typed("exchange") {
            return Ok(words);
        }
        for (name, needs) in FLAGS {
            let (Some(given), Some(arg)) = (self.of(name, command.get_name()), arg_of(command, name)) else {
                continue;
            };
            let contradicts =
                |other: &Arg| is_typed(other.get_id().as_str()) && contradict(command, arg, other);
            let is_shadowed = is_typed(arg.get_id().as_str()) || command.get_arguments().any(contradicts);
            if !is_shadowed && needs.are_met(command.get_name(), typed, &is_typed) {
                words.extend(given.words(arg)?);
            }
        }
        Ok(words)
    }

    /// Returns the default of a flag for a command.
    fn of(&self, name: &str, command: &str) -> Option<&GivenDefault> {
        let is_of =
            |given: &&GivenDefault| given.name == name && given.command.is_none_or(|of| of == command);
        self.given.iter().find(is_of)
    }

    /// Returns all defaults in the form of their file, each with its origin.
    ///
    /// # Errors
    /// If a default has a value that its flag does not take; the error names it.
    pub(crate) fn show(&self, flags: &Command) -> Result<String, DefaultsError> {
        let mut text = String::new();
        let file = match (&self.file, self.is_there) {
            (None, _) => "# There is no file of defaults.".into(),
            (Some(path), true) => format!("# {}", path.display()),
            (Some(path), false) => format!("# {} (not there)", path.display()),
        };
        let _ = writeln!(
            text,
            "{file}\n# Flags come before variables such as VOLFERRY_BANDWIDTH_LIMIT, and those before the file."
        );
        for of in [None].into_iter().chain(COMMANDS.map(Some)) {
            let given: Vec<_> = self.given.iter().filter(|given| given.command == of).collect();
            if let Some(command) = of.filter(|_| !given.is_empty()) {
                let _ = write!(text, "\n[{command}]");
            }
            for given in given {
                for command in
                    flags.get_subcommands().filter(|command| of.is_none_or(|of| of == command.get_name()))
                {
                    if let Some(arg) =
                        arg_of(command, given.name).filter(|_| COMMANDS.contains(&command.get_name()))
                    {
                        given.words(arg)?;
                    }
                }
                let _ = write!(text, "\n{} = {} # {}", given.name, given.value, given.set_by);
            }
            text.push_str(if text.ends_with('\n') { "" } else { "\n" });
        }
        let unset = FLAGS.iter().filter(|(name, _)| self.given.iter().all(|given| given.name != *name));
        let unset: Vec<_> = unset.map(|(name, _)| *name).collect();
        let _ = writeln!(
            text,
            "\n# Not set:{}",
            unset.iter().fold(String::new(), |all, name| all + "\n#   " + name)
        );
        Ok(text)
    }
}

impl Needs {
    fn are_met(self, command: &str, typed: &ArgMatches, is_typed: &dyn Fn(&str) -> bool) -> bool {
        let places = || {
            let of = |id| typed.try_get_many::<PathBuf>(id).ok().flatten().into_iter().flatten();
            of("source").chain(of("destination")).cloned().map(Place::read)
        };
        let syncs = command == "sync";
        match self {
            Self::Nothing => true,
            Self::Flag(name) => is_typed(name),
            Self::Dials if !syncs => is_typed("connect"),
            Self::Far | Self::Dials => !syncs || places().any(|place| !matches!(place, Ok(Place::Here(_)))),
            Self::Ssh => places().any(|place| matches!(place, Ok(Place::There(_)))),
            Self::Service => !syncs || places().any(|place| matches!(place, Ok(Place::Service(_)))),
            Self::Folder => {
                let is_other =
                    |place| matches!(place, Ok(Place::Here(path)) if path.exists() && !path.is_dir());
                let of_snapshot = ["source_snapshot", "image"].into_iter().any(is_typed);
                !of_snapshot && !places().any(is_other)
            }
        }
    }
}

impl GivenDefault {
    /// Returns the words of a command line for it.
    fn words(&self, arg: &Arg) -> Result<Vec<OsString>, DefaultsError> {
        let fail =
            |expected| DefaultsError::Value { set_by: self.set_by.clone(), name: self.name.into(), expected };
        let words = |value: FlagValue| Ok(value.words(self.name).into_iter().map(OsString::from).collect());
        match (arg.get_action(), &self.value) {
            (ArgAction::SetTrue, value) => match truth(value) {
                Some(is_set) => words(FlagValue::Switch(is_set)),
                None => Err(fail("true or false")),
            },
            (ArgAction::Count, value) => match number(value).filter(|count| *count <= 3) {
                Some(count) => Ok(vec![OsString::from(format!("--{}", self.name)); count]),
                None => Err(fail("a number from 0 to 3")),
            },
            (ArgAction::Append, FlagValue::Text(lines)) => {
                words(FlagValue::List(lines.lines().map(str::to_owned).collect()))
            }
            (ArgAction::Append, FlagValue::List(_)) => words(self.value.clone()),
            (ArgAction::Append, _) => Err(fail("a list of texts")),
            (_, FlagValue::Text(_) | FlagValue::Number(_)) => words(self.value.clone()),
            _ => Err(fail("a text or a number")),
        }
    }
}

fn truth(value: &FlagValue) -> Option<bool> {
    match value {
        FlagValue::Switch(is_set) => Some(*is_set),
        FlagValue::Text(text) => match text.as_str() {
            "1" | "true" | "yes" | "on" => Some(true),
            "" | "0" | "false" | "no" | "off" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn number(value: &FlagValue) -> Option<usize> {
    match value {
        FlagValue::Number(text) | FlagValue::Text(text) => text.parse().ok(),
        _ => None,
    }
}

fn arg_of<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    command.get_arguments().find(|arg| arg.get_long() == Some(name))
}

/// Returns whether one of two flags excludes the other.
fn contradict(command: &Command, a: &Arg, b: &Arg) -> bool {
    let excludes =
        |a: &Arg, b: &Arg| command.get_arg_conflicts_with(a).iter().any(|its| its.get_id() == b.get_id());
    excludes(a, b) || excludes(b, a)
}

/// Returns the default that the variable of a flag sets.
fn of_variable((variable, value): (OsString, OsString)) -> Option<GivenDefault> {
    let variable = variable.into_string().ok()?;
    let name = variable.strip_prefix("VOLFERRY_").filter(|name| !name.contains(char::is_lowercase))?;
    let flag = name.to_lowercase().replace('_', "-");
    let (name, _) = *FLAGS.iter().find(|(name, _)| *name == flag && !value.is_empty())?;
    let value = FlagValue::Text(String::from_utf8_lossy(value.as_bytes()).into_owned());
    Some(GivenDefault { name, command: None, value, set_by: variable })
}

fn usual_file() -> Option<PathBuf> {
    let folder = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")))?;
    Some(config.join("volferry/config.toml"))
}

/// Reads the file, which only this user and root may have written.
fn read_file(path: &Path) -> Result<String, DefaultsError> {
    let fail = |source| DefaultsError::Read { path: path.into(), source };
    let file = File::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    let is_own = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
    if !is_own || metadata.mode() & 0o022 != 0 {
        return Err(DefaultsError::Unsafe(path.into()));
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(fail)?;
    Ok(text)
}

/// Reads the defaults of a file, those of single commands first.
fn of_file(path: &Path, text: String) -> Result<Vec<GivenDefault>, DefaultsError> {
    let file = TomlFile::new(path, text);
    let (mut of_commands, mut of_all) = (Vec::new(), Vec::new());
    for (name, field) in file.fields()?.rest() {
        match COMMANDS.into_iter().find(|command| *command == name) {
            Some(command) => {
                for (name, field) in field.fields()?.rest() {
                    of_commands.push(of_field(Some(command), &name, &field)?);
                }
            }
            None => of_all.push(of_field(None, &name, &field)?),
        }
    }
    of_commands.extend(of_all);
    Ok(of_commands)
}

fn of_field(
    command: Option<&'static str>,
    name: &str,
    field: &Field<'_>,
) -> Result<GivenDefault, DefaultsError> {
    let set_by = field.place();
    match FLAGS.iter().find(|(known, _)| *known == name) {
        Some((name, _)) => Ok(GivenDefault { name, command, value: field.value()?, set_by }),
        None => Err(DefaultsError::Unknown { set_by, name: name.into() }),
    }
}
