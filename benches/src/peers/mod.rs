//! The measured tools, Volferry among them. Each knows how to prepare an empty destination, how to run once, and how
//! much of a tree it preserves.

mod install;
mod installed;
mod tar;
mod tools;
mod volferry;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use testkit::{
    compare::Fidelity,
    link::LinkConfig,
    process::{Daemon, run},
    relay::Relay,
};

#[cfg(test)]
pub(crate) use self::tools::CP;
use self::tools::{BTRFS_SEND, LINKS, LOCAL, RCP, RSYNC_DAEMON, RSYNC_SSH, SPARSYNC_PUSH};
pub use self::{
    install::{Missing, Programs, install},
    volferry::{Measured, Volferry},
};
pub(crate) use self::{installed::Installed, tools::Tool};
use crate::{
    network_namespaces::Ends,
    scenario::{Phase, Set},
    suites::Mode,
    workdir::FileSystem,
};

/// The paths and limits of one tool in one round.
#[derive(Debug, Clone)]
pub struct Place {
    /// The tree to copy from, which all tools share.
    pub source: PathBuf,
    /// This tool's copy.
    pub destination: PathBuf,
    /// The folder for its logs, keys and caches; empty at the start of a round.
    pub scratch: PathBuf,
    /// The number of the round, from 0.
    pub round: u64,
    /// The time limit of a run; a longer one has failed.
    pub limit: Duration,
}

impl Place {
    /// Returns a command with caches and settings that belong only to this round, and with no other variables: a
    /// program reads them all at its start, so that the counts of a run would depend on how many a machine has.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", &self.scratch).env("LC_ALL", "C");
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command
    }
}

/// The figures of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The time from the start to the end of the process at the source.
    pub elapsed: Duration,
    /// Bytes sent and received, if the tool reports them.
    pub wire_bytes: Option<u64>,
}

/// What tables and checks have to know of a tool.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// The name in tables.
    pub name: &'static str,
    /// The fidelity that its result must have.
    pub fidelity: Fidelity,
    /// The parts of Volferry's work that it does not do, for a reader of its figures.
    pub leaves_out: &'static str,
    /// The entries that it keeps for itself in the root of the destination.
    pub own: &'static [&'static str],
}

/// A tool that makes one tree equal to another.
pub trait Peer {
    /// Returns what tables and checks have to know of it.
    fn about(&self) -> About;

    /// Returns the program's own version line.
    fn version(&self) -> String;

    /// Returns whether it can do the step at all.
    fn takes_part(&self, _phase: &Phase) -> bool {
        true
    }

    /// Starts the server at the destination, if any. Called before each round, with an empty scratch folder and an
    /// empty destination.
    fn begin(&mut self, place: &Place) -> anyhow::Result<()>;

    /// Runs once, and returns how long it took.
    fn run(&mut self, place: &Place) -> anyhow::Result<Sample>;

    /// Stops what [`Peer::begin`] started.
    fn end(&mut self) {}
}

/// A tool's name and version, for the head of a table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Named {
    /// The name in the table.
    pub name: String,
    /// The version, as the program reports it.
    pub version: String,
    /// The parts of Volferry's work that it does not do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub leaves_out: String,
}

impl Named {
    /// Returns the head of a peer's column.
    pub fn of(peer: &dyn Peer) -> Self {
        let About { name, leaves_out, .. } = peer.about();
        Self { name: name.into(), version: peer.version(), leaves_out: leaves_out.into() }
    }
}

/// Returns the tools of a set that can be measured on that file system, Volferry first. Without a `link`, both ends are
/// on one machine.
pub fn of_set(
    set: Set,
    link: Option<LinkConfig>,
    file_system: FileSystem,
    programs: &Programs,
) -> anyhow::Result<Found> {
    let mut found = Found::default();
    match (set, link) {
        (Set::Network, None) => found.add_network(programs),
        (Set::Network, Some(link)) => found.add_over_link(link, programs),
        (Set::Ssh, link) => found.add_ways(link, programs)?,
        (Set::Local, _) => found.add_local(file_system, programs),
    }
    found.missing.dedup();
    Ok(found)
}

/// Volferry's name in the table of a link, where it runs over the same link without its delay and losses.
pub const DIRECT: &str = "volferry, no delay";

/// The tools of a set.
#[derive(Default)]
pub struct Found {
    /// Those that can be measured.
    pub peers: Vec<Box<dyn Peer>>,
    /// Those that are not installed on this machine.
    pub missing: Vec<Missing>,
}

