//! Where the tools are, and how to get those that are not there.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use crate::process::{find_program, run};

/// The versions that the project's figures are compared with.
const SPARSYNC: &str = "0.1.12";
const SY: &str = "0.4.0";

/// A tool that is not on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The tool's name.
    pub name: &'static str,
    /// What to run to have it.
    pub remedy: String,
}

/// How a missing program is had.
#[derive(Debug, Clone, Copy)]
enum Origin {
    Debian(&'static str),
    Crate(&'static str, &'static str),
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

    pub(super) fn tar(&self) -> Result<PathBuf, Missing> {
        debian("tar", "tar")
    }

    pub(super) fn cp(&self) -> Result<PathBuf, Missing> {
        debian("cp", "coreutils")
    }

    pub(super) fn sparsync(&self) -> Result<PathBuf, Missing> {
        self.crate_program("sparsync", SPARSYNC)
    }

    pub(super) fn sy(&self) -> Result<PathBuf, Missing> {
        self.crate_program("sy", SY)
    }

    /// Only the version that the project compares itself with counts, so `PATH` is not searched.
    fn crate_program(&self, name: &'static str, version: &'static str) -> Result<PathBuf, Missing> {
        let program = self.root.join("bin").join(name);
        match super::version_line(&program, "--version").contains(version) {
            true => Ok(program),
            false => Err(missing(name, Origin::Crate(name, version))),
        }
    }
}

/// Installs all tools that can be installed: Debian's with `apt-get`, the crates into `root`.
pub fn install(root: &Path) -> anyhow::Result<()> {
    let packages = ["rsync", "openssh-client", "openssh-server", "xfsprogs", "btrfs-progs"];
    let wanted: Vec<&str> = [("rsync", 0), ("ssh", 1), ("sshd", 2), ("mkfs.xfs", 3), ("mkfs.btrfs", 4)]
        .into_iter()
        .filter(|(program, _)| find_program(program).is_none())
        .map(|(_, package)| packages[package])
        .collect();
    if !wanted.is_empty() {
        run(command("apt-get").arg("update"))?;
        let install = ["install", "--yes", "--no-install-recommends"];
        run(command("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(install).args(&wanted))?;
    }
    for (name, version) in [("sparsync", SPARSYNC), ("sy", SY)] {
        install_crate(root, name, version)?;
    }
    Ok(())
}

fn install_crate(root: &Path, name: &str, version: &str) -> anyhow::Result<()> {
    if super::version_line(&root.join("bin").join(name), "--version").contains(version) {
        return Ok(());
    }
    // Outside the workspace, whose settings are not what a user of the peer would build it with; and not in its target folder,
    // whose lock the bench's own build may hold.
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
    Missing { name, remedy }
}
