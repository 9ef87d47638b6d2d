//! `volferry bench`: brings a made-up tree from one volume to another through the engine, says how long that took and
//! what it waited for, and leaves both volumes as they were.

mod bench_error;
mod machine;
mod made_tree;
mod own_folder;
mod room;

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
    sync::Arc,
    time::SystemTime,
};

use contract::{BenchResult, BenchStep, BenchStepName, BenchTree, ExitCode, Report, RunParams, RunResult};
use rustix::fs::{Advice, fadvise};
use serde::Serialize;
use syncer::{monitor::Monitor, session};

use crate::{flags::BenchFlags, report_file, screen::Screen, signals};
use bench_error::BenchError;
use own_folder::OwnFolder;
use trend::human::chain;

/// Measures, and prints what was found in the form that is asked for.
pub(super) fn run(flags: &BenchFlags) -> ExitCode {
    let done = match (&flags.source, &flags.destination) {
        (Some(source), Some(destination)) => {
            measure(source, destination, flags).and_then(|result| tell(&result, flags))
        }
        _ => print(&schemars::schema_for!(BenchResult)).map_err(Into::into),
    };
    match done {
        Ok(()) => ExitCode::Done,
        // A reader that went away is no error.
        Err(BenchError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::Done,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}", chain_with_hint(&error));
            ExitCode::Failed
        }
    }
}

/// Puts the hint of an error behind its causes.
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

/// Makes the tree, runs all rounds, and removes what it made, however that ends.
fn measure(source: &Path, destination: &Path, flags: &BenchFlags) -> Result<BenchResult, BenchError> {
    let tree = made_tree::named(&flags.tree)?;
    let start_time = contract::timestamp(SystemTime::now());
    let places = [machine::place(source)?, machine::place(destination)?];
    let monitor = Arc::new(Monitor::default());
    signals::pass_on(&monitor, &Arc::new(Screen::new(false)))?;
    let from = OwnFolder::make(source)?;
    let to = OwnFolder::make(destination)?;
    let runs = room::check(&tree, source, destination)
        .and_then(|()| rounds(&tree, [from.path(), to.path()], flags.rounds, &monitor));
    // The folder that was made last goes first, because both may lie in one volume.
    let removed = [to.remove(), from.remove()];
    let runs = if monitor.cancelled() { Err(BenchError::Stopped) } else { runs }?;
    let notes = removed.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    let of_step =
        |at: usize| runs.iter().skip(at).step_by(BenchStepName::ALL.len()).cloned().collect::<Vec<_>>();
    let steps = BenchStepName::ALL.into_iter().enumerate();
    let steps = steps.filter_map(|(at, name)| BenchStep::of(name, &of_step(at))).collect();
    let [source, destination] = places;
    let machine = machine::here();
    Ok(BenchResult { bench: tree, start_time, source, destination, machine, steps, notes, runs })
}

/// Runs every step as often as is asked for, each round into a new folder.
fn rounds(
    tree: &BenchTree,
    [from, to]: [&Path; 2],
    rounds: u32,
    monitor: &Monitor,
) -> Result<Vec<Report>, BenchError> {
    let mut runs = Vec::new();
    made_tree::make(tree, from, monitor)?;
    for round in 1..=rounds {
        let copy = to.join("copy");
        for step in BenchStepName::ALL {
            if step == BenchStepName::Changed {
                made_tree::change(tree, from, monitor)?;
            }
            settle(tree, from)?;
            runs.push(run_once(&format!("bench {} {round}", step.word()), [from, &copy], monitor)?);
        }
        fs::remove_dir_all(&copy).map_err(|source| BenchError::Remove { path: copy, source })?;
    }
    Ok(runs)
}

/// Sends what was made to the volume, and has the kernel forget the content, so that the run reads it from there.
fn settle(tree: &BenchTree, folder: &Path) -> Result<(), BenchError> {
    let failed = |path: &Path, source| BenchError::Make { path: path.into(), source };
    let opened = File::open(folder).map_err(|error| failed(folder, error))?;
    rustix::fs::syncfs(&opened).map_err(|error| failed(folder, error.into()))?;
    made_tree::paths(tree, folder).try_for_each(|path| {
        let forget = |file: File| Ok(fadvise(file, 0, None, Advice::DontNeed)?);
        File::open(&path).and_then(forget).map_err(|error| failed(&path, error))
    })
}

fn run_once(name: &str, [from, to]: [&Path; 2], monitor: &Monitor) -> Result<Report, BenchError> {
    monitor.reset();
    let params = RunParams { run: name.into(), ..RunParams::default() };
    let report = session::sync(from, to, &params, monitor).report;
    match report.result {
        RunResult::Succeeded => Ok(report),
        _ => Err(BenchError::Run { run: name.into(), message: report.message }),
    }
}

fn tell(result: &BenchResult, flags: &BenchFlags) -> Result<(), BenchError> {
    if let Some(path) = &flags.report {
        let text = serde_json::to_string_pretty(result).map_err(io::Error::from)? + "\n";
        let failed = |source| BenchError::Write { path: path.clone(), source };
        report_file::write(path, &text).map_err(failed)?;
    }
    match flags.json {
        true => print(result)?,
        false => io::stdout().write_all(trend::bench_table(result).as_bytes())?,
    }
    Ok(())
}

fn print(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::from)?;
    writeln!(io::stdout(), "{text}")
}