impl Found {
    fn add_network(&mut self, programs: &Programs) {
        self.add(programs.volferry(), |program| Box::new(Volferry::new(program, Mode::Network)));
        self.add_tools(&[RSYNC_DAEMON, RSYNC_SSH, SPARSYNC_PUSH, RCP], programs, |_| ());
        self.add(programs.tar(), |program| Box::new(tar::Tar::new(program)));
    }

    fn add_local(&mut self, file_system: FileSystem, programs: &Programs) {
        self.add(programs.volferry(), |program| Box::new(Volferry::new(program, Mode::Local)));
        self.add_tools(&LOCAL, programs, |_| ());
        if file_system == FileSystem::Btrfs {
            self.add_tools(&[BTRFS_SEND], programs, |_| ());
        }
    }

    /// Adds the tools that use UDP, connected by the relay: Volferry over a link without delay or loss, and Volferry
    /// and sparsync over `link`.
    fn add_over_link(&mut self, link: LinkConfig, programs: &Programs) {
        let direct = LinkConfig { rtt: Duration::ZERO, loss: 0.0, reorder: 0.0, ..link };
        for (name, link) in [("volferry", link), (DIRECT, direct)] {
            let over = |program| Volferry { name, link: Some(link), ..Volferry::new(program, Mode::Network) };
            self.add(programs.volferry(), |program| Box::new(over(program)));
        }
        self.add_tools(&[SPARSYNC_PUSH], programs, |tool| tool.link = Some(link));
    }

    /// Adds Volferry, as `send` and `receive` and over each kind of link between ends that ssh started, and its peers
    /// over ssh.
    fn add_ways(&mut self, link: Option<LinkConfig>, programs: &Programs) -> anyhow::Result<()> {
        let ends = link.map(Ends::joined_by).transpose()?.unwrap_or_default();
        self.add(programs.volferry(), |program| {
            Box::new(Volferry { ends: ends.clone(), ..Volferry::new(program, Mode::Network) })
        });
        let at_localhost: &[Tool] = if link.is_none() { &[RCP] } else { &[] };
        for tools in [&LINKS, &[RSYNC_SSH][..], at_localhost] {
            self.add_tools(tools, programs, |tool| tool.ends = ends.clone());
        }
        Ok(())
    }

    fn add_tools(&mut self, tools: &[Tool], programs: &Programs, set: impl Fn(&mut Installed)) {
        for tool in tools {
            self.add(programs.tool(tool), |program| {
                let mut installed = Installed::new(*tool, program);
                set(&mut installed);
                Box::new(installed)
            });
        }
    }

    fn add(&mut self, program: Result<PathBuf, Missing>, peer: impl FnOnce(PathBuf) -> Box<dyn Peer>) {
        match program {
            Ok(program) => self.peers.push(peer(program)),
            Err(missing) => self.missing.push(missing),
        }
    }
}

/// Starts what waits at the destination, by the words of its command line.
fn start_daemon(words: &[String], place: &Place) -> anyhow::Result<Daemon> {
    let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    Daemon::start(Path::new(&words[0]), &args, &place.scratch)
}

/// Starts the relay that is the `link` to an address, if there is one.
fn relay_to(address: SocketAddr, link: Option<LinkConfig>, round: u64) -> anyhow::Result<Option<Relay>> {
    let local = ([127, 0, 0, 1], 0).into();
    link.map(|link| Relay::start(link.with_round(round), local, address)).transpose()
}

/// Returns the first line that `program` prints when asked for its version.
fn version_line(program: &Path, flag: &str) -> String {
    let mut command = Command::new(program);
    let out = run(command.arg(flag)).unwrap_or_else(|error| format!("unknown ({error})"));
    out.lines().next().unwrap_or_default().trim().to_string()
}

/// Returns the number in `text` after `label`, ignoring commas within it.
fn number_after(text: &str, label: &str) -> Option<u64> {
    let (_, rest) = text.split_once(label)?;
    let is_other = |char: char| !char.is_ascii_digit() && char != ',';
    rest.trim_start().split(is_other).next()?.replace(',', "").parse().ok()
}

/// Returns `path` as text for an argument; the work folder's path is always UTF-8.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_with_their_commas() {
        let stats = "Total bytes sent: 20,954,112\nTotal bytes received: 19,248\n";
        assert_eq!(number_after(stats, "Total bytes sent:"), Some(20_954_112));
        assert_eq!(number_after(stats, "Total bytes received:"), Some(19_248));
        assert_eq!(number_after(stats, "Total bytes lost:"), None);
    }
}
