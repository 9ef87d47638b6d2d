//! Measures the cost of snapshots of a large volume: publishing, restoring, pruning, space, and runs that take
//! snapshots.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use benches::{
    machine::Machine,
    peers::{Missing, Named, Place, Programs, Volferry},
    probe::Probe,
    process::{find_program, run, run_timed, run_watched},
    small_files::{change, fill, let_files_age, ms},
    stats::median,
    suites::Mode,
    table::{Line, Results, Table},
    workdir::{FileSystem, WorkDir, enter_namespace},
};
use clap::Parser;

const MIB: f64 = 1048576.0;

/// The size of the tree for which the project has targets in milliseconds; the other targets are ratios.
const GOAL_FILES: u64 = 1_000_000;

/// The image size for each file in bytes, if the file system is an image: for three trees, a store, and free space.
const IMAGE_BYTES_PER_FILE: u64 = 24 << 10;

/// The room of an image that no tree takes: borg refuses to write to a file system with less.
const SPARE_IMAGE_BYTES: u64 = 2 << 30;

/// Measures snapshots of a volume with many small files, beside restic and borg where they are installed.
#[derive(Debug, Parser)]
struct Args {
    /// Files in the tree; 100000 where memory is short
    #[arg(long, default_value_t = 1_000_000)]
    files: u64,
    /// Snapshots in the chain, of which a tenth is pruned, each with 0.1 % of the files changed
    #[arg(long, default_value_t = 1000)]
    snapshots: u64,
    /// Rounds that each median is of
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// 20,000 files and 100 snapshots: some minutes
    #[arg(long)]
    quick: bool,
    /// Folder to work in
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// What the trees are kept on, mounted for the time of the bench
    #[arg(long, value_enum, default_value = "tmpfs")]
    fs: FileSystem,
    /// The volferry to measure; by default the one beside this program
    #[arg(long, value_name = "PROGRAM")]
    volferry: Option<PathBuf>,
    /// A command that takes longer has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    limit: u64,
    /// Also write the figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// What a reader of the figures has to know besides
    #[arg(long, default_value = "")]
    note: String,
}

fn main() -> ExitCode {
    let mut args = Args::parse();
    if args.quick {
        (args.files, args.snapshots) = (args.files.min(20_000), args.snapshots.min(100));
    }
    benches::exit_code(bench(&args))
}

fn bench(args: &Args) -> anyhow::Result<bool> {
    enter_namespace(args.fs)?;
    let programs = Programs { root: PathBuf::new(), volferry: args.volferry.clone() };
    let program = programs.volferry().map_err(|missing| anyhow!("{}: {}", missing.name, missing.remedy))?;
    let work = WorkDir::make(&args.dir, args.fs, args.files * IMAGE_BYTES_PER_FILE + SPARE_IMAGE_BYTES)?;
    let machine = Machine::look(work.trees());
    eprintln!("{machine}");
    let mut bench = Bench { args, work: &work, program, lines: Vec::new(), notes: Vec::new() };
    let (tools, missing) = bench.measure()?;
    let Bench { lines, mut notes, .. } = bench;
    notes.extend((!args.note.is_empty()).then(|| args.note.clone()));
    let results = Results {
        date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
        machine,
        rounds: args.rounds,
        durable: true,
        tables: vec![Table { title: "snapshots".into(), tools, rows: lines }],
        missing,
        note: notes.join("\n"),
    };
    results.tables.iter().for_each(|table| println!("{}", table.to_markdown()));
    println!("{}", results.note);
    if let Some(path) = &args.json {
        fs::write(path, serde_json::to_string_pretty(&results)? + "\n")
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(true)
}

struct Bench<'a> {
    args: &'a Args,
    work: &'a WorkDir,
    program: PathBuf,
    lines: Vec<Line>,
    notes: Vec<String>,
}

