use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, bail};
use contract::{Event, Report};
use testkit::{
    compare::Fidelity,
    link::LinkConfig,
    process::{Daemon, Finished, run, run_timed},
    relay::Relay,
};

use super::{About, Peer, Place, Sample, relay_to, start_daemon, text, version_line};
use crate::{network_namespaces::Ends, probe::Probe, suites::Mode};

/// The flags of every run. A run that renames the only folder of a tree deletes all previous files, which the guard
/// would refuse.
const FLAGS: [&str; 3] = ["--delete", "--delete-limit=100", "--progress=none"];

/// Volferry, the tool for which the benches are made.
#[derive(Debug)]
pub struct Volferry {
    pub(crate) program: PathBuf,
    /// The name in tables.
    pub(crate) name: &'static str,
    pub(crate) mode: Mode,
    /// The link through which two processes are connected, if they are.
    pub(crate) link: Option<LinkConfig>,
    /// The flags in addition to those of every run.
    pub(crate) flags: Vec<String>,
    /// The machines of the ends.
    pub(crate) ends: Ends,
}

/// One run.
#[derive(Debug)]
pub struct Measured {
    /// The time from the start to the end of the process at the source.
    pub elapsed: Duration,
    /// The run's own report.
    pub report: Report,
}

impl Volferry {
    /// Creates a peer of one process, or of two that are connected over loopback.
    pub fn new(program: PathBuf, mode: Mode) -> Self {
        Self { program, name: "volferry", mode, link: None, flags: Vec::new(), ends: Ends::default() }
    }

    /// Runs once, with each end under `probe`.
    pub fn measure(&self, place: &Place, probe: Probe) -> anyhow::Result<Measured> {
        match self.mode {
            Mode::Network => self.send(place, probe),
            Mode::Local => self.sync(place, probe),
        }
    }

    /// Returns the names of a run's ends, as [`Probe`] uses them.
    pub fn ends(&self) -> &'static [&'static str] {
        match self.mode {
            Mode::Network => &["source", "sink"],
            Mode::Local => &["source"],
        }
    }

    fn send(&self, place: &Place, probe: Probe) -> anyhow::Result<Measured> {
        let mut receiver = self.receiver(place, probe)?;
        let address = listening_address(&mut receiver)?;
        let relay = relay_to(address, self.link, place.round)?;
        let connect = relay.as_ref().map_or(address, Relay::address).to_string();
        let identity = text(&identities(place).join("source"));
        let args = ["send", &text(&place.source), "--connect", &connect, "--identity", &identity];
        let command = self.command(place, probe, &args);
        let done = run_timed(command, &place.scratch, place.limit);
        let done = done.with_context(|| format!("the receiving end said: {}", receiver.complaint()))?;
        receiver.finish(place.limit).context("the receiving end")?;
        measured(&done, place)
    }

    /// Starts a receiving end that listens.
    fn receiver(&self, place: &Place, probe: Probe) -> anyhow::Result<Daemon> {
        let identity = text(&identities(place).join("sink"));
        let destination = text(&place.destination);
        let mut words = self.ends.far();
        words.extend(probe.words(&place.scratch, "sink"));
        words.push(text(&self.program));
        let any_port = format!("{}:0", self.ends.far_ip());
        let args = ["receive", &destination, "--listen", &any_port, "--identity", &identity, "--once"];
        words.extend(args.map(String::from));
        start_daemon(&words, place)
    }

    fn sync(&self, place: &Place, probe: Probe) -> anyhow::Result<Measured> {
        let args = ["sync", &text(&place.source), &text(&place.destination)];
        let done = run_timed(self.command(place, probe, &args), &place.scratch, place.limit)?;
        measured(&done, place)
    }

    /// Returns the command of the end that is timed, with the flags of every run.
    fn command(&self, place: &Place, probe: Probe, args: &[&str]) -> Command {
        let mut words = self.ends.near();
        words.extend(probe.words(&place.scratch, "source"));
        words.push(text(&self.program));
        let mut command = place.command(Path::new(&words[0]));
        command.args(&words[1..]).args(args).args(FLAGS).args(&self.flags);
        command.arg("--report").arg(report_file(place));
        command
    }
}

impl Peer for Volferry {
    fn about(&self) -> About {
        About { name: self.name, fidelity: Fidelity::Full, leaves_out: "", own: &[".volferry"] }
    }

    fn version(&self) -> String {
        version_line(&self.program, "--version")
    }

    fn begin(&mut self, place: &Place) -> anyhow::Result<()> {
        // The keys are created by the program itself, as an older one may write them in another format.
        let mut command = place.command(&self.program);
        run(command.args(["keygen", "--out"]).arg(identities(place))).map(drop)
    }

    fn run(&mut self, place: &Place) -> anyhow::Result<Sample> {
        let Measured { elapsed, report } = self.measure(place, Probe::None)?;
        let wire_bytes = (self.mode == Mode::Network).then_some(report.work.bytes_on_wire);
        Ok(Sample { elapsed, wire_bytes })
    }
}

fn listening_address(receiver: &mut Daemon) -> anyhow::Result<SocketAddr> {
    let line = receiver.first_line()?;
    match serde_json::from_str(&line).with_context(|| format!("its first line was {line}"))? {
        Event::Listening { address } => Ok(address.parse()?),
        other => bail!("it should have said where it listens, and said {other:?}"),
    }
}

fn identities(place: &Place) -> PathBuf {
    place.scratch.join("identities")
}

fn report_file(place: &Place) -> PathBuf {
    place.scratch.join("report.json")
}

fn measured(done: &Finished, place: &Place) -> anyhow::Result<Measured> {
    let path = report_file(place);
    let bytes = fs::read(&path).with_context(|| format!("reading the report {}", path.display()))?;
    Ok(Measured { elapsed: done.elapsed, report: serde_json::from_slice(&bytes)? })
}
