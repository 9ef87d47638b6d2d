//! Finds the tools, and installs missing ones.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::{
    btrfs,
    local::{TOOLS, Tool},
    over_ssh, ssh,
};
use crate::process::{find_program, run};

/// The version with which the project's figures over the network are compared.
const SPARSYNC: &str = "0.1.12";

/// The compiler's flags that rcp asks for, which its own workspace sets.
const RCP_FLAGS: &str = "--cfg tokio_unstable";

/// A tool that is not installed on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The tool's name.
    pub name: String,
    /// The command that installs it.
    pub remedy: String,
}

/// The source from which a missing program can be installed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Origin {
    /// A Debian package.
    Debian(&'static str),
    /// A crate and its version.
    Crate(&'static str, &'static str),
    /// This repository.
    Workspace,
}

/// Finds programs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The directory where `cargo install --root` puts the peers that are crates.
    pub root: PathBuf,
    /// The `volferry` to measure; by default the one beside this program.
    pub volferry: Option<PathBuf>,
}

impl Programs {
    /// Returns the volferry to measure: the configured one, else the one beside this program.
    pub fn volferry(&self) -> Result<PathBuf, Missing> {
        let beside = || Some(std::env::current_exe().ok()?.with_file_name("volferry"));
        let program = self.volferry.clone().or_else(beside).filter(|program| program.is_file());
        program.ok_or_else(|| missing("volferry", Origin::Workspace))
    }

    pub(super) fn rsync(&self) -> Result<PathBuf, Missing> {
        debian("rsync", "rsync")
    }

    /// Returns the program of a tool that starts its far end by ssh, and those of ssh.
    pub(super) fn over_ssh(&self, tool: over_ssh::Tool) -> Result<(PathBuf, ssh::Programs), Missing> {
        Ok((self.program(tool.program, tool.origin)?, ssh()?))
    }

    pub(super) fn btrfs(&self) -> Result<btrfs::Programs, Missing> {
        Ok(btrfs::Programs { btrfs: debian("btrfs", "btrfs-progs")?, rsync: self.rsync()? })
    }

    pub(super) fn tar(&self) -> Result<PathBuf, Missing> {
        debian("tar", "tar")
    }

    /// Returns the program of a tool that runs on one machine.
    pub(super) fn local(&self, tool: Tool) -> Result<PathBuf, Missing> {
        self.program(tool.program, tool.origin)
    }

    fn program(&self, program: &'static str, origin: Origin) -> Result<PathBuf, Missing> {
        match origin {
            Origin::Crate(name, version) => self.crate_program(program, name, version),
            Origin::Debian(package) => debian(program, package),
            Origin::Workspace => self.volferry(),
        }
    }

    pub(super) fn sparsync(&self) -> Result<PathBuf, Missing> {
        self.crate_program("sparsync", "sparsync", SPARSYNC)
    }

    /// Returns the program of a crate. `PATH` is not searched, because only the version with which the project compares
    /// itself counts.
    fn crate_program(
        &self,
        program: &'static str,
        name: &'static str,
        version: &'static str,
    ) -> Result<PathBuf, Missing> {
        let path = self.root.join("bin").join(program);
        match super::version_line(&path, "--version").contains(version) {
            true => Ok(path),
            false => Err(missing(program, Origin::Crate(name, version))),
        }
    }
}

/// Installs all tools that can be installed: Debian packages with `apt-get`, crates into `root`.
pub fn install(root: &Path) -> anyhow::Result<()> {
    let others = [
        ("ssh", "openssh-client"),
        ("sshd", "openssh-server"),
        ("socat", "socat"),
        ("mkfs.xfs", "xfsprogs"),
        ("mkfs.btrfs", "btrfs-progs"),
    ];
    let packages = TOOLS.iter().filter_map(|tool| match tool.origin {
        Origin::Debian(package) => Some((tool.program, package)),
        Origin::Crate(..) | Origin::Workspace => None,
    });
    let missing = |(program, package)| find_program(program).is_none().then_some(package);
    let wanted: Vec<&str> = others.into_iter().chain(packages).filter_map(missing).collect();
    if !wanted.is_empty() {
        run(command("apt-get").arg("update"))?;
        let install = ["install", "--yes", "--no-install-recommends"];
        run(command("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(install).args(&wanted))?;
    }
    let rcp = over_ssh::RCP;
    let crates = TOOLS.map(|tool| (tool.program, tool.origin, ""));
    for (program, origin, flags) in crates.into_iter().chain([(rcp.program, rcp.origin, RCP_FLAGS)]) {
        if let Origin::Crate(name, version) = origin {
            install_crate(root, program, name, version, flags)?;
        }
    }
    Ok(())
}

fn install_crate(root: &Path, program: &str, name: &str, version: &str, flags: &str) -> anyhow::Result<()> {
    if super::version_line(&root.join("bin").join(program), "--version").contains(version) {
        return Ok(());
    }
    // Outside the workspace, whose settings a user of the peer would not have, and outside its target folder, which the
    // bench's own build may have locked.
    let build = tempfile::tempdir()?;
    eprintln!("building {name} {version}");
    run(command("cargo")
        .current_dir(build.path())
        .env("CARGO_TARGET_DIR", build.path())
        .env("RUSTFLAGS", flags)
        .args(["install", name, "--locked", "--quiet", "--version", version, "--root"])
        .arg(root))
    .with_context(|| format!("installing {name} {version}"))?;
    Ok(())
}

fn command(program: &str) -> std::process::Command {
    std::process::Command::new(program)
}

fn ssh() -> Result<ssh::Programs, Missing> {
    Ok(ssh::Programs {
        ssh: debian("ssh", "openssh-client")?,
        sshd: debian("sshd", "openssh-server")?,
        keygen: debian("ssh-keygen", "openssh-client")?,
    })
}

fn debian(program: &'static str, package: &'static str) -> Result<PathBuf, Missing> {
    find_program(program).ok_or_else(|| missing(program, Origin::Debian(package)))
}

fn missing(name: &'static str, origin: Origin) -> Missing {
    let remedy = match origin {
        Origin::Debian(package) => format!("apt-get install {package}"),
        Origin::Crate(name, version) => {
            format!("cargo install {name} --version {version} --root DIR, and name DIR with --peers-root")
        }
        Origin::Workspace => "cargo build --release --bin volferry".to_string(),
    };
    Missing { name: name.into(), remedy }
}
