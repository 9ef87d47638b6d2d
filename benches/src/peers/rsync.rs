use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use super::{Peer, Place, Sample, content_of, install::RsyncAndSsh, number_after, text, version_line};
use crate::{
    process::{Daemon as Process, free_port, run, run_timed},
    verify::Fidelity,
};

/// rsync 3.5 sets folders' times too, but when a folder of the root was renamed, its daemon leaves the root with the
/// time of rsync's own last write.
pub(super) const FIDELITY: Fidelity = Fidelity::Files;

/// `rsync -a --delete` to an rsync daemon: no encryption.
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
        measured(command, place)
    }

    fn end(&mut self) {
        self.server = None;
    }
}

/// `rsync -a --delete` over ssh, to a server of the bench's own with fresh keys that are checked on both sides.
pub(super) struct Ssh {
    programs: RsyncAndSsh,
    server: Option<(Process, u16)>,
}

impl Ssh {
    pub(super) fn new(programs: RsyncAndSsh) -> Self {
        Self { programs, server: None }
    }

    fn make_keys(&self, dir: &Path, port: u16) -> anyhow::Result<()> {
        for name in ["host", "client"] {
            let flags = ["-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f"];
            run(Command::new(&self.programs.keygen).args(flags).arg(dir.join(name)))?;
        }
        fs::copy(dir.join("client.pub"), dir.join("authorized"))?;
        let host_key = fs::read_to_string(dir.join("host.pub"))?;
        fs::write(dir.join("known_hosts"), format!("[127.0.0.1]:{port} {host_key}"))?;
        Ok(())
    }

    fn shell(&self, dir: &Path, port: u16) -> String {
        let (ssh, dir) = (self.programs.ssh.display(), dir.display());
        format!(
            "{ssh} -F none -p {port} -i {dir}/client -o IdentitiesOnly=yes -o BatchMode=yes \
             -o StrictHostKeyChecking=yes -o UserKnownHostsFile={dir}/known_hosts -o LogLevel=ERROR"
        )
    }
}

impl Peer for Ssh {
    fn name(&self) -> &'static str {
        "rsync ssh"
    }

    fn version(&self) -> String {
        let ssh = run(Command::new("sh").args(["-c", &format!("{} -V 2>&1", self.programs.ssh.display())]));
        let ssh = ssh.unwrap_or_default();
        format!("{}, {}", version_line(&self.programs.rsync, "--version"), ssh.trim())
    }

    fn fidelity(&self) -> Fidelity {
        FIDELITY
    }

    fn leaves_out(&self) -> &'static str {
        "checks, durability, hard links, holes, attributes"
    }

    fn begin(&mut self, place: &Place) -> anyhow::Result<()> {
        // sshd refuses to start without this folder, which a service manager would have made.
        fs::create_dir_all("/run/sshd").context("making /run/sshd (sshd needs it; run as root)")?;
        let port = free_port()?;
        self.make_keys(&place.scratch, port)?;
        let config = place.scratch.join("sshd_config");
        fs::write(&config, sshd_config(&place.scratch, port))?;
        let config = text(&config);
        let mut server = Process::start(&self.programs.sshd, &["-D", "-e", "-f", &config], &place.scratch)?;
        server.accepts(([127, 0, 0, 1], port).into())?;
        self.server = Some((server, port));
        Ok(())
    }

    fn run(&mut self, place: &Place) -> anyhow::Result<Sample> {
        let (_, port) = self.server.as_ref().context("sshd does not run")?;
        let mut command = place.command(&self.programs.rsync);
        command.args(["-a", "--delete", "--stats", "-e", &self.shell(&place.scratch, *port)]);
        command.arg(content_of(&place.source)).arg(format!("127.0.0.1:{}", content_of(&place.destination)));
        measured(command, place)
    }

    fn end(&mut self) {
        self.server = None;
    }
}

/// Both directions, by rsync's own count; over ssh that is what goes into ssh.
fn measured(command: Command, place: &Place) -> anyhow::Result<Sample> {
    let done = run_timed(command, &place.scratch, place.limit)?;
    let sent = number_after(&done.stdout, "Total bytes sent:");
    let received = number_after(&done.stdout, "Total bytes received:");
    Ok(Sample { elapsed: done.elapsed, wire_bytes: sent.zip(received).map(|(a, b)| a + b) })
}

fn daemon_config(destination: &Path) -> String {
    // Otherwise a daemon of root's would write as `nobody`; one of another user's may not be told an owner at all.
    let owner = if rustix::process::geteuid().is_root() { "uid = root\ngid = root\n" } else { "" };
    format!("use chroot = no\n[tree]\npath = {}\nread only = no\n{owner}", destination.display())
}

fn sshd_config(dir: &Path, port: u16) -> String {
    let dir = dir.display();
    format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {dir}/host\nPidFile none\n\
         AuthorizedKeysFile {dir}/authorized\nPermitRootLogin prohibit-password\nStrictModes no\nUsePAM no\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nLogLevel ERROR\n"
    )
}
