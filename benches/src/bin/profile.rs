//! Draws a flamegraph of runs of one named bench.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use benches::{
    probe::Probe,
    suites::{Mode, bench},
    trial::{Sources, Trial},
    workdir::{FileSystem, WorkDir},
};
use clap::{Parser, ValueEnum as _};
use testkit::process::run;

/// Runs a named bench under `perf`, again and again, and draws a flamegraph of both ends.
///
/// `make profile BENCH=network/sync_small_files/1000` builds a program with frame pointers and calls this.
#[derive(Debug, Parser)]
struct Args {
    /// The bench: mode/suite/parameter
    #[arg(long)]
    bench: String,
    /// The program, built with frame pointers
    #[arg(long)]
    program: PathBuf,
    /// The folder that has inferno's programs
    #[arg(long, value_name = "DIR")]
    inferno: PathBuf,
    /// The picture to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Folder to work in
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Runs take this long together at least: a run of some milliseconds has few samples
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    Probe::Perf.require()?;
    let (mode, name) = args.bench.split_once('/').context("a bench is called mode/suite/parameter")?;
    let mode = Mode::from_str(mode, false).map_err(anyhow::Error::msg)?;
    let bench = bench(name).with_context(|| format!("no bench is called {name}"))?;
    let work = WorkDir::make(&args.dir, FileSystem::Dir, 0)?;
    let sources = Sources::make(&bench, work.trees())?;
    let limit = Duration::from_secs(300);
    let trial = Trial::new(&bench, mode, args.program.clone(), &sources, &work.trees().join("run"), limit)?;
    let folded = sample(&args, &trial)?;
    draw(&args, &folded)?;
    println!("{}", args.out.display());
    Ok(())
}

/// Repeats runs until enough samples exist, and returns the file with their folded stacks.
fn sample(args: &Args, trial: &Trial) -> anyhow::Result<PathBuf> {
    let folded = trial.scratch().join("folded");
    let file = File::create(&folded)?;
    let (mut runs, mut spent) = (0, 0.0);
    while spent < args.seconds {
        trial.prepare()?;
        spent += trial.run(Probe::Perf)?.elapsed.as_secs_f64();
        runs += 1;
        for end in trial.ends() {
            fold(args, &Probe::Perf.file(trial.scratch(), end), &folded)?;
        }
    }
    ensure!(
        file.metadata()?.len() > 0,
        "perf took no samples\nhint: kernel.perf_event_paranoid must be 2 or less"
    );
    eprintln!("{runs} runs, {spent:.1} s");
    Ok(folded)
}

/// Appends the stacks of one recording.
fn fold(args: &Args, recording: &Path, to: &Path) -> anyhow::Result<()> {
    let script = "perf script -i \"$1\" 2>/dev/null | \"$2/inferno-collapse-perf\" 2>/dev/null >>\"$3\"";
    let mut command = Command::new("bash");
    command.args(["-o", "pipefail", "-c", script, "fold"]).args([recording, &args.inferno, to]);
    run(&mut command).map(drop).context("perf script or inferno-collapse-perf\nhint: .ci/tools profile")
}

fn draw(args: &Args, folded: &Path) -> anyhow::Result<()> {
    let program = args.inferno.join("inferno-flamegraph");
    let picture = run(Command::new(program).args(["--title", &args.bench]).arg(folded))?;
    std::fs::write(&args.out, picture).with_context(|| format!("writing {}", args.out.display()))
}
