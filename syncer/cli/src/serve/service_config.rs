//! The configuration of a service, as its file says.

use std::{
    collections::BTreeMap,
    net::{Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{
    CommandFactory as _, Parser,
    error::{ContextKind, ContextValue, ErrorKind},
};
use contract::{Demands, FolderAccess, chain, is_name};
use syncer::{filter::Filter, path::RelPath, session::LinkMode};

use super::trusted_file::read_trusted;
use crate::{
    flags::{
        BackupFlags, DemandFlags, TakeFlags, bandwidth_rate::bandwidth, folder_below, listen_address, seconds,
    },
    remote::place::SERVICE_PORT,
    toml_file::{ConfigFileError, Field, Fields, FlagValue, TomlFile},
};

/// The most peers that wait for a folder, unless its configuration says otherwise, and the most that it may say.
const QUEUE: usize = 16;
const MAX_QUEUE: usize = 1000;

/// How long a peer may send nothing while it is its turn, unless the configuration says otherwise: longer than the scan
/// of a large tree takes, during which a source sends nothing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// In the place of names: every peer whose key the service accepts.
const EVERY_PEER: &str = "*";

/// The configuration of a service.
#[derive(Debug, Clone)]
pub(crate) struct ServiceConfig {
    pub(crate) listen: SocketAddr,
    pub(crate) mode: LinkMode,
    /// The files of the service's keys: one, or in a rotation also the one before.
    pub(crate) keys: Vec<PathBuf>,
    pub(crate) authorized: PathBuf,
    /// The address of `/metrics`, `/healthz` and `/readyz`.
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) folders: BTreeMap<String, ServedFolder>,
}

/// A folder of a service.
#[derive(Debug, Clone)]
pub(crate) struct ServedFolder {
    pub(crate) path: PathBuf,
    /// The folder below `path` that peers get in its place; no symbolic link on the way to it is followed.
    pub(crate) subfolder: RelPath,
    /// The names of peers that may read, and of those that may write.
    pub(crate) read: Vec<String>,
    pub(crate) write: Vec<String>,
    /// The most peers that wait.
    pub(crate) queue: usize,
    /// The most bytes in a second, of each run.
    pub(crate) bandwidth_limit: Option<u64>,
    /// The longest time that a peer may send nothing while it is its turn.
    pub(crate) idle_timeout: Duration,
    pub(crate) demands: Demands,
}

impl ServedFolder {
    /// Returns whether the configuration lets a peer use the folder in this way.
    pub(crate) fn lets(&self, peer: &str, access: FolderAccess) -> bool {
        let names = self.names(access);
        names.iter().any(|name| name == EVERY_PEER || name == peer)
    }

    /// Returns whether a run that began by the rules `before` may go on by these.
    pub(crate) fn is_as_strict(&self, before: &Self) -> bool {
        self.path == before.path && self.subfolder == before.subfolder && self.demands == before.demands
    }

    fn names(&self, access: FolderAccess) -> &[String] {
        match access {
            FolderAccess::Read => &self.read,
            FolderAccess::Write => &self.write,
        }
    }

    /// Returns the names of peers in the configuration.
    pub(crate) fn named(&self) -> impl Iterator<Item = &str> {
        self.read.iter().chain(&self.write).map(String::as_str).filter(|name| *name != EVERY_PEER)
    }
}

impl ServiceConfig {
    /// Reads the file at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigFileError> {
        let file = TomlFile::read(path, read_trusted)?;
        let mut fields = file.fields()?;
        let listen = fields.take("listen").map(|field| field.parse(listen_address)).transpose()?;
        let mode = fields.take("link").map(|field| field.parse(link_mode)).transpose()?;
        let keys = fields.take("identity").map(|field| paths(&field, &file)).transpose()?;
        let authorized =
            fields.take("authorized").map(|field| Ok(file.resolve(field.text()?))).transpose()?;
        let metrics = fields.take("metrics").map(|field| field.parse(listen_address)).transpose()?;
        let folders = fields.require("folders")?.fields()?;
        fields.end()?;
        let folder = |(name, field): (String, Field<'_>)| {
            if is_name(&name) {
                Ok((name, served_folder(field.fields()?, &file)?))
            } else {
                Err(field.error("a folder's name has 1 to 64 letters, digits and characters of `._@-`"))
            }
        };
        Ok(Self {
            listen: listen.unwrap_or_else(|| (Ipv6Addr::UNSPECIFIED, SERVICE_PORT).into()),
            mode: mode.unwrap_or_default(),
            keys: keys.unwrap_or_else(|| vec![file.resolve("service.key")]),
            authorized: authorized.unwrap_or_else(|| file.resolve("authorized")),
            metrics,
            folders: folders.rest().map(folder).collect::<Result<_, _>>()?,
        })
    }

    /// Names the paths of the configuration that are not there, of which a mount may bring some later.
    pub(crate) fn missing(&self) -> impl Iterator<Item = String> {
        let folders =
            self.folders.iter().map(|(name, served)| (format!("folders.{name}.path"), &*served.path));
        // A key is made if it is not there, but no folder for it.
        let of_keys = self.keys.iter().filter_map(|key| Some(("identity".to_owned(), key.parent()?)));
        let missing = folders.chain(of_keys).filter(|(_, path)| *path != Path::new("") && !path.is_dir());
        missing.map(|(field, path)| format!("`{field}`: there is no folder {}", path.display()))
    }
}

