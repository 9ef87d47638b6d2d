//! `volferry enroll`: makes a key here by which a service knows this user, and exchanges public keys with it by ssh.

use std::{
    env, fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::ToSocketAddrs as _,
    sync::Arc,
    time::Duration,
};

use contract::{
    AuthorizedKey, ExitCode, Identity, IdentityError, OwnKey, PublicKey, Side, chain, service_job,
};
use rustix::system::uname;
use syncer::{
    monitor::Monitor,
    session::{SessionError, show_key},
};
use thiserror::Error;

use crate::{
    flags::{CONNECT_TIMEOUT, EnrollAccess, EnrollFlags},
    messages::{self, hint_at},
    peers::{ANSWER, REVOKED, ServiceContact},
    remote::{
        bootstrap::CopyError,
        greeting::GreetingError,
        near_end,
        place::SERVICE_PORT,
        ssh::{Heard, Ssh},
        ssh_settings,
        why_ssh_failed::{RemoteError, explain},
    },
    screen::Screen,
    users_service_keys::{OwnFiles, OwnFilesError},
};

/// The most bytes that the far end may print before its answer.
const MAX_ANSWER_BYTES: u64 = 64 << 10;

/// How long the far end may take to answer over ssh, unless a flag says otherwise: longer than sshd waits for a
/// password.
const SSH_PATIENCE: Duration = Duration::from_secs(180);

/// How long a service that is said to have a new key may take to accept it.
const PROOF_TIMEOUT: Duration = Duration::from_secs(3);

/// Why this user could not be enrolled.
#[derive(Debug, Error)]
enum EnrollError {
    #[error(transparent)]
    OwnFiles(#[from] OwnFilesError),
    #[error(transparent)]
    Remote(#[from] RemoteError),
    #[error("cannot put the new key in place")]
    Replace(#[source] io::Error),
    #[error(
        "the service has the key {new}, and {old} was known: somebody may be in between\nhint: if the service has a new key, \
         remove {file}, and enroll again"
    )]
    OtherService { old: PublicKey, new: PublicKey, file: String },
    #[error("there is no key to renew for {0}\nhint: leave --renew out")]
    NothingToRenew(String),
    #[error(
        "the service at {address} did not accept the new key, so the old one stays in use\nhint: once the service answers there, \
         run this again; it accepts both keys until then"
    )]
    Unproven { address: String, source: SessionError },
    #[error(
        "the new key is in use, but the old one is not revoked\nhint: run `volferry peers revoke {old}` at {host}"
    )]
    NotRevoked { old: PublicKey, host: String, source: Box<EnrollError> },
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// Enrolls this user, and prints the line that works from then on.
pub(super) fn run(flags: &EnrollFlags) -> ExitCode {
    match enroll(flags) {
        Ok(()) => ExitCode::Done,
        // The line is on the screen, as the far end has written it.
        Err(EnrollError::Remote(RemoteError::Ended { told: Some(exit), .. })) => exit,
        Err(error) => {
            let mut message = chain(&error);
            if let EnrollError::Remote(error) = &error
                && let Some(hint) = hint_at(&error.reason(), &flags.place.reached.to_string_lossy())
            {
                message += &format!("\nhint: {hint}");
            }
            let _ = io::stderr().write_all(messages::lines("error", &message).as_bytes());
            match error {
                EnrollError::Remote(error) => error.reason().exit(),
                EnrollError::OtherService { .. } => ExitCode::Identity,
                _ => ExitCode::Failed,
            }
        }
    }
}

fn enroll(flags: &EnrollFlags) -> Result<(), EnrollError> {
    let files = OwnFiles::of_host(&flags.place.host)?;
    if let Some(service) = flags.service_key {
        let key = files.read_or_make(&files.key())?;
        pin(&files, flags.place.port.unwrap_or(SERVICE_PORT), service)?;
        let line = line(flags, &key);
        writeln!(io::stdout(), "for the service's file of authorized keys:\n  {line}")?;
        return print_command(flags, flags.place.port.unwrap_or(SERVICE_PORT));
    }
    let port = if flags.renew { renew(flags, &files)? } else { add(flags, &files)? };
    print_command(flags, port)
}

