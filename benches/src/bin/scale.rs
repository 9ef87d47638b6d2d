//! Measures the time and memory for trees of many files.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, anyhow, ensure};
use benches::{
    machine::Machine,
    peers::{Peer as _, Place, Programs, Volferry},
    probe::Probe,
    workdir::{FileSystem, WorkDir, enter_namespace},
};
use clap::Parser;
use contract::Report;

const MIB: u64 = 1 << 20;

/// The memory limit of each end: a fixed part, and a part for each file, in bytes.
const BASE_BYTES: u64 = 64 * MIB;
const BYTES_PER_FILE: u64 = 40;

/// The image size for each file in bytes, if the file system is an image: for both trees and free space.
const IMAGE_BYTES_PER_FILE: u64 = 2 << 10;

/// Runs `volferry send` and `receive` on trees of many empty files, and prints the time and the peak memory of both
/// ends: of the first run, of one with no change and of one with a new file. The status is 1 when an end took more than
/// 64 MiB and 40 bytes a file.
#[derive(Debug, Parser)]
struct Args {
    /// The numbers of files of the trees, which are measured one after the other
    #[arg(long, num_args = 1.., default_values_t = [1_000_000, 2_000_000])]
    files: Vec<u64>,
    /// Files in each folder
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    per_folder: u64,
    /// Folder to work in
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// What the trees are kept on, mounted for the time of the bench
    #[arg(long, value_enum, default_value = "tmpfs")]
    fs: FileSystem,
    /// The volferry to measure; by default the one beside this program
    #[arg(long, value_name = "PROGRAM")]
    volferry: Option<PathBuf>,
    /// A run that takes longer has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    limit: u64,
}

fn main() -> ExitCode {
    benches::exit_code(bench(&Args::parse()))
}

/// Runs the bench; returns false if an end took more memory than allowed.
fn bench(args: &Args) -> anyhow::Result<bool> {
    enter_namespace(args.fs)?;
    let programs = Programs { root: PathBuf::new(), volferry: args.volferry.clone() };
    let program = programs.volferry().map_err(|missing| anyhow!("{}: {}", missing.name, missing.remedy))?;
    println!("{}; {} files a folder\n", Machine::look(&args.dir), args.per_folder);
    println!("| files | run | s | source MiB | sink MiB | at most |");
    println!("|--:|---|--:|--:|--:|--:|");
    let mut is_within = true;
    for files in &args.files {
        is_within &= measure(args, *files, program.clone()).with_context(|| format!("{files} files"))?;
    }
    Ok(is_within)
}

fn measure(args: &Args, files: u64, program: PathBuf) -> anyhow::Result<bool> {
    let work = WorkDir::make(&args.dir, args.fs, files * IMAGE_BYTES_PER_FILE)?;
    let dir = |name| -> anyhow::Result<PathBuf> {
        let dir = work.trees().join(name);
        fs::create_dir(&dir)?;
        Ok(dir)
    };
    let limit = Duration::from_secs(args.limit);
    let (source, destination, scratch) = (dir("source")?, dir("destination")?, dir("scratch")?);
    let place = Place { source, destination, scratch, round: 0, limit };
    fill(&place.source, files, args.per_folder)?;
    let mut volferry = Volferry::network(program);
    volferry.begin(&place)?;
    let first = volferry.measure(&place, Probe::None)?.1;
    ensure!(first.work.files_created >= files, "{} were made", first.work.files_created);
    let same = volferry.measure(&place, Probe::None)?.1;
    File::create_new(place.source.join("one more"))?;
    let changed = volferry.measure(&place, Probe::None)?.1;
    let made = same.work.files_created + changed.work.files_created;
    ensure!(made == 1, "{made} were made where one is new");
    let runs = [("first", first), ("no change", same), ("one new", changed)];
    Ok(runs.into_iter().fold(true, |is_within, (name, report)| tell(files, name, &report) && is_within))
}

/// Prints a row of the table; returns false if an end took more memory than allowed.
fn tell(files: u64, name: &str, report: &Report) -> bool {
    let most = BASE_BYTES + BYTES_PER_FILE * files;
    let mib = |bytes: u64| bytes.div_ceil(MIB);
    let [source, sink] = [report.usage.source_peak_rss, report.usage.sink_peak_rss];
    let seconds = report.timings.total as f64 / 1000.0;
    println!("| {files} | {name} | {seconds:.1} | {} | {} | {} |", mib(source), mib(sink), mib(most));
    source.max(sink) <= most
}

/// Creates empty files with names of 15 bytes.
fn fill(root: &Path, files: u64, per_folder: u64) -> anyhow::Result<()> {
    for folder in 0..files.div_ceil(per_folder) {
        let dir = root.join(format!("folder-{folder:08}"));
        fs::create_dir(&dir)?;
        for file in folder * per_folder..files.min((folder + 1) * per_folder) {
            File::create_new(dir.join(format!("file-{file:010}")))?;
        }
    }
    Ok(())
}
