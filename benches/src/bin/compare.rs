//! Runs two builds of `volferry` in turn on the named benches, and reports which benches got slower.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use benches::{
    compare::{Comparison, Row, Unit},
    machine::Machine,
    probe::{Probe, Profile, pin_to_one_core},
    stats::MIN_ROUNDS,
    suites::{Bench, Mode, benches},
    trial::{Sources, Trial},
    workdir::{FileSystem, WorkDir},
    write_json,
};
use clap::{Parser, ValueEnum as _};

/// Runs two builds of `volferry` in turn on the named benches, checks each result, and prints medians, spreads, ratios
/// and verdicts.
///
/// `benches/compare A B` builds two commits and calls this. The status is 0 when no bench got slower, 1 when one did,
/// and 2 after an error.
#[derive(Debug, Parser)]
struct Args {
    /// The first program
    #[arg(long, value_name = "PROGRAM")]
    before: PathBuf,
    /// The second program, which is judged by the first
    #[arg(long, value_name = "PROGRAM")]
    after: PathBuf,
    /// The first program's name in tables
    #[arg(long, default_value = "before")]
    before_name: String,
    /// The second program's name in tables
    #[arg(long, default_value = "after")]
    after_name: String,
    /// Only benches whose name (`local/sync_small_files/10`) contains one of these
    #[arg(long, num_args = 1.., value_name = "TEXT")]
    bench: Vec<String>,
    /// Only one of the modes
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Leave out trees of more than 16 MB
    #[arg(long)]
    quick: bool,
    /// Rounds; in each, both programs run each bench once, and the other one first than in the round before
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// The least change that counts, in percent [default: 3, of instructions 2]
    #[arg(long, value_name = "PERCENT")]
    threshold: Option<f64>,
    /// Judge the benches of a mode together, for a change that all share
    #[arg(long)]
    together: bool,
    /// Count instructions with valgrind on one core, once, in the place of measuring time
    #[arg(long)]
    instructions: bool,
    /// Folder to work in; a gigabyte is needed
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Write the table to this file, as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write all figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A run that takes longer has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u64,
}

/// The tree size in bytes above which `--quick` leaves out a bench.
const QUICK_BYTES: u64 = 16_000_000;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(is_slower) => ExitCode::from(u8::from(is_slower)),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs the benches; returns whether one got slower.
fn run(args: &Args) -> anyhow::Result<bool> {
    let chosen = chosen(args);
    ensure!(
        !chosen.is_empty(),
        "no bench is left\nhint: names are mode/suite/parameter, as in local/sync_small_files/10"
    );
    if args.instructions {
        Probe::Callgrind.require()?;
        pin_to_one_core()?;
    } else if (args.rounds as usize) < MIN_ROUNDS {
        eprintln!("fewer than {MIN_ROUNDS} rounds tell nothing for certain: all verdicts will be `unclear`");
    }
    let comparison = measure(args, &chosen)?;
    print!("{}", comparison.to_markdown());
    if let Some(path) = &args.markdown {
        fs::write(path, comparison.to_markdown()).with_context(|| format!("writing {}", path.display()))?;
    }
    write_json(args.json.as_deref(), &comparison)?;
    Ok(comparison.is_slower())
}

/// A bench to run, its mode, and its full name.
struct Chosen {
    bench: Bench,
    mode: Mode,
    name: String,
}

fn chosen(args: &Args) -> Vec<Chosen> {
    let modes = Mode::value_variants().iter().filter(|mode| args.mode.is_none_or(|only| only == **mode));
    let all = modes.flat_map(|mode| {
        let named = |bench: Bench| Chosen { name: bench.full_name(*mode), mode: *mode, bench };
        benches().into_iter().map(named)
    });
    let is_named = |name: &str| args.bench.is_empty() || args.bench.iter().any(|text| name.contains(text));
    all.filter(|it| is_named(&it.name) && !(args.quick && it.bench.shape.bytes() > QUICK_BYTES)).collect()
}