fn link_mode(text: &str) -> Result<LinkMode, &'static str> {
    match text {
        "auto" => Ok(LinkMode::Auto),
        "udp" => Ok(LinkMode::Udp),
        "tcp" => Ok(LinkMode::Tcp),
        _ => Err("write auto, udp or tcp"),
    }
}

/// Reads a path, or a list of them.
fn paths(field: &Field<'_>, file: &TomlFile) -> Result<Vec<PathBuf>, ConfigFileError> {
    let texts = match field.text() {
        Ok(text) => vec![text.to_owned()],
        Err(_) => field.texts()?,
    };
    if texts.is_empty() {
        Err(field.error("name at least one file"))
    } else {
        Ok(texts.iter().map(|text| file.resolve(text)).collect())
    }
}

/// The fields of a folder that are flags of `volferry receive`, under the same names.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct FolderFlags {
    #[command(flatten)]
    demands: DemandFlags,
    #[command(flatten)]
    backup: BackupFlags,
    #[command(flatten)]
    snapshot: TakeFlags,
}

fn served_folder(mut fields: Fields<'_>, file: &TomlFile) -> Result<ServedFolder, ConfigFileError> {
    let path = fields.require("path")?;
    let path = match path.text()? {
        "" => return Err(path.error("name a folder")),
        text if text == "~" || text.starts_with("~/") => {
            return Err(path.error("write the whole path: `~` is a word of shells"));
        }
        text => file.resolve(text),
    };
    let mut names = |of| fields.take(of).map(|field| peer_names(&field)).transpose();
    let (read, write) = (names("read")?.unwrap_or_default(), names("write")?.unwrap_or_default());
    let subfolder = fields.take("subfolder").map(|field| field.parse(folder_below)).transpose()?;
    let queue = fields.take("queue").map(|field| field.parse(queue_length)).transpose()?;
    let limit = fields.take("bandwidth-limit").map(|field| field.parse(bandwidth)).transpose()?;
    let idle_timeout = fields.take("idle-timeout").map(|field| field.parse(seconds)).transpose()?;
    Ok(ServedFolder {
        path,
        subfolder: subfolder.unwrap_or_else(RelPath::root),
        read,
        write,
        queue: queue.unwrap_or(QUEUE),
        bandwidth_limit: limit,
        idle_timeout: idle_timeout.unwrap_or(IDLE_TIMEOUT),
        demands: demands(fields)?,
    })
}

fn peer_names(field: &Field<'_>) -> Result<Vec<String>, ConfigFileError> {
    let names = field.texts()?;
    match names.iter().find(|name| *name != EVERY_PEER && !is_name(name)) {
        Some(wrong) => Err(field.error(format!("`{wrong}` is no name of a peer"))),
        None => Ok(names),
    }
}

fn queue_length(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number <= MAX_QUEUE);
    number.ok_or_else(|| format!("write a number from 0 to {MAX_QUEUE}"))
}

/// Reads the demands of a folder's owner, which are flags of `volferry receive`.
fn demands(fields: Fields<'_>) -> Result<Demands, ConfigFileError> {
    let fields: Vec<_> = fields.rest().collect();
    let mut args = Vec::new();
    let known = FolderFlags::command();
    for (name, field) in &fields {
        let arg = known.get_arguments().find(|arg| arg.get_long() == Some(name));
        let is_switch = match arg {
            Some(arg) => !arg.get_action().takes_values(),
            None => return Err(field.error("there is no such field")),
        };
        match field.value()? {
            FlagValue::Switch(_) if !is_switch => return Err(field.error("write a text or a number")),
            value if is_switch && !matches!(value, FlagValue::Switch(_)) => {
                return Err(field.error("write true or false"));
            }
            value => args.extend(value.words(name)),
        }
    }
    let flags = FolderFlags::try_parse_from(args).map_err(|error| wrong_flag(&error, &fields))?;
    let (snapshot, backup) = (flags.snapshot.into(), flags.backup);
    let demands = backup.add_to(Demands { snapshot, ..flags.demands.into() });
    match Filter::default().sparing(&demands.exclude) {
        Ok(_) => Ok(demands),
        Err(error) => Err(of_field(fields.iter().find(|(name, _)| name == "exclude"), chain(&error))),
    }
}

/// Finds the field that an error of the flags is about, and says what is wrong with it.
fn wrong_flag(error: &clap::Error, fields: &[(String, Field<'_>)]) -> ConfigFileError {
    let named = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) => flag.clone(),
        Some(ContextValue::Strings(flags)) => flags.first().cloned().unwrap_or_default(),
        _ => String::new(),
    };
    let flag = named.trim_start_matches('-').split([' ', '=']).next().unwrap_or_default();
    if error.kind() == ErrorKind::MissingRequiredArgument {
        // A field's name begins with that of the one that it needs.
        let field = fields.iter().find(|(name, _)| name.starts_with(flag));
        let value = if named.contains(' ') { "" } else { " = true" };
        return of_field(field, format!("it needs `{flag}{value}`: add that, or leave this out"));
    }
    let what = error.to_string();
    let what = what.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    of_field(fields.iter().find(|(name, _)| name == flag).or(fields.first()), what)
}

fn of_field(field: Option<&(String, Field<'_>)>, what: String) -> ConfigFileError {
    match field {
        Some((_, field)) => field.error(what),
        None => ConfigFileError::At { path: PathBuf::new(), line: 1, what },
    }
}
