//! `volferry remote`: the end of a run that another machine started by ssh. Standard input and output carry the
//! request, and then QUIC's packets.

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::ffi::OsStringExt as _,
    },
};

use clap::Parser as _;
use contract::{ExitCode, chain};
use rustix::stdio::dup2_stdout;
use syncer::session::{ByteStream, Exchange, Meets};
use thiserror::Error;

use super::{
    far_history::{self, FarHistory},
    greeting::{self, Answer, GreetingError, Request},
    link_to_starter::Started,
    near_end::JOB,
};
use crate::{
    config::{Config, ConfigError, Job, LinkConfig, Run, Surroundings},
    flags::Flags,
    run,
};

/// Why this end cannot do what it was asked.
#[derive(Debug, Error)]
enum FarError {
    #[error("cannot use standard input and output")]
    Stdio(#[from] io::Error),
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    #[error("cannot do what the other end asks: {0}")]
    Flags(String),
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// What the other end asks for.
enum FarJob {
    Run(Box<Run>),
    History(FarHistory),
}

/// Serves one run of the other end.
pub(crate) fn run() -> ExitCode {
    match serve() {
        Ok(FarJob::Run(run)) => run::run(*run),
        Ok(FarJob::History(history)) => far_history::run(history),
        Err(error) => {
            let _ = writeln!(io::stderr(), "volferry remote: {}", chain(&error));
            ExitCode::Usage
        }
    }
}

fn serve() -> Result<FarJob, FarError> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    // Nothing but packets and words may get among them.
    dup2_stdout(File::options().write(true).open("/dev/null")?).map_err(io::Error::from)?;
    let (mut from, mut to) = (File::from(input.try_clone()?), File::from(output.try_clone()?));
    let request = match greeting::hear::<Request>(&mut from, false) {
        Err(error @ GreetingError::OtherProtocol { .. }) => {
            // Tells the other end which protocol this is.
            greeting::say_bytes(&mut to, b"")?;
            return Err(error.into());
        }
        request => request?,
    };
    if request.contact.is_none() {
        let answer = Answer { version: env!("CARGO_PKG_VERSION").into(), contact: None };
        let Request { args, path, .. } = request;
        greeting::say(&mut to, &answer)?;
        return Ok(FarJob::History(FarHistory { args, path: OsString::from_vec(path).into(), from, to }));
    }
    let paths = if request.has_paths { Some(greeting::hear_bytes(&mut from, false)?) } else { None };
    Ok(FarJob::Run(Box::new(prepare(request, paths, input, output, to)?)))
}

/// Makes the run that was asked for.
fn prepare(
    request: Request,
    paths: Option<Vec<u8>>,
    input: OwnedFd,
    output: OwnedFd,
    to: File,
) -> Result<Run, FarError> {
    let Request { args, path, listens, contact, .. } = request;
    let contact = contact.ok_or_else(|| FarError::Flags("it has no contact".into()))?;
    let own = ["--quiet".into(), format!("--exchange={JOB}"), "--".into()];
    let line = ["volferry".into()].into_iter().chain(args).chain(own).map(OsString::from);
    let flags = Flags::try_parse_from(line.chain([OsString::from_vec(path)]));
    let flags = flags.map_err(|error| FarError::Flags(error.to_string()))?;
    let Config::Run(mut run) = Config::resolve(flags, Surroundings::here())? else {
        return Err(FarError::Flags("it is no run".into()));
    };
    let mut job = run.jobs.first_mut().map(|it| &mut it.job);
    if let (Some(Job::Send { params, .. }), Some(paths)) = (&mut job, paths) {
        let paths = paths.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        let list = params.files_from.get_or_insert_default();
        list.paths = paths.map(<[u8]>::to_vec).collect();
    }
    let Some(Job::Send { link, .. } | Job::Receive { link, .. }) = job else {
        return Err(FarError::Flags("it has both ends".into()));
    };
    let own_ip = own_address(env::var("SSH_CONNECTION").ok().as_deref());
    let listen = own_ip.filter(|_| listens).map(any_port);
    let LinkConfig::Exchanged(exchange) = link else {
        return Err(FarError::Flags("it has a link of its own".into()));
    };
    let meets = Meets::Started(listen, ByteStream::of_command(input, output));
    let exchange = Exchange { meets, job: JOB.into(), ..*exchange };
    *link = LinkConfig::Started(Box::new(Started { exchange, to, contact, own_ip }));
    Ok(*run)
}

/// Returns any port of all addresses in the family of `ip`.
fn any_port(ip: IpAddr) -> SocketAddr {
    match ip {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// Returns the address of this machine in sshd's variable: the addresses and ports of both ends, the client's first.
fn own_address(of_sshd: Option<&str>) -> Option<IpAddr> {
    of_sshd?.split(' ').nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_ssh_reached_is_the_third_word_of_its_variable() {
        assert_eq!(own_address(Some("10.0.0.1 5000 10.0.0.2 22")), Some([10, 0, 0, 2].into()));
        let six = own_address(Some("::1 5000 2001:db8::7 22"));
        assert_eq!(six.unwrap().to_string(), "2001:db8::7");
        for none in [None, Some(""), Some("UNKNOWN 65535 UNKNOWN 65535"), Some("a b fe80::1%eth0 22")] {
            assert_eq!(own_address(none), None, "{none:?}");
        }
    }
}