/// Copies both programs to `dir`, so that the kernel caches both in pages of one size. With large pages a program
/// starts much faster than with small ones.
fn copy_programs(args: &Args, dir: &Path) -> anyhow::Result<[PathBuf; 2]> {
    let copies = ["first", "second"].map(|name| dir.join(name));
    for (program, copy) in [&args.before, &args.after].into_iter().zip(&copies) {
        fs::copy(program, copy)
            .with_context(|| format!("copying {} to {}", program.display(), copy.display()))?;
    }
    Ok(copies)
}

fn measure(args: &Args, chosen: &[Chosen]) -> anyhow::Result<Comparison> {
    let folder =
        tempfile::tempdir_in(&args.dir).with_context(|| format!("a folder in {}", args.dir.display()))?;
    let programs = copy_programs(args, folder.path())?;
    let machine = Machine::describe(&args.dir);
    eprintln!("{machine}");
    let unit = if args.instructions { Unit::Instructions } else { Unit::Milliseconds };
    let percent = args.threshold.unwrap_or(if args.instructions { 2.0 } else { 3.0 });
    let mut rows = Vec::new();
    for Chosen { bench, mode, name } in chosen {
        let [before, after] = both(args, &programs, bench, *mode).with_context(|| name.clone())?;
        let row = Row::new(name.clone(), unit, before, after, percent / 100.0).context("no round")?;
        eprintln!("{name}: {:.3}, {}", row.ratio.median, row.verdict);
        rows.push(row);
    }
    let [before, after] = [&args.before_name, &args.after_name].map(String::clone);
    let single =
        Comparison { machine, before, after, unit, threshold: percent / 100.0, rows, together: Vec::new() };
    Ok(if args.together { single.judged_together() } else { single })
}

/// Returns the figures of both programs on one bench, for each round.
fn both(
    args: &Args,
    [before, after]: &[PathBuf; 2],
    bench: &Bench,
    mode: Mode,
) -> anyhow::Result<[Vec<f64>; 2]> {
    let work = WorkDir::make(&args.dir, FileSystem::Dir, 0)?;
    let sources = Sources::make(bench, work.trees())?;
    let limit = Duration::from_secs(args.limit);
    let trial = |program: &Path, name| {
        Trial::new(bench, mode, program.to_path_buf(), &sources, &work.trees().join(name), limit)
    };
    let trials = [trial(before, "before-copy")?, trial(after, "after-copy")?];
    let mut figures = [Vec::new(), Vec::new()];
    let rounds = if args.instructions { 1 } else { args.rounds };
    for round in 0..rounds {
        for turn in 0..2 {
            let program = (turn + round as usize) % 2;
            let trial = &trials[program];
            trial.prepare()?;
            work.settle(bench.shape.bytes() * 5 / 4)?;
            figures[program].push(figure(trial, args.instructions)?);
            trial.check()?;
        }
    }
    Ok(figures)
}

/// Returns the milliseconds, or instructions, of one run.
fn figure(trial: &Trial, instructions: bool) -> anyhow::Result<f64> {
    if !instructions {
        return Ok(trial.run(Probe::None)?.elapsed.as_secs_f64() * 1000.0);
    }
    trial.run(Probe::Callgrind)?;
    Ok(Profile::read(trial.scratch(), trial.ends())?.instructions as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benches_are_chosen_by_name_mode_and_size() {
        let names = |args: &[&str]| -> Vec<String> {
            let args = ["compare", "--before", "a", "--after", "b"].iter().chain(args);
            chosen(&Args::parse_from(args)).into_iter().map(|chosen| chosen.name).collect()
        };
        assert_eq!(names(&[]).len(), 2 * benches().len());
        assert_eq!(
            names(&["--bench", "small_files/50", "--mode", "local"]),
            ["local/sync_small_files/50", "local/sync_small_files/500"]
        );
        assert!(!names(&["--quick"]).iter().any(|name| name.ends_with("/100MB")));
    }
}
