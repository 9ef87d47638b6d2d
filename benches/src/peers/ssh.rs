use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use super::text;
use crate::{
    ends::Ends,
    process::{Daemon, free_port, run},
};

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
    /// Starts the server at the far end, with its keys and both ends' settings in `dir`.
    ///
    /// # Errors
    /// If a key cannot be created, or the server does not start to listen.
    pub(super) fn start(programs: &Programs, dir: &Path, ends: &Ends) -> anyhow::Result<Self> {
        // sshd does not start without this folder, which a service manager would create.
        fs::create_dir_all("/run/sshd").context("making /run/sshd (sshd needs it; run as root)")?;
        let address = SocketAddr::new(ends.far_ip(), free_port()?);
        make_keys(programs, dir, address)?;
        let [server_config, config, listens] =
            ["sshd_config", "ssh_config", "pid"].map(|name| dir.join(name));
        fs::write(&server_config, sshd_config(dir, address))?;
        fs::write(&config, ssh_config(dir, address))?;
        let mut words = ends.far();
        words.extend([text(&programs.sshd), "-D".into(), "-e".into(), "-f".into(), text(&server_config)]);
        let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let mut process = Daemon::start(Path::new(&words[0]), &args, dir)?;
        // It writes the file once it listens.
        process.until(|| listens.exists())?;
        Ok(Self { _process: process, config })
    }

    /// Returns the path of the client's settings, for `ssh -F`.
    pub(super) fn config(&self) -> &Path {
        &self.config
    }
}

fn make_keys(programs: &Programs, dir: &Path, address: SocketAddr) -> anyhow::Result<()> {
    for name in ["host", "client"] {
        let flags = ["-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f"];
        run(Command::new(&programs.keygen).args(flags).arg(dir.join(name)))?;
    }
    fs::copy(dir.join("client.pub"), dir.join("authorized"))?;
    let host_key = fs::read_to_string(dir.join("host.pub"))?;
    fs::write(dir.join("known_hosts"), format!("[{}]:{} {host_key}", address.ip(), address.port()))?;
    Ok(())
}

fn sshd_config(dir: &Path, address: SocketAddr) -> String {
    let (dir, ip, port) = (dir.display(), address.ip(), address.port());
    format!(
        "Port {port}\nListenAddress {ip}\nHostKey {dir}/host\nPidFile {dir}/pid\n\
         AuthorizedKeysFile {dir}/authorized\nPermitRootLogin prohibit-password\nStrictModes no\nUsePAM no\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nLogLevel ERROR\n"
    )
}

fn ssh_config(dir: &Path, address: SocketAddr) -> String {
    let (dir, ip, port) = (dir.display(), address.ip(), address.port());
    format!(
        "Host {HOST} localhost\nHostName {ip}\nPort {port}\nIdentityFile {dir}/client\nIdentitiesOnly yes\nBatchMode yes\n\
         StrictHostKeyChecking yes\nUserKnownHostsFile {dir}/known_hosts\nLogLevel ERROR\n"
    )
}