impl Bench<'_> {
    /// Returns the tools that were measured, and those that are not installed.
    fn measure(&mut self) -> anyhow::Result<(Vec<Named>, Vec<Missing>)> {
        self.runs_beside(50_000.min(self.args.files))?;
        let place = self.place("volume")?;
        fill(&place.source, self.args.files)?;
        self.publish(&place)?;
        self.restore(&place)?;
        let (tools, missing) = self.beside_others(&place)?;
        self.chain(&place.destination)?;
        Ok((tools, missing))
    }

    fn place(&self, name: &str) -> anyhow::Result<Place> {
        let dir = |part: &str| -> anyhow::Result<PathBuf> {
            let dir = self.work.trees().join(name).join(part);
            fs::create_dir_all(&dir)?;
            Ok(dir)
        };
        let (source, destination, scratch) = (dir("source")?, dir("destination")?, dir("scratch")?);
        Ok(Place { source, destination, scratch, round: 0, limit: Duration::from_secs(self.args.limit) })
    }

    /// Measures runs with and without a snapshot, in turn.
    fn runs_beside(&mut self, files: u64) -> anyhow::Result<()> {
        let (off, on) = (self.sync(false), self.sync(true));
        let [mut first, mut same] = [[vec![], vec![]], [vec![], vec![]]];
        for round in 0..self.args.rounds {
            let place = self.place(&format!("runs{round}"))?;
            fill(&place.source, files)?;
            let other =
                Place { destination: place.scratch.join("other"), ..self.place(&format!("runs{round}"))? };
            for (nth, (sync, place)) in [(&off, &place), (&on, &other)].into_iter().enumerate() {
                self.work.sync()?;
                first[nth].push(ms(sync.measure(place, Probe::None)?.0));
                let_files_age();
                // The snapshot of the second run contains the stamps that the first could not record.
                sync.measure(place, Probe::None)?;
                same[nth].push(ms(sync.measure(place, Probe::None)?.0));
            }
            fs::remove_dir_all(self.work.trees().join(format!("runs{round}")))?;
        }
        for (name, most, [off, on]) in [("no change", 1.02, same), ("first", 1.15, first)] {
            self.line(files, &format!("run, {name}, without snapshots"), None, &[("volferry", &off)]);
            let reach = median(&off).map(|off| off * most);
            self.line(files, &format!("run, {name}, with one"), reach, &[("volferry", &on)]);
        }
        Ok(())
    }

    fn sync(&self, snapshot: bool) -> Volferry {
        let flags = snapshot.then(|| "--snapshot".to_string()).into_iter().collect();
        Volferry::in_mode(self.program.clone(), Mode::Local, flags)
    }

    /// Measures what publishing takes in addition to the run, according to the run's report.
    fn publish(&mut self, place: &Place) -> anyhow::Result<()> {
        let sync = self.sync(true);
        for _ in 0..2 {
            sync.measure(place, Probe::None)?;
            let_files_age();
        }
        for (changed, reach_ms) in [(0, 5.0), (100, 30.0), (self.args.files / 100, 1500.0)] {
            let mut samples = Vec::new();
            for round in 0..self.args.rounds {
                change(&place.source, self.args.files, changed, round)?;
                let_files_age();
                let report = sync.measure(place, Probe::None)?.1;
                samples.push(report.timings.snapshot as f64);
                // The snapshot of this run contains the stamps of the files just written.
                let_files_age();
                sync.measure(place, Probe::None)?;
            }
            let step = format!("publish beyond the run, {changed} changed");
            let reach = Some(reach_ms).filter(|_| self.args.files == GOAL_FILES);
            self.line(self.args.files, &step, reach, &[("volferry", &samples)]);
        }
        Ok(())
    }

    /// Measures restores beside runs that do the same work.
    fn restore(&mut self, place: &Place) -> anyhow::Result<()> {
        let (volume, other) = (&place.destination, place.scratch.join("restored"));
        let [mut some, mut run_some, mut all, mut run_all] = [const { Vec::new() }; 4];
        for round in 0..self.args.rounds {
            change(volume, self.args.files, 100, 1000 + round)?;
            // Else the first of the two would also write what the round before has removed.
            self.work.sync()?;
            some.push(self.timed(&["snapshot", "restore", "--no-safety"], &[volume, Path::new("latest")])?);
            change(volume, self.args.files, 100, 2000 + round)?;
            self.work.sync()?;
            run_some.push(ms(self.sync(false).measure(place, Probe::None)?.0));
            self.work.sync()?;
            all.push(self.timed(
                &["snapshot", "restore", "--no-safety", "--to"],
                &[&other, volume, Path::new("latest")],
            )?);
            fs::remove_dir_all(&other)?;
            self.work.sync()?;
            let fresh = Place { destination: other.clone(), ..self.place("volume")? };
            run_all.push(ms(self.sync(false).measure(&fresh, Probe::None)?.0));
            fs::remove_dir_all(&other)?;
        }
        for (step, restores, runs) in [("100 changed", some, run_some), ("all", all, run_all)] {
            let (restore, run) = (format!("restore, {step}"), format!("run, {step}"));
            self.line(self.args.files, &restore, median(&runs), &[("volferry", &restores)]);
            self.line(self.args.files, &run, None, &[("volferry", &runs)]);
        }
        Ok(())
    }

    /// Runs volferry, and returns the milliseconds that it took.
    fn timed(&self, words: &[&str], paths: &[&Path]) -> anyhow::Result<f64> {
        let mut command = Command::new(&self.program);
        command.args(words).args(paths);
        Ok(ms(run_timed(command, self.work.trees(), Duration::from_secs(self.args.limit))?.elapsed))
    }

    /// Takes snapshots and restores one with every installed tool, on the same tree with the same changes.
    fn beside_others(&mut self, place: &Place) -> anyhow::Result<(Vec<Named>, Vec<Missing>)> {
        let mut tools = vec![Tool::volferry(&self.program)];
        let mut missing = Vec::new();
        for (name, start) in [("restic", Tool::restic as fn(PathBuf) -> Tool), ("borg", Tool::borg)] {
            match find_program(name) {
                Some(program) => tools.push(start(program)),
                None => {
                    missing.push(Missing { name: name.into(), remedy: format!("apt-get install {name}") });
                }
            }
        }
        let mut times: Vec<[Vec<f64>; 2]> = tools.iter().map(|_| Default::default()).collect();
        for tool in &tools {
            self.with(tool, &tool.init, place, 0)?;
            self.with(tool, &tool.take, place, 0)?;
        }
        for round in 1..=self.args.rounds {
            change(&place.destination, self.args.files, 100, 3000 + round)?;
            let_files_age();
            for (tool, [take, restore]) in tools.iter().zip(&mut times) {
                take.push(self.with(tool, &tool.take, place, round)?);
                restore.push(self.with(tool, &tool.restore, place, round)?);
                fs::remove_dir_all(place.scratch.join("other-restored"))?;
            }
        }
        for (nth, name) in ["a snapshot, 100 changed", "a restore, all"].into_iter().enumerate() {
            let samples: Vec<(&str, &[f64])> =
                tools.iter().zip(&times).map(|(tool, times)| (tool.name, &times[nth][..])).collect();
            self.line(self.args.files, name, None, &samples);
        }
        let named = tools.iter().map(|tool| Named {
            name: tool.name.into(),
            version: tool.version.clone(),
            leaves_out: tool.leaves_out.into(),
        });
        Ok((named.collect(), missing))
    }

    /// Runs the commands of a tool in the volume, and returns their total time in milliseconds.
    fn with(&self, tool: &Tool, commands: &[Vec<&str>], place: &Place, round: u64) -> anyhow::Result<f64> {
        let restored = place.scratch.join("other-restored");
        let repository = place.scratch.join(tool.name);
        let mut took = 0.0;
        for words in commands {
            fs::create_dir_all(&restored)?;
            let mut command = Command::new(&tool.program);
            let within = if words.contains(&"extract") { &restored } else { &place.destination };
            command.current_dir(within).env("HOME", self.work.trees());
            command.env("RESTIC_REPOSITORY", &repository).env("RESTIC_PASSWORD", "bench");
            command.env("BORG_REPO", &repository).env("BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK", "yes");
            let (target, archive) = (restored.display().to_string(), format!("::{round}"));
            command.args(words.iter().map(|word| match *word {
                "TARGET" => &*target,
                "::NAME" => &*archive,
                word => word,
            }));
            took += ms(run_timed(command, &place.scratch, place.limit)?.elapsed);
        }
        Ok(took)
    }

    /// Takes a chain of snapshots, measures the space of the first hundred, and prunes a tenth.
    fn chain(&mut self, volume: &Path) -> anyhow::Result<()> {
        let (files, all) = (self.args.files, self.args.snapshots);
        let store = volume.join(".volferry/snapshots");
        fs::remove_dir_all(&store)?;
        for nth in 0..all {
            change(volume, files, files / 1000, 10_000 + nth)?;
            self.timed(&["snapshot", "create"], &[volume])?;
            if nth == 0 || nth + 1 == all.min(100) {
                let (tree, kept) = (room(volume, &store)?, room(&store, Path::new(""))?);
                let share = (tree + kept) as f64 / tree as f64;
                self.notes.push(format!(
                    "With {} of {all} snapshots, the volume takes {share:.2} × its tree.",
                    nth + 1
                ));
            }
        }
        let keep = format!("--keep-last={}", all - all / 10);
        let mut command = Command::new(&self.program);
        command.args(["snapshot", "prune", &keep]).arg(volume);
        let (took, peak) = run_watched(command, Duration::from_secs(self.args.limit))?;
        let step = format!("prune {} of {all}, 0.1 % changed each", all / 10);
        let reach = Some(10_000.0).filter(|_| (files, all) == (GOAL_FILES, 1000));
        self.line(files, &step, reach, &[("volferry", &[ms(took)])]);
        self.notes.push(format!("The prune took {:.0} MiB of memory.", peak / MIB));
        Ok(())
    }

    /// Adds a line to the table, with a median for each tool. `reach_ms` is the project's target time.
    fn line(&mut self, files: u64, step: &str, reach_ms: Option<f64>, samples: &[(&str, &[f64])]) {
        let line = Line::of_samples(format!("{files} files"), step.into(), reach_ms, samples);
        eprintln!(
            "{files} files, {step}: {:?} ms",
            line.tools.values().map(|it| it.median_ms).collect::<Vec<_>>()
        );
        self.lines.push(line);
    }
}

