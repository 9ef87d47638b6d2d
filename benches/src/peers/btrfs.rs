use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use super::{Peer, Place, Sample, content_of, version_line};
use crate::{
    process::{run, run_timed},
    verify::Fidelity,
};

/// The names in the scratch folder: the source as a subvolume, its snapshots, and the received snapshots.
const LIVE: &str = "live";
const SENT: &str = "sent";
const RECEIVED: &str = "received";

/// `btrfs send -p | btrfs receive`: the file system itself knows what has changed since the last snapshot. The clock
/// runs for the snapshot and both programs. Before that, the source is cloned into a subvolume.
pub(super) struct Send {
    programs: Programs,
    /// The scratch folder and the destination of the round, and its number of snapshots.
    round: Option<(PathBuf, PathBuf, u64)>,
}

/// The programs that it needs.
pub(super) struct Programs {
    pub(super) btrfs: PathBuf,
    pub(super) rsync: PathBuf,
}

impl Send {
    pub(super) fn new(programs: Programs) -> Self {
        Self { programs, round: None }
    }

    fn btrfs(&self, args: &[&str], path: &Path) -> anyhow::Result<()> {
        run(Command::new(&self.programs.btrfs).args(args).arg(path)).map(drop)
    }

    /// Updates the subvolume from the source, so that only what has changed is new in it.
    fn mirror(&self, place: &Place, step: u64) -> anyhow::Result<()> {
        let live = place.scratch.join(LIVE);
        let mut command = match step {
            1 => Command::new("cp"),
            _ => Command::new(&self.programs.rsync),
        };
        match step {
            1 => command.args(["-a", "--reflink=always"]).arg(place.source.join(".")).arg(&live),
            _ => {
                let flags = ["-a", "--delete", "--inplace", "--no-whole-file"];
                command.args(flags).arg(content_of(&place.source)).arg(content_of(&live))
            }
        };
        run(&mut command).map(drop)
    }

    /// Shows the last received snapshot at the destination.
    fn show(&self, place: &Place, step: u64) -> anyhow::Result<()> {
        match step {
            1 => fs::remove_dir(&place.destination)?,
            _ => self.btrfs(&["subvolume", "delete"], &place.destination)?,
        }
        let received = place.scratch.join(RECEIVED).join(step.to_string());
        let received = received.to_str().context("a path that is not UTF-8")?;
        self.btrfs(&["subvolume", "snapshot", received], &place.destination)
    }

    fn remove(&self, scratch: &Path, destination: &Path, steps: u64) -> anyhow::Result<()> {
        for step in 1..=steps {
            for folder in [SENT, RECEIVED] {
                let path = scratch.join(folder).join(step.to_string());
                if path.exists() {
                    self.btrfs(&["subvolume", "delete"], &path)?;
                }
            }
        }
        let is_subvolume = |path: &Path| self.btrfs(&["subvolume", "show"], path).is_ok();
        let rest = [scratch.join(LIVE), destination.into()].into_iter().filter(|path| is_subvolume(path));
        rest.into_iter().try_for_each(|path| self.btrfs(&["subvolume", "delete"], &path))
    }
}

impl Peer for Send {
    fn name(&self) -> &'static str {
        "btrfs send"
    }

    fn version(&self) -> String {
        version_line(&self.programs.btrfs, "--version")
    }

    fn fidelity(&self) -> Fidelity {
        Fidelity::Files
    }

    fn leaves_out(&self) -> &'static str {
        "comparison (the file system knows what changed), filters, checks, durability, other file systems"
    }

    fn begin(&mut self, place: &Place) -> anyhow::Result<()> {
        self.btrfs(&["subvolume", "create"], &place.scratch.join(LIVE))?;
        for folder in [SENT, RECEIVED] {
            fs::create_dir(place.scratch.join(folder))?;
        }
        self.round = Some((place.scratch.clone(), place.destination.clone(), 0));
        Ok(())
    }

    fn run(&mut self, place: &Place) -> anyhow::Result<Sample> {
        let (_, _, steps) = self.round.as_mut().context("the round has not begun")?;
        *steps += 1;
        let step = *steps;
        self.mirror(place, step)?;
        let parent = match step {
            1 => String::new(),
            _ => format!("-p {SENT}/{}", step - 1),
        };
        let btrfs = self.programs.btrfs.display();
        let script = format!(
            "set -eo pipefail; {btrfs} subvolume snapshot -r {LIVE} {SENT}/{step} >&2; \
             {btrfs} send -q {parent} {SENT}/{step} | {btrfs} receive -q {RECEIVED}"
        );
        let mut command = place.command(Path::new("bash"));
        command.args(["-c", &script]).current_dir(&place.scratch);
        let done = run_timed(command, &place.scratch, place.limit)?;
        self.show(place, step)?;
        Ok(Sample { elapsed: done.elapsed, wire_bytes: None })
    }

    /// Removes the subvolumes, because a folder with read-only subvolumes cannot be removed like others.
    fn end(&mut self) {
        let Some((scratch, destination, steps)) = self.round.take() else { return };
        if let Err(error) = self.remove(&scratch, &destination, steps) {
            eprintln!("removing the subvolumes of btrfs send: {error:#}");
        }
    }
}
