//! Where the tools are, and how to get those that are not there.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::{
    btrfs,
    local::{TOOLS, Tool},
};
use crate::process::{find_program, run};

/// The version that the project's figures over the network are compared with.
const SPARSYNC: &str = "0.1.12";

/// A tool that is not on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The tool's name.
    pub name: String,
    /// What to run to have it.
    pub remedy: String,
}

/// How a missing program is had.
#[derive(Debug, Clone, Copy)]
pub(super) enum Origin {
    /// A package.
    Debian(&'static str),
    /// A crate and its version.
    Crate(&'static str, &'static str),
    /// This repository.
    Workspace,
}

/// Finds programs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// Where `cargo install --root` puts the peers that are crates.
    pub root: PathBuf,
    /// The `volferry` to measure; by default the one beside this program.
    pub volferry: Option<PathBuf>,
}

/// What rsync over ssh takes.
#[derive(Debug, Clone)]
pub(super) struct RsyncAndSsh {
    pub(super) rsync: PathBuf,
    pub(super) ssh: PathBuf,
    pub(super) sshd: PathBuf,
    pub(super) keygen: PathBuf,
}

impl Programs {
    /// The volferry to measure: the one that was named, else the one beside this program.
    pub fn volferry(&self) -> Result<PathBuf, Missing> {
        let beside = || Some(std::env::current_exe().ok()?.with_file_name("volferry"));
        let program = self.volferry.clone().or_else(beside).filter(|program| program.is_file());
        program.ok_or_else(|| missing("volferry", Origin::Workspace))
    }

    pub(super) fn rsync(&self) -> Result<PathBuf, Missing> {
        debian("rsync", "rsync")
    }

    pub(super) fn rsync_and_ssh(&self) -> Result<RsyncAndSsh, Missing> {
        Ok(RsyncAndSsh {
            rsync: self.rsync()?,
            ssh: debian("ssh", "openssh-client")?,
            sshd: debian("sshd", "openssh-server")?,
            keygen: debian("ssh-keygen", "openssh-client")?,
        })
    }

    pub(super) fn btrfs(&self) -> Result<btrfs::Programs, Missing> {
        Ok(btrfs::Programs { btrfs: debian("btrfs", "btrfs-progs")?, rsync: self.rsync()? })
    }

    pub(super) fn tar(&self) -> Result<PathBuf, Missing> {
        debian("tar", "tar")
    }

    /// The program of a tool that runs on one machine.
    pub(super) fn local(&self, tool: Tool) -> Result<PathBuf, Missing> {
        match tool.origin {
            Origin::Crate(name, version) => self.crate_program(tool.program, name, version),
            Origin::Debian(package) => debian(tool.program, package),
            Origin::Workspace => self.volferry(),
        }
    }

    pub(super) fn sparsync(&self) -> Result<PathBuf, Missing> {
        self.crate_program("sparsync", "sparsync", SPARSYNC)
    }

    /// Only the version that the project compares itself with counts, so `PATH` is not searched.
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

/// Installs all tools that can be installed: Debian's with `apt-get`, the crates into `root`.
pub fn install(root: &Path) -> anyhow::Result<()> {
    let others = [
        ("ssh", "openssh-client"),
        ("sshd", "openssh-server"),
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
    for tool in TOOLS {
        if let Origin::Crate(name, version) = tool.origin {
            install_crate(root, tool.program, name, version)?;
        }
    }
    Ok(())
}

fn install_crate(root: &Path, program: &str, name: &str, version: &str) -> anyhow::Result<()> {
    if super::version_line(&root.join("bin").join(program), "--version").contains(version) {
        return Ok(());
    }
    // Outside the workspace, whose settings are not what a user of the peer would build it with; and not in its target
    // folder, whose lock the bench's own build may hold.
    let build = tempfile::tempdir()?;
    eprintln!("building {name} {version}");
    run(command("cargo")
        .current_dir(build.path())
        .env("CARGO_TARGET_DIR", build.path())
        .args(["install", name, "--locked", "--quiet", "--version", version, "--root"])
        .arg(root))
    .with_context(|| format!("installing {name} {version}"))?;
    Ok(())
}

fn command(program: &str) -> std::process::Command {
    std::process::Command::new(program)
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