/// Adds this user's key at the service. Returns the service's port.
fn add(flags: &EnrollFlags, files: &OwnFiles) -> Result<u16, EnrollError> {
    let key = files.read_or_make(&files.key())?;
    let AuthorizedKey { key, peer, read, write } = line(flags, &key);
    let folders = [("--read", read), ("--write", write)];
    let folders = folders.iter().flat_map(|(flag, of)| of.iter().map(move |of| format!(" {flag}={of}")));
    let contact = ask(flags, &format!("add --json {key} {peer}{}", folders.collect::<String>()))?;
    let port = flags.place.port.unwrap_or(contact.port);
    pin(files, port, contact.key)?;
    let reached = reached(flags);
    files.note_reached(reached.as_deref())?;
    let address = format!("{}:{port}", reached.as_ref().unwrap_or(&flags.place.host));
    // A service that runs reads its keys again within a second.
    let proven = prove(address, PROOF_TIMEOUT, files.read_or_make(&files.key())?, contact.key);
    if let Err(EnrollError::Unproven { address, source }) = proven {
        let what = format!(
            "the key is listed, and the service at {address} does not accept it yet: {}\nhint: see that it runs, and that \
             this machine reaches it there",
            chain(&source)
        );
        // Standard error may be closed.
        let _ = io::stderr().write_all(messages::lines("note", &what).as_bytes());
    }
    Ok(port)
}

/// Returns the address that ssh reaches the host by, if only ssh knows the host by its name.
fn reached(flags: &EnrollFlags) -> Option<String> {
    let host = &flags.place.host;
    if (host.as_str(), SERVICE_PORT).to_socket_addrs().is_ok() {
        return None;
    }
    let rsh = near_end::shell(flags.rsh.as_deref());
    ssh_settings::address(&rsh, &flags.place.reached).filter(|address| !address.eq_ignore_ascii_case(host))
}

/// Puts a new key in the place of this user's. Both are accepted from the time when the new one is added until it has
/// shown that it works and is in its place; then the old one is revoked.
fn renew(flags: &EnrollFlags, files: &OwnFiles) -> Result<u16, EnrollError> {
    let nothing = || EnrollError::NothingToRenew(flags.place.host.clone());
    if !files.key().exists() {
        return Err(nothing());
    }
    let old = files.read_or_make(&files.key())?.public();
    let new = files.read_or_make(&files.next_key())?;
    let contact = ask(flags, &format!("add --json {} {} --like={old}", new.public(), user()))?;
    let port = flags.place.port.unwrap_or(contact.port);
    pin(files, port, contact.key)?;
    let (reached, timeout) = (reached(flags), flags.connect_timeout.unwrap_or(CONNECT_TIMEOUT));
    files.note_reached(reached.as_deref())?;
    prove(format!("{}:{port}", reached.as_ref().unwrap_or(&flags.place.host)), timeout, new, contact.key)?;
    fs::rename(files.next_key(), files.key()).map_err(EnrollError::Replace)?;
    let host = flags.place.host.clone();
    let is_done = |line: &str| line.starts_with(REVOKED) && line.ends_with(&format!(" {old}"));
    let revoked = command(flags, &format!("revoke {old}"), |line| Ok(is_done(line).then_some(())));
    revoked.map_err(|error| EnrollError::NotRevoked { old, host, source: Box::new(error) })?;
    Ok(port)
}

/// Shows the service a key that it was told of.
fn prove(address: String, timeout: Duration, key: OwnKey, service: PublicKey) -> Result<(), EnrollError> {
    let service = service.fingerprint();
    let identity = Identity::of_key(key, Side::Source, &service_job(service), service)?;
    show_key(&address, &identity, timeout, &Monitor::default())
        .map_err(|source| EnrollError::Unproven { address, source })
}

