//! An sshd of a test's own: with its keys, its configuration and a free port of this machine, possibly in a network
//! namespace that drops some packets.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
};

use tempfile::TempDir;

use super::{ports, process::PATIENCE};

const SSHD: &str = "/usr/sbin/sshd";

/// A running sshd, and what a client needs to reach it as the host `far`. It ends when dropped.
#[derive(Debug)]
pub struct Sshd {
    dir: TempDir,
    process: Child,
    namespace: Option<Namespace>,
}

impl Sshd {
    /// Starts sshd on the loopback interface.
    pub fn start() -> Self {
        Self::start_in(None)
    }

    /// Starts sshd in a namespace.
    pub fn start_in(namespace: Option<Namespace>) -> Self {
        assert!(
            Path::new(SSHD).exists(),
            "no {SSHD}: `.ci/tools test` installs it (Debian's package openssh-server)"
        );
        // sshd looks for this folder if it is started by root.
        let _ = fs::create_dir("/run/sshd");
        let dir = tempfile::tempdir().unwrap();
        for key in ["host", "other-host", "client"] {
            let file = dir.path().join(key);
            quiet(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file));
        }
        fs::copy(dir.path().join("client.pub"), dir.path().join("authorized")).unwrap();
        loop {
            let port = ports::unused().port();
            write_files(dir.path(), port);
            if let Some(process) = serve(dir.path(), namespace.as_ref()) {
                return Self { dir, process, namespace };
            }
        }
    }

    /// Returns the flag for the command that reaches the host `far`.
    pub fn rsh(&self) -> String {
        self.rsh_with("")
    }

    /// Returns that flag with more flags of ssh.
    pub fn rsh_with(&self, flags: &str) -> String {
        format!("--rsh=ssh -F {} {flags}", self.dir.path().join("ssh_config").display())
    }

    /// Makes the client expect another key of the host.
    pub fn expect_another_key(&self) {
        let path = self.dir.path().join("other-host.pub");
        write_known_hosts(self.dir.path(), &path);
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

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write_files(dir: &Path, port: u16) {
    let at = |name: &str| dir.join(name).display().to_string();
    let server = [
        format!("Port {port}"),
        "ListenAddress 127.0.0.1".into(),
        format!("HostKey {}", at("host")),
        format!("AuthorizedKeysFile {}", at("authorized")),
        format!("SetEnv XDG_CACHE_HOME={}", at("cache")),
        "PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nMaxStartups 100".into(),
        "PermitRootLogin yes".into(),
    ];
    fs::write(dir.join("sshd_config"), server.join("\n") + "\n").unwrap();
    let client = [
        "Host far 127.0.0.1".into(),
        "HostName 127.0.0.1".into(),
        format!("Port {port}"),
        format!("IdentityFile {}", at("client")),
        format!("UserKnownHostsFile {}", at("known_hosts")),
        "HostKeyAlias far\nIdentitiesOnly yes\nStrictHostKeyChecking yes\nBatchMode yes".into(),
    ];
    fs::write(dir.join("ssh_config"), client.join("\n") + "\n").unwrap();
    write_known_hosts(dir, &dir.join("host.pub"));
}

fn write_known_hosts(dir: &Path, key: &Path) {
    fs::write(dir.join("known_hosts"), format!("far {}", fs::read_to_string(key).unwrap())).unwrap();
}

/// Starts sshd, and waits until it listens; `None` if its port was taken meanwhile.
fn serve(dir: &Path, namespace: Option<&Namespace>) -> Option<Child> {
    let mut command = command_in(namespace, OsStr::new(SSHD));
    command.args(["-D", "-e", "-f"]).arg(dir.join("sshd_config"));
    let mut process = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = process.stderr.take().unwrap();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let listens = |line: &String| line.contains("Server listening on");
        let mut said = String::new();
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            said = said + &line + "\n";
            if listens(&line) {
                let _ = tell.send(Ok(()));
            }
        }
        let _ = tell.send(Err(said));
    });
    match told.recv_timeout(PATIENCE).expect("sshd does not start") {
        Ok(()) => Some(process),
        Err(said) if said.contains("Address already in use") => None,
        Err(said) => panic!("sshd: {said}"),
    }
}

/// A network namespace with only a loopback interface, which drops the packets of one protocol. It ends when dropped.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
}

impl Namespace {
    /// Makes a namespace that drops UDP or TCP (`protocol`). Only root can.
    pub fn without(protocol: &str) -> Self {
        let script = format!(
            "ip link set lo up && nft add table inet t && \
             nft 'add chain inet t i {{ type filter hook input priority 0; }}' && \
             nft add rule inet t i meta l4proto {protocol} drop && echo ready && exec sleep 600"
        );
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", &script]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut holder = command.spawn().unwrap();
        let mut line = String::new();
        let _ = BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line);
        assert_eq!(
            line, "ready\n",
            "no namespace: this needs root, and Debian's packages iproute2 and nftables"
        );
        Self { holder }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Returns a command that runs `program` in a namespace, or here.
pub fn command_in(namespace: Option<&Namespace>, program: &OsStr) -> Command {
    let Some(namespace) = namespace else { return Command::new(program) };
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/proc/{}/ns/net", namespace.holder.id())).arg(program);
    command
}

fn quiet(command: &mut Command) {
    let ended = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
}
