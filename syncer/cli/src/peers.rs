//! `volferry peers`: the keys that a service of this machine accepts.

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
};

use contract::{AuthorizedKey, ExitCode, IdentityError, PublicKey, chain};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    flags::{AddPeerFlags, PeersCommand, RevokePeerFlags},
    key_lines::{self, KeyLinesError},
    serve::service_config::ServiceConfig,
    toml_file::ConfigFileError,
    users_service_keys::read_or_make,
};

/// The start of the line by which `peers add` answers a program at the other end of ssh.
pub(crate) const ANSWER: &str = "volferry-service ";

/// The start of the line by which `peers revoke` names a key that it has removed.
pub(crate) const REVOKED: &str = "revoked ";

/// What a user of a service has to know of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceContact {
    /// The service's public key.
    pub(crate) key: PublicKey,
    pub(crate) port: u16,
}

/// Why the keys of a service cannot be read or changed.
#[derive(Debug, Error)]
enum PeersCommandError {
    #[error(transparent)]
    Config(#[from] ConfigFileError),
    #[error(transparent)]
    Lines(#[from] KeyLinesError),
    #[error(transparent)]
    Key(#[from] IdentityError),
    #[error("the service has no folder `{0}`: it has {1}")]
    NoFolder(String, String),
    #[error("no peer and no key `{0}` is in {1}\nhint: `volferry peers list` shows them")]
    NoPeer(String, String),
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// Carries out a command.
pub(super) fn run(command: &PeersCommand) -> ExitCode {
    let done = match command {
        PeersCommand::List(flags) => list(&flags.config, flags.json),
        PeersCommand::Add(flags) => add(flags),
        PeersCommand::Revoke(flags) => revoke(flags),
    };
    match done {
        Ok(()) => ExitCode::Done,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}", chain(&error));
            if let PeersCommandError::Config(error) = &error {
                let _ = write!(io::stderr(), "{}", error.hint_of_service().unwrap_or_default());
            }
            match error {
                PeersCommandError::Config(_)
                | PeersCommandError::NoFolder(..)
                | PeersCommandError::NoPeer(..) => ExitCode::Usage,
                _ => ExitCode::Failed,
            }
        }
    }
}

fn list(config: &Path, json: bool) -> Result<(), PeersCommandError> {
    let keys = key_lines::read(&ServiceConfig::read(config)?.authorized)?;
    let mut out = io::stdout().lock();
    if json {
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&keys).map_err(io::Error::from)?)?);
    }
    for AuthorizedKey { key, peer, read, write } in keys {
        let folders = |word: &str, names: std::collections::BTreeSet<String>| {
            let names: Vec<_> = names.into_iter().collect();
            if names.is_empty() { String::new() } else { format!(" {word}={}", names.join(",")) }
        };
        writeln!(out, "{peer:<24} {key}{}{}", folders("read", read), folders("write", write))?;
    }
    Ok(())
}

/// Adds a key, in the place of a line of the same key.
fn add(flags: &AddPeerFlags) -> Result<(), PeersCommandError> {
    let config = ServiceConfig::read(&flags.config)?;
    for folder in flags.read.iter().chain(&flags.write) {
        if !config.folders.contains_key(folder) {
            let known: Vec<_> = config.folders.keys().cloned().collect();
            return Err(PeersCommandError::NoFolder(folder.clone(), known.join(", ")));
        }
    }
    let keys = config.keys.iter().map(|path| read_or_make(path)).collect::<Result<Vec<_>, _>>()?;
    key_lines::change(
        &config.authorized,
        |known| known.key == flags.key,
        |lines| line(flags, lines).map(Some),
    )?;
    if let (true, Some(key)) = (flags.json, keys.first()) {
        let contact = ServiceContact { key: key.public(), port: config.listen.port() };
        let text = serde_json::to_string(&contact).map_err(io::Error::from)?;
        writeln!(io::stdout(), "{ANSWER}{text}")?;
    }
    Ok(())
}

/// Returns the line of a key, with the rights that it has already, and those of another key that it shall be like.
fn line(flags: &AddPeerFlags, lines: &[AuthorizedKey]) -> Result<AuthorizedKey, PeersCommandError> {
    if let Some(like) = flags.like.filter(|like| lines.iter().all(|known| known.key != *like)) {
        return Err(PeersCommandError::NoPeer(like.to_string(), "the file of authorized keys".into()));
    }
    let mut line = AuthorizedKey {
        key: flags.key,
        peer: flags.name.clone(),
        read: flags.read.iter().cloned().collect(),
        write: flags.write.iter().cloned().collect(),
    };
    for known in lines.iter().filter(|known| known.key == flags.key || Some(known.key) == flags.like) {
        line.read.extend(known.read.iter().cloned());
        line.write.extend(known.write.iter().cloned());
        if Some(known.key) == flags.like {
            line.peer.clone_from(&known.peer);
        }
    }
    Ok(line)
}

/// Removes all keys of a peer, or one key.
fn revoke(flags: &RevokePeerFlags) -> Result<(), PeersCommandError> {
    let path = ServiceConfig::read(&flags.config)?.authorized;
    let is_it = |line: &AuthorizedKey| line.peer == flags.peer || line.key.to_string() == flags.peer;
    let removed = match fs::exists(&path) {
        Ok(false) => Vec::new(),
        _ => key_lines::change(&path, is_it, |_| Ok::<_, KeyLinesError>(None))?,
    };
    if removed.is_empty() {
        return Err(PeersCommandError::NoPeer(flags.peer.clone(), path.display().to_string()));
    }
    let mut out = io::stdout().lock();
    for line in removed {
        writeln!(out, "{REVOKED}{} {}", line.peer, line.key)?;
    }
    Ok(())
}