/// Notes the service's key, unless another one was known.
fn pin(files: &OwnFiles, port: u16, new: PublicKey) -> Result<(), EnrollError> {
    match files.service_key(port)? {
        Some(old) if old != new => {
            Err(EnrollError::OtherService { old, new, file: files.pin(port).display().to_string() })
        }
        Some(_) => Ok(()),
        None => Ok(files.set_service_key(port, new)?),
    }
}

/// Returns the line of this user for the service.
fn line(flags: &EnrollFlags, key: &OwnKey) -> AuthorizedKey {
    let granted = |of: EnrollAccess| {
        let is_granted = flags.access == of || flags.access == EnrollAccess::Both;
        flags.place.folder.iter().filter(|_| is_granted).cloned().collect()
    };
    AuthorizedKey {
        key: key.public(),
        peer: flags.name.clone().unwrap_or_else(user),
        read: granted(EnrollAccess::Read),
        write: granted(EnrollAccess::Write),
    }
}

/// Returns the name of this process's user and machine, in the characters of names.
fn user() -> String {
    let user = env::var("USER").or_else(|_| env::var("LOGNAME")).unwrap_or_else(|_| "user".into());
    let machine = uname().nodename().to_string_lossy().into_owned();
    let is_part = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    let part = |text: String| text.chars().filter(is_part).take(30).collect::<String>();
    format!("{}@{}", part(user), part(machine)).trim_start_matches(['.', '-', '@']).to_owned()
}

/// Has the far end carry out a command of `volferry peers` that answers with the service's key.
fn ask(flags: &EnrollFlags, words: &str) -> Result<ServiceContact, EnrollError> {
    command(flags, words, |line| match line.strip_prefix(ANSWER) {
        Some(answer) => serde_json::from_str(answer).map(Some),
        None => Ok(None),
    })
}

/// Runs `volferry peers` at the far end, and returns what the first line that `read` takes says.
fn command<T>(
    flags: &EnrollFlags,
    words: &str,
    read: impl Fn(&str) -> serde_json::Result<Option<T>>,
) -> Result<T, EnrollError> {
    let host = flags.place.reached.to_string_lossy().into_owned();
    let program = near_end::program(flags.remote_program.clone());
    let config = flags.config.replace('\'', r"'\''");
    let command = format!("{program} peers {words} --config='{config}'");
    let rsh = near_end::shell(flags.rsh.as_deref());
    let screen = Arc::new(Screen::new(false));
    let not_started = |source| {
        let program = rsh.first().map(|word| word.to_string_lossy().into_owned());
        RemoteError::Start { program: program.unwrap_or_default(), source }
    };
    let ssh = Ssh::start(&rsh, &flags.place.reached, command.as_ref(), &screen).map_err(not_started)?;
    let from = ssh.files().map_err(not_started)?.from;
    let within = flags.connect_timeout.unwrap_or(SSH_PATIENCE);
    let from = Heard::new(from, Some(ssh.expect_answer(within).map_err(not_started)?), false);
    for line in BufReader::new(from.take(MAX_ANSWER_BYTES)).lines().map_while(Result::ok) {
        match read(&line) {
            Ok(Some(answer)) => {
                ssh.end();
                return Ok(answer);
            }
            Ok(None) => {}
            Err(error) => {
                let source = GreetingError::Malformed(error.to_string());
                return Err(RemoteError::Greeting { host, source }.into());
            }
        }
    }
    let ended = GreetingError::Read(io::ErrorKind::UnexpectedEof.into());
    Err(explain(host, program, Some(within), CopyError::Greeting(ended), ssh).into())
}

/// Prints the line that works now.
fn print_command(flags: &EnrollFlags, port: u16) -> Result<(), EnrollError> {
    let host = &flags.place.host;
    let host = if port == SERVICE_PORT { host.clone() } else { format!("{host}:{port}") };
    let folder = flags.place.folder.as_deref().unwrap_or("FOLDER");
    let mut out = io::stdout().lock();
    if flags.access != EnrollAccess::Read {
        writeln!(out, "volferry sync SRC {host}::{folder}")?;
    }
    if flags.access != EnrollAccess::Write {
        writeln!(out, "volferry sync {host}::{folder} DST")?;
    }
    Ok(())
}
