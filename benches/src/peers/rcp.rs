use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::{
    Peer, Place, Sample, ssh,
    ssh::{HOST, Server},
    text, version_line,
};
use crate::{process::run_timed, verify::Fidelity};

/// The programs for rcp.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    pub(super) rcp: PathBuf,
    pub(super) ssh: ssh::Programs,
}

/// `rcp` with its own TLS: it starts `rcpd` at both ends over ssh, and these exchange the files.
pub(super) struct Rcp {
    programs: Programs,
    server: Option<Server>,
}

impl Rcp {
    pub(super) fn new(programs: Programs) -> Self {
        Self { programs, server: None }
    }

    /// Writes a command named `ssh` with the bench's settings, because rcp has no option for them.
    fn write_shell(&self, server: &Server, folder: &Path) -> anyhow::Result<()> {
        fs::create_dir(folder)?;
        let script = format!(
            "#!/bin/sh\nexec '{}' -F '{}' \"$@\"\n",
            self.programs.ssh.ssh.display(),
            server.config().display()
        );
        let path = folder.join("ssh");
        fs::write(&path, script)?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?)
    }
}

impl Peer for Rcp {
    fn name(&self) -> &'static str {
        "rcp"
    }

    fn version(&self) -> String {
        version_line(&self.programs.rcp, "--version")
    }

    fn fidelity(&self) -> Fidelity {
        Fidelity::Content
    }

    fn leaves_out(&self) -> &'static str {
        "delta, deletes, checks, durability, hard links, holes, attributes"
    }

    fn begin(&mut self, place: &Place) -> anyhow::Result<()> {
        let server = Server::start(&self.programs.ssh, &place.scratch)?;
        self.write_shell(&server, &commands(place))?;
        self.server = Some(server);
        Ok(())
    }

    fn run(&mut self, place: &Place) -> anyhow::Result<Sample> {
        let mut command = place.command(&self.programs.rcp);
        let path = std::env::var_os("PATH").context("PATH is not set")?;
        let folders = std::iter::once(commands(place)).chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(folders)?);
        let daemon = text(&self.programs.rcp.with_file_name("rcpd"));
        command.args(["--overwrite", "--preserve-settings=all", "--rcpd-path", &daemon]);
        command.arg(text(&place.source)).arg(format!("{HOST}:{}", text(&place.destination)));
        let done = run_timed(command, &place.scratch, place.limit)?;
        Ok(Sample { elapsed: done.elapsed, wire_bytes: None })
    }

    fn end(&mut self) {
        self.server = None;
    }
}

fn commands(place: &Place) -> PathBuf {
    place.scratch.join("commands")
}
