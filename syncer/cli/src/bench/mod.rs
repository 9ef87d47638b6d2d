//! `volferry bench`: copies a generated tree from one volume to another through the engine, reports the times and the
//! bottleneck, and leaves both volumes as they were.

mod bench_error;
mod bench_folder;
mod machine;
mod made_tree;
mod room;
mod route;

use std::{
    fs::File,
    io::{self, Write as _},
    path::Path,
    sync::Arc,
    time::SystemTime,
};

use contract::{
    BenchFigures, BenchResult, BenchStep, BenchStepName, BenchTree, Event, ExitCode, Report, RunParams,
    RunResult, Side, Timings, chain,
};
use rustix::fs::{Advice, fadvise};
use syncer::{monitor::Monitor, session::LinkOptions};

use crate::{
    config::{LinkConfig, ProgressMode},
    flags::BenchFlags,
    output, report_file,
    run::open,
    screen::Screen,
    show_progress::{Live, Look},
    signals,
};
use bench_error::BenchError;
use bench_folder::OwnFolder;
use route::Way;

/// Runs the bench, and prints the result in the requested form.
pub(super) fn run(flags: &BenchFlags, link: Option<LinkConfig>) -> ExitCode {
    let start_time = contract::timestamp(SystemTime::now());
    let done = if flags.schema {
        output::print_json(&schemars::schema_for!(BenchResult)).map_err(Into::into)
    } else {
        measure(flags, link, &start_time).and_then(|result| publish(&result, flags))
    };
    match done {
        Ok(()) => ExitCode::Done,
        // A reader that went away is no error.
        Err(BenchError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::Done,
        Err(error) => {
            let text = chain_with_hint(&error);
            let _ = writeln!(io::stderr(), "error: {text}");
            if let Some(name) = &flags.run {
                let _ = report(flags, &error.report(name, start_time, text));
            }
            error.exit()
        }
    }
}

/// Moves the hint of an error behind its causes.
fn chain_with_hint(error: &BenchError) -> String {
    let text = chain(error);
    match text.split_once("\nhint: ") {
        Some((what, rest)) => match rest.split_once(": ") {
            Some((hint, cause)) => format!("{what}: {cause}\nhint: {hint}"),
            None => text,
        },
        None => text,
    }
}

/// The folders of the volumes that this process works on.
struct Volumes<'a> {
    source: Option<&'a Path>,
    destination: Option<&'a Path>,
}

impl<'a> Volumes<'a> {
    fn of(flags: &'a BenchFlags) -> Self {
        let (source, destination) = (flags.source.as_deref(), flags.destination.as_deref());
        match flags.end.map(Side::from) {
            Some(Side::Sink) => Self { source: None, destination: source },
            Some(Side::Source) | None => Self { source, destination },
        }
    }
}

/// Makes the tree, runs all rounds, and removes the tree, also after a failure.
fn measure(
    flags: &BenchFlags,
    link: Option<LinkConfig>,
    start_time: &str,
) -> Result<BenchResult, BenchError> {
    let bench = made_tree::named(&flags.tree)?;
    let volumes = Volumes::of(flags);
    let source = volumes.source.map(machine::place).transpose()?;
    let destination = volumes.destination.map(machine::place).transpose()?;
    let monitor = Arc::new(Monitor::default());
    let screen = Arc::new(Screen::new(false));
    signals::pass_on(&monitor, &screen)?;
    let mode = if flags.run.is_some() { ProgressMode::Json } else { ProgressMode::None };
    let listens = link.as_ref().is_some_and(LinkConfig::listens);
    let _live = Live::start(Look { mode, color: false, listens }, &screen, &monitor)?;
    room::check(&bench, volumes.source, volumes.destination)?;
    let link = link.map(|link| open(link, &screen, &monitor)).transpose()?;
    let params = RunParams { bandwidth_limit: flags.bandwidth_limit, ..RunParams::default() };
    let Measured { runs, notes } =
        in_own_folders(&volumes, &Bench { tree: &bench, link, params, monitor }, flags.rounds)?;
    let of_step =
        |at: usize| runs.iter().skip(at).step_by(BenchStepName::ALL.len()).cloned().collect::<Vec<_>>();
    let steps = BenchStepName::ALL.into_iter().enumerate();
    let steps = steps.filter_map(|(at, name)| BenchStep::of(name, &of_step(at))).collect();
    let start_time = start_time.into();
    let figures = BenchFigures { bench, start_time, source, destination, steps, notes };
    Ok(BenchResult { figures, runs })
}

