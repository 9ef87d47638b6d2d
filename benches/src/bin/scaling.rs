//! Fits the time and memory of runs over the network to measurements, and checks the result by further ones.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Duration,
};

use anyhow::{Context as _, anyhow, ensure};
use benches::{
    edits::Edit,
    link::LinkConfig,
    machine::Machine,
    peers::{Peer as _, Place, Programs, Volferry},
    probe::{Probe, on_one_core},
    scaling::{Load, Measured, Model, Run, Scaling},
    stats::median,
    trees::Shape,
    workdir::{FileSystem, WorkDir, enter_namespace},
};
use clap::Parser;
use contract::Report;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Measures runs of `volferry send` and `receive` on trees of several sizes, over several links, on one core and on
/// two, and fits time and memory to a part of them. The status is 1 when the result misses one of the other runs by
/// more than 15 %.
#[derive(Debug, Parser)]
struct Args {
    /// Rounds that each median is of
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Folder to work in
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// The volferry to measure; by default the one beside this program
    #[arg(long, value_name = "PROGRAM")]
    volferry: Option<PathBuf>,
    /// A run that takes longer has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u64,
    /// Also write the figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The purpose of a tree's runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Fit,
    HoldBack,
}
use Purpose::{Fit, HoldBack};

/// A tree of equal files, and the connection between the ends.
#[derive(Debug, Clone, Copy)]
struct Series {
    purpose: Purpose,
    files: u32,
    bytes: u64,
    /// The share of the files that changes before the third run.
    changed: f64,
    way: Way,
}

/// The limit of a run besides its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    TwoCores,
    OneCore,
    RoundTripMs(u64),
    BytesPerSecond(u64),
}

const fn series(purpose: Purpose, files: u32, bytes: u64, changed: f64, way: Way) -> Series {
    Series { purpose, files, bytes, changed, way }
}

/// The trees, from 200 to 400,000 files and from 10 MB to 1.6 GB.
const SERIES: [Series; 17] = [
    series(Fit, 2_000, 4 * KIB, 0.1, Way::TwoCores),
    series(Fit, 20_000, KIB, 0.01, Way::TwoCores),
    series(Fit, 100_000, KIB, 0.01, Way::TwoCores),
    series(Fit, 100_000, 8 * KIB, 0.05, Way::TwoCores),
    series(Fit, 400_000, 100, 0.01, Way::TwoCores),
    series(Fit, 1_000, MIB, 0.1, Way::TwoCores),
    series(Fit, 200, 4 * MIB, 0.1, Way::TwoCores),
    series(Fit, 20_000, KIB, 0.01, Way::OneCore),
    series(Fit, 100_000, 8 * KIB, 0.05, Way::OneCore),
    series(Fit, 2_000, 4 * KIB, 0.1, Way::RoundTripMs(20)),
    series(Fit, 5_000, 4 * KIB, 0.05, Way::RoundTripMs(50)),
    series(Fit, 20_000, KIB, 0.01, Way::RoundTripMs(100)),
    series(HoldBack, 50_000, 4 * KIB, 0.02, Way::TwoCores),
    series(HoldBack, 200_000, 512, 0.05, Way::TwoCores),
    series(HoldBack, 50_000, 4 * KIB, 0.02, Way::OneCore),
    series(HoldBack, 10_000, 2 * KIB, 0.05, Way::RoundTripMs(50)),
    series(HoldBack, 2_000, 64 * KIB, 0.2, Way::BytesPerSecond(40_000_000)),
];

fn main() -> ExitCode {
    benches::exit_code(bench(&Args::parse()))
}

fn bench(args: &Args) -> anyhow::Result<bool> {
    enter_namespace(FileSystem::Tmpfs)?;
    ensure!(thread::available_parallelism()?.get() >= 2, "two cores are needed, of which some runs use one");
    let programs = Programs { root: PathBuf::new(), volferry: args.volferry.clone() };
    let program = programs.volferry().map_err(|missing| anyhow!("{}: {}", missing.name, missing.remedy))?;
    let machine = Machine::look(&args.dir);
    let (mut fitted, mut held_back) = (Vec::new(), Vec::new());
    for series in SERIES {
        let runs = series.measure(args, &program).with_context(|| series.name())?;
        for run in &runs {
            eprintln!("{}: {:.3} s", run.name, run.measured.seconds);
        }
        if series.purpose == Fit { fitted.extend(runs) } else { held_back.extend(runs) }
    }
    let model = Model::fit(&fitted.iter().map(|run| run.measured.clone()).collect::<Vec<_>>());
    let date = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    let scaling = Scaling { date, machine, rounds: args.rounds, fitted, held_back, model };
    println!("{}", scaling.to_markdown());
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&scaling)? + "\n";
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(scaling.is_within())
}

/// The three runs of a round.
const STEPS: [&str; 3] = ["first", "no change", "changed"];

impl Series {
    fn name(&self) -> String {
        let way = match self.way {
            Way::TwoCores => String::new(),
            Way::OneCore => ", one core".into(),
            Way::RoundTripMs(ms) => format!(", {ms} ms round trip"),
            Way::BytesPerSecond(bytes) => format!(", {} MB/s", bytes / 1_000_000),
        };
        format!("{} files of {} bytes{way}", self.files, self.bytes)
    }

