use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use contract::Report;

use super::{
    Peer, Place, Sample, content_of,
    install::Origin,
    rsync, ssh,
    ssh::{HOST, Server},
    text, version_line,
};
use crate::{
    ends::Ends,
    process::{Finished, run_timed},
    verify::Fidelity,
};

/// A tool that starts its far end by ssh.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tool {
    /// The name in tables.
    pub(super) name: &'static str,
    pub(super) program: &'static str,
    pub(super) origin: Origin,
    /// The fidelity that its result must have.
    fidelity: Fidelity,
    leaves_out: &'static str,
    /// The arguments, and the path of the program.
    args: fn(&Place, &Path) -> Vec<String>,
    /// Reads the bytes on the wire from the output; those over ssh are counted before its encryption.
    wire_bytes: fn(&Finished) -> Option<u64>,
}

/// Volferry over one kind of link.
const VOLFERRY: Tool = Tool {
    name: "volferry udp",
    program: "volferry",
    origin: Origin::Workspace,
    fidelity: Fidelity::Full,
    leaves_out: "",
    args: |place, program| volferry(place, program, "udp"),
    wire_bytes: |done| Some(serde_json::from_str::<Report>(&done.stdout).ok()?.work.bytes_on_wire),
};

/// What a link is held to: the tool, and its highest ratio to another one.
pub const LINK_GOALS: [(&str, f64, &str); 2] =
    [("volferry tcp", 1.3, "volferry udp"), ("volferry ssh", 1.0, "rsync ssh")];

/// All links of Volferry.
pub(super) const LINKS: [Tool; 3] = [
    VOLFERRY,
    Tool { name: "volferry tcp", args: |place, program| volferry(place, program, "tcp"), ..VOLFERRY },
    Tool { name: "volferry ssh", args: |place, program| volferry(place, program, "ssh"), ..VOLFERRY },
];

pub(super) const RSYNC: Tool = Tool {
    name: "rsync ssh",
    program: "rsync",
    origin: Origin::Debian("rsync"),
    fidelity: rsync::FIDELITY,
    leaves_out: "checks, durability, hard links, holes, attributes",
    args: |place, _| {
        let [source, copy] = [&place.source, &place.destination].map(|path| content_of(path));
        words(&["-a", "--delete", "--stats"], [source, format!("{HOST}:{copy}")])
    },
    wire_bytes: |done| rsync::wire_bytes(&done.stdout),
};

/// `rcp` with its own TLS: it starts `rcpd` at both ends over ssh, and these exchange the files. Its own end is
/// `localhost`, which has to be the machine of the far one.
pub(super) const RCP: Tool = Tool {
    name: "rcp",
    program: "rcp",
    origin: Origin::Crate("rcp-tools-rcp", "0.41.0"),
    fidelity: Fidelity::Content,
    leaves_out: "delta, deletes, checks, durability, hard links, holes, attributes",
    args: |place, program| {
        let daemon = text(&program.with_file_name("rcpd"));
        let flags = ["--overwrite", "--preserve-settings=all", "--rcpd-path", &daemon];
        words(&flags, [text(&place.source), format!("{HOST}:{}", text(&place.destination))])
    },
    wire_bytes: |_| None,
};

fn volferry(place: &Place, program: &Path, link: &str) -> Vec<String> {
    let (link, program) = (format!("--link={link}"), format!("--remote-program={}", text(program)));
    let flags = ["sync", "--delete", "--delete-limit=100", "--quiet", "--report=-", &link, &program];
    words(&flags, [text(&place.source), format!("{HOST}:{}", text(&place.destination))])
}

fn words(flags: &[&str], ends: [String; 2]) -> Vec<String> {
    flags.iter().map(ToString::to_string).chain(ends).collect()
}

/// A tool that is there, with a server of its own.
pub(super) struct OverSsh {
    tool: Tool,
    program: PathBuf,
    ssh: ssh::Programs,
    ends: Ends,
    server: Option<Server>,
}

impl OverSsh {
    pub(super) fn new(tool: Tool, (program, ssh): (PathBuf, ssh::Programs), ends: Ends) -> Self {
        Self { tool, program, ssh, ends, server: None }
    }

    /// Writes a command named `ssh` with the bench's settings, so that no tool needs flags for them.
    fn write_shell(&self, server: &Server, folder: &Path) -> anyhow::Result<()> {
        fs::create_dir(folder)?;
        let (ssh, config) = (self.ssh.ssh.display(), server.config().display());
        let path = folder.join("ssh");
        fs::write(&path, format!("#!/bin/sh\nexec '{ssh}' -F '{config}' \"$@\"\n"))?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?)
    }
}

impl Peer for OverSsh {
    fn name(&self) -> &'static str {
        self.tool.name
    }

    fn version(&self) -> String {
        format!("{}, {}", version_line(&self.program, "--version"), self.ssh.version())
    }

    fn fidelity(&self) -> Fidelity {
        self.tool.fidelity
    }

    fn leaves_out(&self) -> &'static str {
        self.tool.leaves_out
    }

    fn own_entries(&self) -> &'static [&'static str] {
        &[".volferry"]
    }

    fn begin(&mut self, place: &Place) -> anyhow::Result<()> {
        let server = Server::start(&self.ssh, &place.scratch, &self.ends)?;
        self.write_shell(&server, &commands(place))?;
        self.server = Some(server);
        Ok(())
    }

    fn run(&mut self, place: &Place) -> anyhow::Result<Sample> {
        let mut words = self.ends.near();
        words.push(text(&self.program));
        words.extend((self.tool.args)(place, &self.program));
        let mut command = place.command(Path::new(&words[0]));
        let path = std::env::var_os("PATH").context("PATH is not set")?;
        let folders = std::iter::once(commands(place)).chain(std::env::split_paths(&path));
        command.args(&words[1..]).env("PATH", std::env::join_paths(folders)?);
        let done = run_timed(command, &place.scratch, place.limit)?;
        Ok(Sample { elapsed: done.elapsed, wire_bytes: (self.tool.wire_bytes)(&done) })
    }

    fn end(&mut self) {
        self.server = None;
    }
}

fn commands(place: &Place) -> PathBuf {
    place.scratch.join("commands")
}
