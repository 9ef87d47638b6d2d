use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use contract::{Event, IdentityPair, Report};

use super::{Peer, Place, Sample, scratch_dir, text, version_line};
use crate::{
    link::LinkConfig,
    process::{Daemon, run_timed},
    relay::Relay,
    verify::Fidelity,
};

/// A run that renames the only folder of a tree deletes all that was there before; the guard would refuse it.
const FLAGS: [&str; 3] = ["--delete", "--delete-limit=100", "--progress=none"];

enum Mode {
    /// `send` to a waiting `receive`, perhaps through the relay.
    Network(Option<LinkConfig>),
    /// `sync`.
    Local,
}

/// The tool that all this is for.
pub struct Volferry {
    program: PathBuf,
    name: &'static str,
    mode: Mode,
}

impl Volferry {
    /// Two processes with loopback between them.
    pub fn network(program: PathBuf) -> Self {
        Self { program, name: "volferry", mode: Mode::Network(None) }
    }

    pub(super) fn local(program: PathBuf) -> Self {
        Self { program, name: "volferry", mode: Mode::Local }
    }

    pub(super) fn linked(program: PathBuf, name: &'static str, link: LinkConfig) -> Self {
        Self { program, name, mode: Mode::Network(Some(link)) }
    }

    /// Runs once over loopback, and returns what the run says of itself.
    ///
    /// # Errors
    /// Where an end fails or has not ended in time.
    pub fn report(&self, place: &Place) -> anyhow::Result<Report> {
        self.send(place, None).map(|(_, report)| report)
    }

    fn send(&self, place: &Place, link: Option<LinkConfig>) -> anyhow::Result<(Duration, Report)> {
        let (receiver, address) = self.receiver(place)?;
        let relay = match link {
            Some(link) => {
                Some(Relay::start(link.with_round(place.round), ([127, 0, 0, 1], 0).into(), address)?)
            }
            None => None,
        };
        let connect = relay.as_ref().map_or(address, Relay::address);
        let report = place.scratch.join("report.json");
        let mut command = place.command(&self.program);
        command.arg("send").arg(&place.source).args(FLAGS);
        command.args(["--connect", &connect.to_string(), "--identity"]).arg(identities(place).join("source"));
        command.arg("--report").arg(&report);
        let done = run_timed(command, &place.scratch, place.limit);
        let done = done.with_context(|| format!("the receiving end said: {}", receiver.complaint()))?;
        receiver.finish(place.limit).context("the receiving end")?;
        Ok((done.elapsed, read_report(&report)?))
    }

    /// A receiving end that listens.
    fn receiver(&self, place: &Place) -> anyhow::Result<(Daemon, SocketAddr)> {
        let identity = text(&identities(place).join("sink"));
        let destination = text(&place.destination);
        let args = ["receive", &destination, "--listen", "127.0.0.1:0", "--identity", &identity, "--once"];
        let mut receiver = Daemon::start(&self.program, &args, &place.scratch)?;
        let line = receiver.first_line()?;
        match serde_json::from_str(&line).with_context(|| format!("its first line was {line}"))? {
            Event::Listening { address } => Ok((receiver, address.parse()?)),
            other => bail!("it should have said where it listens, and said {other:?}"),
        }
    }

    fn sync(&self, place: &Place) -> anyhow::Result<Sample> {
        let mut command = place.command(&self.program);
        command.arg("sync").arg(&place.source).arg(&place.destination).args(FLAGS);
        let done = run_timed(command, &place.scratch, place.limit)?;
        Ok(Sample { elapsed: done.elapsed, wire_bytes: None })
    }
}

impl Peer for Volferry {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> String {
        version_line(&self.program, "--version")
    }

    fn fidelity(&self) -> Fidelity {
        Fidelity::Full
    }

    fn own_entries(&self) -> &'static [&'static str] {
        &[".volferry"]
    }

    fn begin(&mut self, place: &Place) -> anyhow::Result<()> {
        scratch_dir(place, "identities")?;
        Ok(IdentityPair::generate("benches")?.write(&identities(place))?)
    }

    fn run(&mut self, place: &Place) -> anyhow::Result<Sample> {
        match self.mode {
            Mode::Network(link) => {
                let (elapsed, report) = self.send(place, link)?;
                Ok(Sample { elapsed, wire_bytes: Some(report.work.bytes_on_wire) })
            }
            Mode::Local => self.sync(place),
        }
    }
}

fn identities(place: &Place) -> PathBuf {
    place.scratch.join("identities")
}

fn read_report(path: &Path) -> anyhow::Result<Report> {
    let bytes = fs::read(path).with_context(|| format!("reading the report {}", path.display()))?;
    Ok(serde_json::from_slice(&bytes)?)
}
