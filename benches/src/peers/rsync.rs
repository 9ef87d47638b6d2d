use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::{Peer, Place, Sample, content_of, number_after, version_line};
use crate::{
    process::{Daemon as Process, free_port, run_timed},
    verify::Fidelity,
};

/// The fidelity of rsync 3.5, which sets folders' times too; but after a folder of the root was renamed, its daemon
/// leaves the root with the time of its own last write.
pub(super) const FIDELITY: Fidelity = Fidelity::Files;

/// `rsync -a --delete` to an rsync daemon, without encryption.
pub(super) struct Daemon {
    program: PathBuf,
    server: Option<(Process, u16)>,
}

impl Daemon {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program, server: None }
    }
}

impl Peer for Daemon {
    fn name(&self) -> &'static str {
        "rsync daemon"
    }

    fn version(&self) -> String {
        version_line(&self.program, "--version")
    }

    fn fidelity(&self) -> Fidelity {
        FIDELITY
    }

    fn leaves_out(&self) -> &'static str {
        "encryption, checks, durability, hard links, holes, attributes"
    }

    fn begin(&mut self, place: &Place) -> anyhow::Result<()> {
        let (port, config) = (free_port()?, place.scratch.join("rsyncd.conf"));
        fs::write(&config, daemon_config(&place.destination))?;
        let args = ["--daemon", "--no-detach", "--address=127.0.0.1"];
        let own = [format!("--port={port}"), format!("--config={}", config.display())];
        let args: Vec<&str> = args.into_iter().chain(own.iter().map(String::as_str)).collect();
        let mut server = Process::start(&self.program, &args, &place.scratch)?;
        server.accepts(([127, 0, 0, 1], port).into())?;
        self.server = Some((server, port));
        Ok(())
    }

    fn run(&mut self, place: &Place) -> anyhow::Result<Sample> {
        let (_, port) = self.server.as_ref().context("the daemon does not run")?;
        let mut command = place.command(&self.program);
        command.args(["-a", "--delete", "--stats"]).arg(content_of(&place.source));
        command.arg(format!("rsync://127.0.0.1:{port}/tree/"));
        let done = run_timed(command, &place.scratch, place.limit)?;
        Ok(Sample { elapsed: done.elapsed, wire_bytes: wire_bytes(&done.stdout) })
    }

    fn end(&mut self) {
        self.server = None;
    }
}

/// Returns the bytes in both directions, as `--stats` counts them.
pub(super) fn wire_bytes(stats: &str) -> Option<u64> {
    let [sent, received] =
        ["sent", "received"].map(|way| number_after(stats, &format!("Total bytes {way}:")));
    Some(sent? + received?)
}

fn daemon_config(destination: &Path) -> String {
    // A daemon of root would otherwise write as `nobody`; one of another user must not have an owner set.
    let owner = if rustix::process::geteuid().is_root() { "uid = root\ngid = root\n" } else { "" };
    format!("use chroot = no\n[tree]\npath = {}\nread only = no\n{owner}", destination.display())
}
