use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use super::text;
use crate::process::{Daemon, free_port, run};

/// The programs of OpenSSH.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    pub(super) ssh: PathBuf,
    pub(super) sshd: PathBuf,
    pub(super) keygen: PathBuf,
}

impl Programs {
    /// Returns the client's version line.
    pub(super) fn version(&self) -> String {
        let line = run(Command::new("sh").args(["-c", &format!("{} -V 2>&1", self.ssh.display())]));
        line.unwrap_or_default().trim().to_string()
    }
}

/// A server that belongs to the bench, with fresh keys that both sides check.
pub(super) struct Server {
    _process: Daemon,
    /// The client settings that define the server's address and keys under the names [`HOST`] and `localhost`. rcp uses
    /// the second for its own end.
    config: PathBuf,
}

/// The server's name in the client's settings.
pub(super) const HOST: &str = "bench";

impl Server {
    /// Starts the server, with its keys and both ends' settings in `dir`.
    ///
    /// # Errors
    /// If a key cannot be created, or the server does not start to listen.
    pub(super) fn start(programs: &Programs, dir: &Path) -> anyhow::Result<Self> {
        // sshd does not start without this folder, which a service manager would create.
        fs::create_dir_all("/run/sshd").context("making /run/sshd (sshd needs it; run as root)")?;
        let port = free_port()?;
        make_keys(programs, dir, port)?;
        let [server_config, config] = ["sshd_config", "ssh_config"].map(|name| dir.join(name));
        fs::write(&server_config, sshd_config(dir, port))?;
        fs::write(&config, ssh_config(dir, port))?;
        let mut process = Daemon::start(&programs.sshd, &["-D", "-e", "-f", &text(&server_config)], dir)?;
        process.accepts(([127, 0, 0, 1], port).into())?;
        Ok(Self { _process: process, config })
    }

    /// Returns the path of the client's settings, for `ssh -F`.
    pub(super) fn config(&self) -> &Path {
        &self.config
    }
}

fn make_keys(programs: &Programs, dir: &Path, port: u16) -> anyhow::Result<()> {
    for name in ["host", "client"] {
        let flags = ["-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f"];
        run(Command::new(&programs.keygen).args(flags).arg(dir.join(name)))?;
    }
    fs::copy(dir.join("client.pub"), dir.join("authorized"))?;
    let host_key = fs::read_to_string(dir.join("host.pub"))?;
    fs::write(dir.join("known_hosts"), format!("[127.0.0.1]:{port} {host_key}"))?;
    Ok(())
}

fn sshd_config(dir: &Path, port: u16) -> String {
    let dir = dir.display();
    format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {dir}/host\nPidFile none\n\
         AuthorizedKeysFile {dir}/authorized\nPermitRootLogin prohibit-password\nStrictModes no\nUsePAM no\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nLogLevel ERROR\n"
    )
}

fn ssh_config(dir: &Path, port: u16) -> String {
    let dir = dir.display();
    format!(
        "Host {HOST} localhost\nHostName 127.0.0.1\nPort {port}\nIdentityFile {dir}/client\nIdentitiesOnly yes\nBatchMode yes\n\
         StrictHostKeyChecking yes\nUserKnownHostsFile {dir}/known_hosts\nLogLevel ERROR\n"
    )
}
