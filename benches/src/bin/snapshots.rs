//! Measures the cost of snapshots of a large volume: publishing, restoring, pruning, space, and runs that take
//! snapshots.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::Context as _;
use benches::{
    small_files::{fill, let_files_age, ms},
    stats::median,
    steps::{Settings, Steps, Way, way},
};
use clap::Parser;
use contract::Report;
use testkit::process::{WatchedRun, run_watched};

const MIB: f64 = 1048576.0;

/// The size of the tree for which the project has targets in milliseconds; the other targets are ratios.
const GOAL_FILES: u64 = 1_000_000;

/// The image size for each file in bytes, if the file system is an image: for three trees, a store, and free space.
const IMAGE_BYTES_PER_FILE: u64 = 24 << 10;

/// The length of each file in bytes: what a file costs is measured, not what a byte does.
const FILE_BYTES: usize = 33;

/// The room of an image that no tree takes: borg refuses to write to a file system with less.
const SPARE_IMAGE_BYTES: u64 = 2 << 30;

/// A run, which deletes all previous files where the guard would refuse that.
const SYNC: &str = "$VOLFERRY sync --delete --delete-limit=100 --progress=none --report report";

/// Measures snapshots of a volume with many small files, beside restic and borg where they are installed.
#[derive(Debug, Parser)]
struct Args {
    /// Files in the tree; 100000 where memory is short
    #[arg(long, default_value_t = 1_000_000)]
    files: u64,
    /// Snapshots in the chain, of which a tenth is pruned, each with 0.1 % of the files changed
    #[arg(long, default_value_t = 1000)]
    snapshots: u64,
    /// 20,000 files and 100 snapshots: some minutes
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    settings: Settings,
}

fn main() -> ExitCode {
    let mut args = Args::parse();
    if args.quick {
        (args.files, args.snapshots) = (args.files.min(20_000), args.snapshots.min(100));
    }
    benches::exit_code(bench(&args))
}

fn bench(args: &Args) -> anyhow::Result<bool> {
    let image = args.files * IMAGE_BYTES_PER_FILE + SPARE_IMAGE_BYTES;
    let mut steps = Steps::start(&args.settings, args.files, image)?;
    runs_beside(&mut steps, 50_000.min(args.files))?;
    steps.shell("mkdir source volume")?;
    fill(&steps.work.trees().join("source"), args.files, FILE_BYTES)?;
    publish(&mut steps)?;
    restore(&mut steps)?;
    beside_others(&mut steps)?;
    chain(&mut steps, args.snapshots)?;
    steps.finish("snapshots")
}

/// Measures runs with and without a snapshot, in turn.
fn runs_beside(steps: &mut Steps<'_>, files: u64) -> anyhow::Result<()> {
    let [mut first, mut same] = [[vec![], vec![]], [vec![], vec![]]];
    for _ in 0..steps.settings.rounds {
        steps.shell("mkdir -p runs/source runs/0 runs/1")?;
        fill(&steps.work.trees().join("runs/source"), files, FILE_BYTES)?;
        for (nth, flag) in ["", "--snapshot"].into_iter().enumerate() {
            let sync = format!("{SYNC} {flag} runs/source runs/{nth}");
            steps.work.sync()?;
            first[nth].push(steps.time(&sync)?);
            let_files_age();
            // The snapshot of the second run contains the stamps that the first could not record.
            steps.time(&sync)?;
            same[nth].push(steps.time(&sync)?);
        }
        steps.shell("rm -r runs")?;
    }
    for (name, most, [off, on]) in [("no change", 1.02, same), ("first", 1.15, first)] {
        steps.line(files, &format!("run, {name}, without snapshots"), None, &[("volferry", &off)]);
        let reach = median(&off).map(|off| off * most);
        steps.line(files, &format!("run, {name}, with one"), reach, &[("volferry", &on)]);
    }
    Ok(())
}

/// Measures what publishing takes in addition to the run, according to the run's report.
fn publish(steps: &mut Steps<'_>) -> anyhow::Result<()> {
    let sync = format!("{SYNC} --snapshot source volume");
    let publish = |steps: &Steps<'_>| -> anyhow::Result<f64> {
        steps.shell(&sync)?;
        let path = steps.work.trees().join("report");
        let report = fs::read(&path).with_context(|| path.display().to_string())?;
        let report: Report = serde_json::from_slice(&report)?;
        let_files_age();
        Ok(report.timings.snapshot as f64)
    };
    (0..2).try_for_each(|_| publish(steps).map(drop))?;
    for (changed, reach_ms) in [(0, 5.0), (100, 30.0), (steps.files / 100, 1500.0)] {
        let mut samples = Vec::new();
        for round in 0..steps.settings.rounds {
            steps.change("source", changed, round)?;
            samples.push(publish(steps)?);
            // The snapshot of this run contains the stamps of the files just written.
            publish(steps)?;
        }
        let reach = Some(reach_ms).filter(|_| steps.files == GOAL_FILES);
        let step = format!("publish beyond the run, {changed} changed");
        steps.line(steps.files, &step, reach, &[("volferry", &samples)]);
    }
    Ok(())
}

