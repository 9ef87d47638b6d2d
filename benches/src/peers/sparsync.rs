use std::{path::PathBuf, process::Command};

use anyhow::Context as _;

use super::{Peer, Place, Sample, number_after, text, version_line};
use crate::{
    link::LinkConfig,
    process::{Daemon, free_port, run, run_timed},
    relay::Relay,
    verify::Fidelity,
};

/// The flags of sparsync's own benchmark (`scripts/bench_remote_rsync_vs_sparsync.sh` in its crate). With them, it
/// preserves no metadata and cannot delete.
const PUSH: [&str; 12] = [
    "--server-name",
    "localhost",
    "--parallel-files",
    "16",
    "--connections",
    "1",
    "--scan-workers",
    "8",
    "--hash-workers",
    "16",
    "--compression-level",
    "0",
];

/// `sparsync push` over QUIC to a waiting `sparsync serve`.
pub(super) struct Network {
    program: PathBuf,
    link: Option<LinkConfig>,
    server: Option<Server>,
}

struct Server {
    process: Daemon,
    relay: Option<Relay>,
    port: u16,
}

impl Network {
    pub(super) fn new(program: PathBuf, link: Option<LinkConfig>) -> Self {
        Self { program, link, server: None }
    }
}

impl Peer for Network {
    fn name(&self) -> &'static str {
        "sparsync"
    }

    fn version(&self) -> String {
        version_line(&self.program, "--version")
    }

    fn fidelity(&self) -> Fidelity {
        Fidelity::Content
    }

    fn leaves_out(&self) -> &'static str {
        "deletes, metadata, durability"
    }

    fn own_entries(&self) -> &'static [&'static str] {
        &[".sparsync"]
    }

    fn begin(&mut self, place: &Place) -> anyhow::Result<()> {
        let (cert, key) = (text(&place.scratch.join("cert")), text(&place.scratch.join("key")));
        let names = ["gen-cert", "--cert", &cert, "--key", &key, "--name", "localhost"];
        run(Command::new(&self.program).args(names))?;
        let port = free_port()?;
        let (bind, destination) = (format!("127.0.0.1:{port}"), text(&place.destination));
        let args = ["serve", "--bind", &bind, "--destination", &destination, "--cert", &cert, "--key", &key];
        let mut process = Daemon::start(&self.program, &args, &place.scratch)?;
        process.binds_udp(port)?;
        process.pause()?;
        let relay = match self.link {
            Some(link) => Some(Relay::start(
                link.with_round(place.round),
                ([127, 0, 0, 1], 0).into(),
                ([127, 0, 0, 1], port).into(),
            )?),
            None => None,
        };
        self.server = Some(Server { process, relay, port });
        Ok(())
    }

    fn run(&mut self, place: &Place) -> anyhow::Result<Sample> {
        let server = self.server.as_ref().context("the server does not run")?;
        let port = server.relay.as_ref().map_or(server.port, |relay| relay.address().port());
        let mut command = place.command(&self.program);
        command.arg("push").args(["--server", &format!("127.0.0.1:{port}")]).args(PUSH);
        command.arg("--ca").arg(place.scratch.join("cert")).arg("--source").arg(&place.source);
        server.process.resume()?;
        let done = run_timed(command, &place.scratch, place.limit);
        server.process.pause()?;
        let done = done?;
        Ok(Sample { elapsed: done.elapsed, wire_bytes: number_after(&done.stdout, "bytes_sent=") })
    }

    fn end(&mut self) {
        self.server = None;
    }
}
