use std::{ffi::OsString, path::PathBuf};

use super::{Peer, Place, Sample, content_of, install::Origin, rsync, version_line};
use crate::{process::run_timed, scenario::Phase, verify::Fidelity};

/// A tool that is one command with a source and a destination on one machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tool {
    /// The name in tables.
    name: &'static str,
    pub(super) program: &'static str,
    pub(super) origin: Origin,
    version_flag: &'static str,
    /// The fidelity that its result must have.
    fidelity: Fidelity,
    leaves_out: &'static str,
    /// Whether it copies without comparing, and so takes part only in the first step.
    only_copies: bool,
    args: fn(&Place) -> Vec<OsString>,
}

/// All local tools, in the order of the columns.
pub(super) const TOOLS: [Tool; 9] = [RSYNC, CP, XCP, CPZ, SY, SPARSYNC, RCLONE, FPSYNC, UNISON];

const RSYNC: Tool = Tool {
    name: "rsync -a",
    program: "rsync",
    origin: Origin::Debian("rsync"),
    version_flag: "--version",
    fidelity: rsync::FIDELITY,
    leaves_out: "deletes, checks, durability, hard links, holes, attributes",
    only_copies: false,
    args: |place| words(&["-a"], content_of(&place.source), content_of(&place.destination)),
};

const SPARSYNC: Tool = Tool {
    name: "sparsync",
    program: "sparsync",
    origin: Origin::Crate("sparsync", "0.1.12"),
    version_flag: "--version",
    fidelity: Fidelity::Seconds,
    leaves_out: "deletes, durability, times below a second",
    only_copies: false,
    args: |place| words(&["sync", "-a"], &place.source, &place.destination),
};

/// `cp -a`.
const CP: Tool = Tool {
    name: "cp -a",
    program: "cp",
    origin: Origin::Debian("coreutils"),
    version_flag: "--version",
    fidelity: Fidelity::Full,
    leaves_out: "comparison, deletes, checks, durability",
    only_copies: true,
    args: |place| words(&["-a"], place.source.join("."), &place.destination),
};

/// `xcp`, which copies in parallel.
const XCP: Tool = Tool {
    name: "xcp",
    program: "xcp",
    origin: Origin::Crate("xcp", "0.24.9"),
    version_flag: "--version",
    fidelity: Fidelity::Content,
    leaves_out: "comparison, deletes, checks, durability, owners, folders' times",
    only_copies: true,
    args: |place| words(&["-r", "-T", "--no-progress"], &place.source, &place.destination),
};

/// `cpz`, the fastest copier known to us.
const CPZ: Tool = Tool {
    name: "cpz",
    program: "cpz",
    origin: Origin::Crate("cpz", "3.2.1"),
    version_flag: "--version",
    fidelity: Fidelity::Content,
    leaves_out: "comparison, deletes, checks, durability, times, owners, attributes",
    only_copies: true,
    args: |place| words(&["--force"], &place.source, &place.destination),
};

/// `sy -a`. It preserves files' times to the nanosecond, and folders' times not at all.
const SY: Tool = Tool {
    name: "sy",
    program: "sy",
    origin: Origin::Crate("sy", "0.4.0"),
    version_flag: "--version",
    fidelity: Fidelity::Seconds,
    leaves_out: "deletes, checks, durability, folders' times",
    only_copies: false,
    args: |place| words(&["-a", "-q"], content_of(&place.source), &place.destination),
};

/// `rclone sync` with metadata.
const RCLONE: Tool = Tool {
    name: "rclone",
    program: "rclone",
    origin: Origin::Debian("rclone"),
    version_flag: "--version",
    fidelity: Fidelity::Content,
    leaves_out: "durability, hard links, holes, attributes, folders' modes and times",
    only_copies: false,
    args: |place| words(&["sync", "--quiet", "--links", "--metadata"], &place.source, &place.destination),
};

/// `fpsync`, two rsyncs at once.
const FPSYNC: Tool = Tool {
    name: "fpsync",
    program: "fpsync",
    origin: Origin::Debian("fpart"),
    version_flag: "-h",
    fidelity: Fidelity::Seconds,
    leaves_out: "deletes, checks, durability",
    only_copies: false,
    args: |place| words(&["-n", "2"], content_of(&place.source), content_of(&place.destination)),
};

/// `unison`, configured so that the source always wins.
const UNISON: Tool = Tool {
    name: "unison",
    program: "unison",
    origin: Origin::Debian("unison"),
    version_flag: "-version",
    fidelity: Fidelity::Content,
    leaves_out: "durability, hard links, holes, attributes, times below a second",
    only_copies: false,
    args: |place| {
        let flags = [
            "-ui", "text", "-batch", "-auto", "-silent", "-times", "-owner", "-group", "-perms", "-1",
            "-force",
        ];
        let mut args: Vec<OsString> = flags.map(OsString::from).to_vec();
        args.extend([&place.source, &place.source, &place.destination].map(Into::into));
        args
    },
};

fn words(flags: &[&str], source: impl Into<OsString>, destination: impl Into<OsString>) -> Vec<OsString> {
    let ends = [source.into(), destination.into()];
    flags.iter().map(OsString::from).chain(ends).collect()
}

impl Tool {
    /// Returns the peer that runs this tool as `program`.
    pub(super) fn at(self, program: PathBuf) -> Box<dyn Peer> {
        Box::new(Found { tool: self, program })
    }
}

struct Found {
    tool: Tool,
    program: PathBuf,
}

impl Peer for Found {
    fn name(&self) -> &'static str {
        self.tool.name
    }

    fn version(&self) -> String {
        version_line(&self.program, self.tool.version_flag)
    }

    fn fidelity(&self) -> Fidelity {
        self.tool.fidelity
    }

    fn leaves_out(&self) -> &'static str {
        self.tool.leaves_out
    }

    fn takes_part(&self, phase: &Phase) -> bool {
        !self.tool.only_copies || phase.name == "first"
    }

    fn begin(&mut self, _place: &Place) -> anyhow::Result<()> {
        Ok(())
    }

    fn run(&mut self, place: &Place) -> anyhow::Result<Sample> {
        let mut command = place.command(&self.program);
        command.args((self.tool.args)(place));
        let done = run_timed(command, &place.scratch, place.limit)?;
        Ok(Sample { elapsed: done.elapsed, wire_bytes: None })
    }
}