/// The runs of all rounds.
struct Measured {
    runs: Vec<Report>,
    /// Notes about times that could not be restored.
    notes: Vec<String>,
}

/// Runs all rounds in new folders, and removes them.
fn in_own_folders(volumes: &Volumes<'_>, bench: &Bench<'_>, rounds: u32) -> Result<Measured, BenchError> {
    let from = volumes.source.map(OwnFolder::make).transpose()?;
    let to = volumes.destination.map(OwnFolder::make).transpose()?;
    let way =
        Way::new(from.as_ref().map(OwnFolder::work), to.as_ref().map(OwnFolder::work), bench.link.as_ref());
    let runs = way.ok_or(BenchError::NoFolders).and_then(|way| bench.rounds(&way, rounds));
    // The folder that was made last is removed first, because both may be in one volume.
    let removed = [to, from].map(|folder| folder.map_or(Ok(None), OwnFolder::remove));
    let runs = if bench.monitor.cancelled() { Err(BenchError::Stopped) } else { runs }?;
    let notes = removed.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    Ok(Measured { runs, notes })
}

/// The data that all rounds share.
struct Bench<'a> {
    tree: &'a BenchTree,
    link: Option<LinkOptions>,
    params: RunParams,
    monitor: Arc<Monitor>,
}

impl Bench<'_> {
    /// Runs every step in each of the rounds. Each round copies into a new folder.
    fn rounds(&self, way: &Way<'_>, rounds: u32) -> Result<Vec<Report>, BenchError> {
        let mut runs = Vec::new();
        if let Some(from) = way.from() {
            made_tree::make(self.tree, from, &self.monitor)?;
        }
        for round in 1..=rounds {
            for step in BenchStepName::ALL {
                if let Some(from) = way.from() {
                    self.prepare(step, from)?;
                }
                let params =
                    RunParams { run: format!("bench {} {round}", step.word()), ..self.params.clone() };
                runs.push(way.run_once(&params, &self.monitor)?);
            }
            way.remove_copy()?;
        }
        Ok(runs)
    }

    fn prepare(&self, step: BenchStepName, from: &Path) -> Result<(), BenchError> {
        if step == BenchStepName::Changed {
            made_tree::change(self.tree, from, &self.monitor)?;
        }
        settle(self.tree, from)
    }
}

/// Syncs the files to the volume, and has the kernel drop their content from its cache, so that the run reads the
/// volume.
fn settle(tree: &BenchTree, folder: &Path) -> Result<(), BenchError> {
    let failed = |path: &Path, source| BenchError::Make { path: path.into(), source };
    let opened = File::open(folder).map_err(|error| failed(folder, error))?;
    rustix::fs::syncfs(&opened).map_err(|error| failed(folder, error.into()))?;
    made_tree::paths(tree, folder).try_for_each(|path| {
        let forget = |file: File| Ok(fadvise(file, 0, None, Advice::DontNeed)?);
        File::open(&path).and_then(forget).map_err(|error| failed(&path, error))
    })
}

/// Returns the report of the bench as one run of this name.
fn as_run(result: &BenchResult, name: &str) -> Report {
    let mut report = Report {
        run: name.into(),
        result: RunResult::Succeeded,
        start_time: result.figures.start_time.clone(),
        completion_time: contract::timestamp(SystemTime::now()),
        benchmark: Some(Box::new(result.figures.clone())),
        ..Report::default()
    };
    let mut timings = Timings::default();
    for run in &result.runs {
        timings.add_try(&run.timings);
        report.work.add_try(&run.work);
        report.usage.add(&run.usage);
    }
    report.timings = timings;
    report.fill_rates();
    report
}

/// Writes the report of a run to its file, and prints it as an event.
fn report(flags: &BenchFlags, run: &Report) -> io::Result<()> {
    if let Some(path) = &flags.report {
        report_file::write(path, &report_file::text(run)?)?;
    }
    Screen::new(false).event(&Event::Finished(Box::new(run.clone())))
}

fn publish(result: &BenchResult, flags: &BenchFlags) -> Result<(), BenchError> {
    let failed = |source| BenchError::Write { path: flags.report.clone().unwrap_or_default(), source };
    if let Some(name) = &flags.run {
        return report(flags, &as_run(result, name)).map_err(failed);
    }
    if let Some(path) = &flags.report {
        let text = serde_json::to_string_pretty(result).map_err(io::Error::from)? + "\n";
        report_file::write(path, &text).map_err(failed)?;
    }
    if flags.json {
        output::print_json(result)?;
    } else {
        io::stdout().write_all(trend::bench_table(&result.figures).as_bytes())?;
    }
    Ok(())
}