/// Measures restores beside runs that do the same work.
fn restore(steps: &mut Steps<'_>) -> anyhow::Result<()> {
    const RESTORE: &str = "$VOLFERRY snapshot restore --no-safety";
    let turns = [
        ("restore, 100 changed", 100, format!("{RESTORE} volume latest")),
        ("run, 100 changed", 100, format!("{SYNC} source volume")),
        ("restore, all", 0, format!("{RESTORE} --to restored volume latest")),
        ("run, all", 0, format!("{SYNC} source restored")),
    ];
    let mut times = [const { Vec::new() }; 4];
    for round in 0..steps.settings.rounds {
        for ((_, changed, script), times) in turns.iter().zip(&mut times) {
            if *changed > 0 {
                steps.change("volume", *changed, 1000 + round)?;
            }
            // Else the first of two would also write what the round before has removed.
            steps.work.sync()?;
            times.push(steps.time(script)?);
            steps.shell("rm -rf restored")?;
        }
    }
    for pair in [[0, 1], [2, 3]] {
        let reach = median(&times[pair[1]]);
        for (nth, reach) in pair.into_iter().zip([reach, None]) {
            steps.line(steps.files, turns[nth].0, reach, &[("volferry", &times[nth])]);
        }
    }
    Ok(())
}

/// Takes snapshots and restores one with every installed tool, on the same tree with the same changes.
fn beside_others(steps: &mut Steps<'_>) -> anyhow::Result<()> {
    const TAKE: [Way<'_>; 3] = [
        way("volferry", "true", "$VOLFERRY snapshot create volume"),
        way("restic", "true", "cd volume && restic backup --quiet --exclude .volferry ."),
        way("borg", "true", "cd volume && borg create --exclude .volferry ::$ROUND ."),
    ];
    const EMPTY: &str = "rm -rf restored; mkdir restored";
    const RESTORE: [Way<'_>; 3] = [
        way("volferry", EMPTY, "$VOLFERRY snapshot restore --no-safety --to restored volume latest"),
        way("restic", EMPTY, "restic restore latest --quiet --target restored"),
        way("borg", EMPTY, "cd restored && borg extract ::$ROUND"),
    ];
    let apart = ", and keeps its repository apart";
    steps.add("restic", "restic version", &format!("deletes; encrypts{apart}"), "apt-get install restic");
    steps.add("borg", "borg --version", &format!("deletes; compresses{apart}"), "apt-get install borg");
    let inits =
        [("volferry", "true"), ("restic", "restic init --quiet"), ("borg", "borg init --encryption none")];
    for (tool, init) in inits.into_iter().filter(|(tool, _)| steps.has(tool)).collect::<Vec<_>>() {
        steps.shell(init)?;
        for take in TAKE.iter().filter(|way| way.tool == tool) {
            steps.shell(&take.script.replace("$ROUND", "first"))?;
        }
    }
    steps.step("a snapshot, 100 changed", &TAKE, |steps, round| steps.change("volume", 100, 3000 + round))?;
    steps.step("a restore, all", &RESTORE, |_, _| Ok(()))?;
    steps.shell("rm -r restored")
}

/// Takes a chain of snapshots, measures the space of the first hundred, and prunes a tenth.
fn chain(steps: &mut Steps<'_>, all: u64) -> anyhow::Result<()> {
    let (files, volume) = (steps.files, steps.work.trees().join("volume"));
    let store = volume.join(".volferry/snapshots");
    fs::remove_dir_all(&store)?;
    for nth in 0..all {
        steps.change("volume", files / 1000, 10_000 + nth)?;
        steps.shell("$VOLFERRY snapshot create volume")?;
        if nth == 0 || nth + 1 == all.min(100) {
            let (tree, kept) = (room(&volume, &store)?, room(&store, Path::new(""))?);
            let (taken, share) = (nth + 1, (tree + kept) as f64 / tree as f64);
            let note = format!("With {taken} of {all} snapshots, the volume takes {share:.2} × its tree.");
            steps.notes.push(note);
        }
    }
    let mut command = Command::new(&steps.program);
    command.args(["snapshot", "prune", &format!("--keep-last={}", all - all / 10)]).arg(volume);
    let WatchedRun { elapsed, peak_bytes } = run_watched(command, steps.limit())?;
    let step = format!("prune {} of {all}, 0.1 % changed each", all / 10);
    let reach = Some(10_000.0).filter(|_| (files, all) == (GOAL_FILES, 1000));
    steps.line(files, &step, reach, &[("volferry", &[ms(elapsed)])]);
    steps.notes.push(format!("The prune took {:.0} MiB of memory.", peak_bytes / MIB));
    Ok(())
}

/// Returns the disk space of all files in a folder in bytes, except those in `left_out`.
fn room(dir: &Path, left_out: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += metadata.blocks() * 512;
        if metadata.is_dir() && entry.path() != left_out {
            bytes += room(&entry.path(), left_out)?;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_of_a_folder_counts_all_its_files() {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path(), 10, FILE_BYTES).unwrap();
        assert!(room(dir.path(), Path::new("")).unwrap() >= 10 * 512);
    }
}
