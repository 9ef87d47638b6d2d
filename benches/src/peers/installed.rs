use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use testkit::{
    link::LinkConfig,
    ports,
    process::{Daemon, find_program, run, run_timed},
    relay::Relay,
    sshd::Sshd,
};

use super::{
    About, Peer, Place, Sample, relay_to, start_daemon, text,
    tools::{Server, Tool},
    version_line,
};
use crate::{network_namespaces::Ends, scenario::Phase};

/// A tool of the table that is installed here.
pub(crate) struct Installed {
    tool: Tool,
    program: PathBuf,
    /// What lies before the server.
    pub(super) link: Option<LinkConfig>,
    /// The machines of the ends.
    pub(super) ends: Ends,
    round: Option<Round>,
}

/// What a round has started.
struct Round {
    place: Place,
    /// The server's address, or that of the relay to it.
    address: SocketAddr,
    server: Option<Daemon>,
    _relay: Option<Relay>,
    _sshd: Option<Sshd>,
}

impl Installed {
    pub(crate) fn new(tool: Tool, program: PathBuf) -> Self {
        Self { tool, program, link: None, ends: Ends::default(), round: None }
    }

    /// Returns the variables of scripts and commands.
    fn variables(&self, place: &Place, address: SocketAddr) -> [(&'static str, String); 6] {
        [
            ("program", text(&self.program)),
            ("folder", self.program.parent().map(text).unwrap_or_default()),
            ("source", text(&place.source)),
            ("destination", text(&place.destination)),
            ("scratch", text(&place.scratch)),
            ("port", address.port().to_string()),
        ]
    }

    fn words(&self, command: &str, place: &Place, address: SocketAddr) -> Vec<String> {
        let variables = self.variables(place, address);
        let fill = |word: String, (name, value): &(&str, String)| word.replace(&format!("{{{name}}}"), value);
        command.split_whitespace().map(|word| variables.iter().fold(word.into(), fill)).collect()
    }

    /// Runs a script that is not measured.
    fn script(&self, script: &str, place: &Place, address: SocketAddr) -> anyhow::Result<()> {
        if script.is_empty() {
            return Ok(());
        }
        let mut command = place.command(Path::new("sh"));
        command.args(["-euc", script]).current_dir(&place.scratch).envs(self.variables(place, address));
        run(&mut command).map(drop)
    }

    fn start_server(&self, place: &Place, address: SocketAddr) -> anyhow::Result<Option<Daemon>> {
        if self.tool.serve.is_empty() {
            return Ok(None);
        }
        let mut server = start_daemon(&self.words(self.tool.serve, place, address), place)?;
        if self.tool.server == Server::PollingUdp {
            server.binds_udp(address.port())?;
            server.pause()?;
        } else {
            server.accepts(address)?;
        }
        Ok(Some(server))
    }

    /// Starts sshd at the far end, and writes a command named `ssh` with its settings, so that no tool needs flags.
    fn start_sshd(&self, place: &Place) -> anyhow::Result<Option<Sshd>> {
        if self.tool.server != Server::Ssh {
            return Ok(None);
        }
        let sshd = Sshd::start_at(self.ends.far_ip(), self.ends.far())?;
        let ssh = find_program("ssh").context("no ssh")?;
        fs::create_dir(commands(place))?;
        let path = commands(place).join("ssh");
        let exec = format!("exec '{}' -F '{}' \"$@\"", ssh.display(), sshd.config().display());
        fs::write(&path, format!("#!/bin/sh\n{exec}\n"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(Some(sshd))
    }
}

impl Peer for Installed {
    fn about(&self) -> About {
        let Tool { name, fidelity, leaves_out, own, .. } = self.tool;
        About { name, fidelity, leaves_out, own }
    }

    fn version(&self) -> String {
        let version = version_line(&self.program, self.tool.version_flag);
        if self.tool.server != Server::Ssh {
            return version;
        }
        let ssh = run(Command::new("sh").args(["-c", "ssh -V 2>&1"])).unwrap_or_default();
        format!("{version}, {}", ssh.trim())
    }

    fn takes_part(&self, phase: &Phase) -> bool {
        !self.tool.only_copies || phase.name == "first"
    }

    fn begin(&mut self, place: &Place) -> anyhow::Result<()> {
        let mut address = ports::unused();
        self.script(self.tool.setup, place, address)?;
        let server = self.start_server(place, address)?;
        let relay = relay_to(address, self.link, place.round)?;
        address = relay.as_ref().map_or(address, Relay::address);
        let sshd = self.start_sshd(place)?;
        self.round = Some(Round { place: place.clone(), address, server, _relay: relay, _sshd: sshd });
        Ok(())
    }

    fn run(&mut self, place: &Place) -> anyhow::Result<Sample> {
        let round = self.round.as_ref().context("the round has not begun")?;
        self.script(self.tool.before, place, round.address)?;
        let mut words = self.ends.near();
        words.extend(self.words(self.tool.run, place, round.address));
        let mut command = place.command(Path::new(&words[0]));
        let path = std::env::var_os("PATH").context("PATH is not set")?;
        let folders = std::iter::once(commands(place)).chain(std::env::split_paths(&path));
        command.args(&words[1..]).current_dir(&place.scratch).env("PATH", std::env::join_paths(folders)?);
        let polls = round.server.iter().filter(|_| self.tool.server == Server::PollingUdp);
        polls.clone().try_for_each(Daemon::resume)?;
        let done = run_timed(command, &place.scratch, place.limit);
        polls.clone().try_for_each(Daemon::pause)?;
        let done = done?;
        self.script(self.tool.after, place, round.address)?;
        Ok(Sample { elapsed: done.elapsed, wire_bytes: (self.tool.wire_bytes)(&done.stdout) })
    }

    fn end(&mut self) {
        let Some(round) = self.round.take() else { return };
        if let Err(error) = self.script(self.tool.end, &round.place, round.address) {
            eprintln!("after a round of {}: {error:#}", self.tool.name);
        }
    }
}

fn commands(place: &Place) -> PathBuf {
    place.scratch.join("commands")
}
