//! An sshd of a test's or bench's own: with its keys, its configuration and a free port, possibly in a network
//! namespace.

use std::{
    ffi::OsStr,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use tempfile::TempDir;

use crate::{
    ports,
    process::{Daemon, find_program, run},
};

/// A running sshd, and what a client needs to reach it as the host [`HOST`]. It ends when dropped.
#[derive(Debug)]
pub struct Sshd {
    dir: TempDir,
    _process: Daemon,
    namespace: Option<Namespace>,
}

/// The server's name in the client's settings, beside `localhost` and its address.
pub const HOST: &str = "far";

impl Sshd {
    /// Starts sshd on the loopback interface.
    pub fn start() -> Self {
        Self::start_in(None)
    }

    /// Starts sshd in a namespace.
    pub fn start_in(namespace: Option<Namespace>) -> Self {
        let before = namespace.as_ref().map(Namespace::words).unwrap_or_default();
        let mut sshd = Self::start_at(Ipv4Addr::LOCALHOST.into(), before).unwrap();
        sshd.namespace = namespace;
        sshd
    }

    /// Starts sshd at a free port of an address, by a command that begins with the words `before`.
    pub fn start_at(ip: IpAddr, before: Vec<String>) -> anyhow::Result<Self> {
        let program = find_program("sshd").context("no sshd\nhint: `.ci/tools test` installs it")?;
        // sshd looks for this folder if it is started by root.
        let _ = fs::create_dir("/run/sshd");
        let dir = tempfile::tempdir()?;
        for key in ["host", "other-host", "client"] {
            let file = dir.path().join(key);
            run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file))?;
        }
        fs::copy(dir.path().join("client.pub"), dir.path().join("authorized"))?;
        let [config, listens] = ["sshd_config", "pid"].map(|name| dir.path().join(name));
        let mut words = before;
        words.extend(
            [&program, Path::new("-D"), Path::new("-e"), Path::new("-f"), &config]
                .map(|word| word.display().to_string()),
        );
        let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        loop {
            write_files(dir.path(), SocketAddr::new(ip, ports::unused().port()))?;
            let mut process = Daemon::start(Path::new(&words[0]), &args, dir.path())?;
            // It writes the file once it listens.
            match process.until(|| listens.exists()) {
                Ok(()) => return Ok(Self { dir, _process: process, namespace: None }),
                Err(_) if process.complaint().contains("Address already in use") => {}
                Err(error) => return Err(error.context("starting sshd")),
            }
        }
    }

    /// Returns the path of the client's settings, for `ssh -F`.
    pub fn config(&self) -> PathBuf {
        self.dir.path().join("ssh_config")
    }

    /// Returns the flag for the command that reaches the host `far`.
    pub fn rsh(&self) -> String {
        self.rsh_with("")
    }

    /// Returns that flag with more flags of ssh.
    pub fn rsh_with(&self, flags: &str) -> String {
        format!("--rsh=ssh -F {} {flags}", self.config().display())
    }

    /// Makes the client expect another key of the host.
    pub fn expect_another_key(&self) {
        let path = self.dir.path().join("other-host.pub");
        write_known_hosts(self.dir.path(), &path).unwrap();
    }

    /// Returns the folder whose programs the far end finds first.
    pub fn programs(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    /// Returns the folder in which the far end keeps copies of programs.
    pub fn cache(&self) -> PathBuf {
        self.dir.path().join("cache/volferry")
    }

    /// Writes a shell script; returns its path.
    pub fn script(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Returns a command that runs `program` where sshd runs.
    pub fn command(&self, program: &Path) -> Command {
        command_in(self.namespace.as_ref(), program.as_os_str())
    }
}

fn write_files(dir: &Path, address: SocketAddr) -> anyhow::Result<()> {
    let (dir_name, ip, port) = (dir.display(), address.ip(), address.port());
    let server = format!(
        "Port {port}\nListenAddress {ip}\nHostKey {dir_name}/host\nPidFile {dir_name}/pid\n\
         AuthorizedKeysFile {dir_name}/authorized\n\
         SetEnv XDG_CACHE_HOME={dir_name}/cache PATH={dir_name}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin\nUsePAM no\nStrictModes no\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nMaxStartups 100\nPermitRootLogin yes\n"
    );
    fs::write(dir.join("sshd_config"), server)?;
    let client = format!(
        "Host {HOST} localhost {ip}\nHostName {ip}\nPort {port}\nIdentityFile {dir_name}/client\nIdentitiesOnly yes\n\
         UserKnownHostsFile {dir_name}/known_hosts\nHostKeyAlias {HOST}\nStrictHostKeyChecking yes\nBatchMode yes\n"
    );
    fs::write(dir.join("ssh_config"), client)?;
    write_known_hosts(dir, &dir.join("host.pub"))
}

fn write_known_hosts(dir: &Path, key: &Path) -> anyhow::Result<()> {
    Ok(fs::write(dir.join("known_hosts"), format!("{HOST} {}", fs::read_to_string(key)?))?)
}

/// A network namespace with only a loopback interface, which drops the packets of one protocol. It ends when dropped.
#[derive(Debug)]
pub struct Namespace {
    holder: Daemon,
    _logs: TempDir,
}

impl Namespace {
    /// Makes a namespace that drops UDP or TCP (`protocol`). Only root can.
    pub fn without(protocol: &str) -> Self {
        let script = format!(
            "ip link set lo up && nft add table inet t && \
             nft 'add chain inet t i {{ type filter hook input priority 0; }}' && \
             nft add rule inet t i meta l4proto {protocol} drop && echo ready && exec sleep 600"
        );
        let logs = tempfile::tempdir().unwrap();
        let mut holder =
            Daemon::start(Path::new("unshare"), &["--net", "sh", "-c", &script], logs.path()).unwrap();
        let line = holder.first_line();
        let needs = "no namespace: this needs root, and Debian's packages iproute2 and nftables";
        assert_eq!(line.expect(needs), "ready\n", "{needs}");
        Self { holder, _logs: logs }
    }

    /// Returns the words before a command in the namespace.
    fn words(&self) -> Vec<String> {
        vec!["nsenter".into(), format!("--net=/proc/{}/ns/net", self.holder.id())]
    }
}

/// Returns a command that runs `program` in a namespace, or here.
pub fn command_in(namespace: Option<&Namespace>, program: &OsStr) -> Command {
    let Some(namespace) = namespace else { return Command::new(program) };
    let words = namespace.words();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg(program);
    command
}
