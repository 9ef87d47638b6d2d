//! Finds the tools, and installs missing ones.

use std::path::PathBuf;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use testkit::process::{find_program, run};

use super::tools::{self, Server, Tool};

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
pub(crate) enum Origin {
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
        let remedy = "cargo build --release --bin volferry".into();
        program.ok_or_else(|| Missing { name: "volferry".into(), remedy })
    }

    /// Returns the program of a tool, if all that it needs is installed.
    pub(super) fn tool(&self, tool: &Tool) -> Result<PathBuf, Missing> {
        if tool.server == Server::Ssh {
            debian("ssh", "openssh-client")?;
            debian("sshd", "openssh-server")?;
        }
        if tool.name == tools::BTRFS_SEND.name {
            debian("rsync", "rsync")?;
        }
        match tool.origin {
            Origin::Crate(name, version) => self.crate_program(tool.program, name, version),
            Origin::Debian(package) => debian(tool.program, package),
            Origin::Workspace => self.volferry(),
        }
    }

    pub(super) fn tar(&self) -> Result<PathBuf, Missing> {
        debian("tar", "tar")
    }

    /// Returns the program of a crate. `PATH` is not searched, because only the version with which the project compares
    /// itself counts.
    fn crate_program(&self, program: &str, name: &str, version: &str) -> Result<PathBuf, Missing> {
        let path = self.root.join("bin").join(program);
        if super::version_line(&path, "--version").contains(version) {
            return Ok(path);
        }
        // rcp asks for this flag, which its own workspace sets.
        let flags = if program == "rcp" { "RUSTFLAGS='--cfg tokio_unstable' " } else { "" };
        let install = format!("cargo install {name} --locked --quiet --version {version}");
        let remedy = format!("{flags}{install} --root '{}'", self.root.display());
        Err(Missing { name: program.into(), remedy })
    }
}

/// Installs all tools that are missing and can be installed, by their remedies.
pub fn install(programs: &Programs) -> anyhow::Result<()> {
    let others = [("socat", "socat"), ("mkfs.xfs", "xfsprogs"), ("mkfs.btrfs", "btrfs-progs")];
    let others = others.into_iter().map(|(program, package)| debian(program, package));
    let tools = tools::LOCAL.iter().chain([&tools::RSYNC_SSH, &tools::RCP]).map(|tool| programs.tool(tool));
    for missing in others.chain(tools).filter_map(Result::err) {
        // Outside the workspace, whose settings a user of the peer would not have, and outside its target folder, which
        // the bench's own build may have locked.
        let build = tempfile::tempdir()?;
        eprintln!("{}", missing.remedy);
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &missing.remedy]).current_dir(build.path());
        command.env("CARGO_TARGET_DIR", build.path()).env("DEBIAN_FRONTEND", "noninteractive");
        run(&mut command).with_context(|| format!("installing {}", missing.name))?;
    }
    Ok(())
}

fn debian(program: &str, package: &str) -> Result<PathBuf, Missing> {
    let remedy = format!("apt-get update && apt-get install --yes --no-install-recommends {package}");
    find_program(program).ok_or_else(|| Missing { name: program.into(), remedy })
}