/// A program that takes snapshots, with the words of its commands.
struct Tool {
    name: &'static str,
    version: String,
    leaves_out: &'static str,
    program: PathBuf,
    init: Vec<Vec<&'static str>>,
    take: Vec<Vec<&'static str>>,
    restore: Vec<Vec<&'static str>>,
}

impl Tool {
    fn volferry(program: &Path) -> Self {
        Self {
            name: "volferry",
            version: version(program, "--version"),
            leaves_out: "",
            program: program.into(),
            init: vec![],
            take: vec![vec!["snapshot", "create", "."]],
            restore: vec![vec!["snapshot", "restore", "--no-safety", "--to", "TARGET", ".", "latest"]],
        }
    }

    fn restic(program: PathBuf) -> Self {
        Self {
            name: "restic",
            version: version(&program, "version"),
            leaves_out: "deletes; encrypts, and keeps its repository apart",
            program,
            init: vec![vec!["init", "--quiet"]],
            take: vec![vec!["backup", "--quiet", "--exclude", ".volferry", "."]],
            restore: vec![vec!["restore", "latest", "--quiet", "--target", "TARGET"]],
        }
    }

    fn borg(program: PathBuf) -> Self {
        Self {
            name: "borg",
            version: version(&program, "--version"),
            leaves_out: "deletes; compresses, and keeps its repository apart",
            program,
            init: vec![vec!["init", "--encryption", "none"]],
            take: vec![vec!["create", "--exclude", ".volferry", "::NAME", "."]],
            restore: vec![vec!["extract", "::NAME"]],
        }
    }
}

fn version(program: &Path, word: &str) -> String {
    let said = run(Command::new(program).arg(word)).unwrap_or_default();
    said.lines().next().unwrap_or("unknown").to_string()
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
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_room_of_a_folder_counts_all_its_files() {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path(), 10).unwrap();
        assert!(room(dir.path(), Path::new("")).unwrap() >= 10 * 512);
    }
}