    /// Measures a first run, one without changes and one with changed files, and returns the medians over the rounds.
    fn measure(&self, args: &Args, program: &Path) -> anyhow::Result<Vec<Run>> {
        let work = WorkDir::make(&args.dir, FileSystem::Tmpfs, 0)?;
        let limit = Duration::from_secs(args.limit);
        let [source, destination, scratch] =
            ["source", "destination", "scratch"].map(|name| work.trees().join(name));
        let place = Place { source, destination, scratch, round: 0, limit };
        Shape { folders: self.folders(), ..Shape::flat(self.files, self.bytes) }.make(&place.source)?;
        fs::create_dir(&place.scratch)?;
        let mut volferry = match self.link() {
            Some(link) => Volferry::linked(program.into(), "volferry", link),
            None => Volferry::network(program.into()),
        };
        volferry.begin(&place)?;
        let mut samples: [Vec<(Duration, Report)>; 3] = Default::default();
        for round in 0..args.rounds {
            let place = Place { round, ..place.clone() };
            let taken = self.round(&work, &place, &volferry)?;
            samples.iter_mut().zip(taken).for_each(|(samples, taken)| samples.push(taken));
        }
        Ok(samples.iter().zip(STEPS).map(|(samples, step)| self.summarise(samples, step)).collect())
    }

    fn round(
        &self,
        work: &WorkDir,
        place: &Place,
        volferry: &Volferry,
    ) -> anyhow::Result<[(Duration, Report); 3]> {
        fs::create_dir(&place.destination)?;
        let run = || -> anyhow::Result<(Duration, Report)> {
            work.settle(u64::from(self.files) * self.bytes.next_multiple_of(4 * KIB))?;
            match self.way {
                Way::OneCore => on_one_core(|| volferry.measure(place, Probe::None)),
                _ => volferry.measure(place, Probe::None),
            }
        };
        let first = run()?;
        let same = run()?;
        let count = self.changed_files();
        Edit::Rewrite { count, seed: place.round }.apply(&place.source)?;
        let changed = run()?;
        let updated = [same.1.work.files_updated, changed.1.work.files_updated];
        ensure!(updated == [0, count as u64], "{updated:?} files were updated");
        fs::remove_dir_all(&place.destination)?;
        Ok([first, same, changed])
    }

    fn summarise(&self, samples: &[(Duration, Report)], step: &str) -> Run {
        let of = |value: fn(&(Duration, Report)) -> f64| samples.iter().map(value).collect::<Vec<_>>();
        let middle = |value| median(&of(value)).unwrap_or_default();
        let most = |value| of(value).into_iter().fold(0.0, f64::max);
        let files = f64::from(self.files);
        let (created, updated) = match step {
            "first" => (files, 0.0),
            "changed" => (0.0, self.changed_files() as f64),
            _ => (0.0, 0.0),
        };
        let load = Load {
            files,
            created,
            updated,
            // The changed files are spread evenly over the tree.
            folders: updated.min(f64::from(self.folders())),
            bytes: (created + updated) * self.bytes as f64,
            round_trip: self.link().map_or(0.0, |link| link.rtt.as_secs_f64()),
            bandwidth: self.link().and_then(|link| link.bandwidth).map(|bytes| bytes as f64),
            cores: if self.way == Way::OneCore { 1.0 } else { 2.0 },
        };
        let measured = Measured {
            load,
            seconds: middle(|(elapsed, _)| elapsed.as_secs_f64()),
            wire_bytes: middle(|(_, report)| report.work.bytes_on_wire as f64),
            source_memory: most(|(_, report)| report.usage.source_peak_rss as f64),
            sink_memory: most(|(_, report)| report.usage.sink_peak_rss as f64),
        };
        let name = match step {
            "changed" => format!("{}, {:.0} % changed", self.name(), self.changed * 100.0),
            _ => format!("{}, {step}", self.name()),
        };
        Run { name, measured }
    }

    fn folders(&self) -> u32 {
        self.files.div_ceil(100)
    }

    fn changed_files(&self) -> usize {
        (f64::from(self.files) * self.changed).round() as usize
    }

    /// Returns the link, which is without losses, if the connection uses one.
    fn link(&self) -> Option<LinkConfig> {
        let clean = LinkConfig { rtt: Duration::ZERO, loss: 0.0, reorder: 0.0, ..LinkConfig::WAN };
        match self.way {
            Way::TwoCores | Way::OneCore => None,
            Way::RoundTripMs(ms) => Some(LinkConfig { rtt: Duration::from_millis(ms), ..clean }),
            Way::BytesPerSecond(bytes) => Some(LinkConfig { bandwidth: Some(bytes), ..clean }),
        }
    }
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
    fn no_run_is_both_fitted_and_held_back() {
        let names = |purpose| SERIES.iter().filter(move |series| series.purpose == purpose).map(Series::name);
        assert!(names(HoldBack).all(|name| names(Fit).all(|other| other != name)));
    }
}
