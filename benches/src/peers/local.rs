use std::path::PathBuf;

use super::{Peer, Place, Sample, content_of, version_line};
use crate::{process::run_timed, scenario::Phase, verify::Fidelity};

/// `cp -a`: a copy with no comparison, so it only takes part in the first step.
pub(super) struct Cp {
    program: PathBuf,
}

impl Cp {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program }
    }
}

impl Peer for Cp {
    fn name(&self) -> &'static str {
        "cp -a"
    }

    fn version(&self) -> String {
        version_line(&self.program, "--version")
    }

    fn fidelity(&self) -> Fidelity {
        Fidelity::Full
    }

    fn takes_part(&self, phase: &Phase) -> bool {
        phase.name == "first"
    }

    fn begin(&mut self, _place: &Place) -> anyhow::Result<()> {
        Ok(())
    }

    fn run(&mut self, place: &Place) -> anyhow::Result<Sample> {
        let mut command = place.command(&self.program);
        command.arg("-a").arg(place.source.join(".")).arg(&place.destination);
        let done = run_timed(command, &place.scratch, place.limit)?;
        Ok(Sample { elapsed: done.elapsed, wire_bytes: None })
    }
}

/// `sy -a`. It keeps files' times to the nanosecond and folders' not at all.
pub(super) struct Sy {
    program: PathBuf,
}

impl Sy {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program }
    }
}

impl Peer for Sy {
    fn name(&self) -> &'static str {
        "sy"
    }

    fn version(&self) -> String {
        version_line(&self.program, "--version")
    }

    fn fidelity(&self) -> Fidelity {
        Fidelity::Seconds
    }

    fn begin(&mut self, _place: &Place) -> anyhow::Result<()> {
        Ok(())
    }

    fn run(&mut self, place: &Place) -> anyhow::Result<Sample> {
        let mut command = place.command(&self.program);
        command.args(["-a", "-q"]).arg(content_of(&place.source)).arg(&place.destination);
        let done = run_timed(command, &place.scratch, place.limit)?;
        Ok(Sample { elapsed: done.elapsed, wire_bytes: None })
    }
}
