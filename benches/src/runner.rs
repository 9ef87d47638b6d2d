//! Runs tools side by side: all from the same state, in turn within each step of each round, each result checked.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use testkit::compare::compare;

use crate::{
    peers::{Peer, Place, Sample},
    scenario::{Phase, Scenario},
    workdir::WorkDir,
};

/// The settings of a bench.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How often each scenario is run; figures are medians.
    pub rounds: u64,
    /// The time limit of a run; a longer one has failed.
    pub limit: Duration,
    /// Whether a run ends only when its copy is durable, for any tool.
    pub durable: bool,
    /// Set when the bench has to stop early.
    pub interrupted: Arc<AtomicBool>,
}

/// The results of one tool in one step, over all rounds.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    /// The samples of runs with a correct result.
    pub samples: Vec<Sample>,
    /// The failure, if any. A tool that failed once has no figure.
    pub failure: Option<String>,
    /// Whether the tool can do the step at all.
    pub takes_part: bool,
}

/// One step of one scenario, with a cell for each tool in the order of the tools.
#[derive(Debug, Clone)]
pub struct Row {
    /// The tree's name.
    pub tree: String,
    /// The step.
    pub phase: Phase,
    /// The results of each tool.
    pub cells: Vec<Cell>,
}

/// Runs a scenario. Errors are problems of the bench itself; failures of a tool are recorded in its cell.
pub fn run_scenario(
    scenario: &Scenario,
    peers: &mut [Box<dyn Peer>],
    work: &WorkDir,
    settings: &Settings,
) -> anyhow::Result<Vec<Row>> {
    let mut rows: Vec<Row> = scenario.phases.iter().map(|phase| empty_row(scenario, *phase, peers)).collect();
    for round in 0..settings.rounds {
        let mut entrants = enter(peers, work.trees(), round, settings)?;
        let done = run_round(scenario, &mut rows, &mut entrants, work, settings);
        entrants.iter_mut().for_each(|entrant| entrant.peer.end());
        done.with_context(|| format!("{}, round {}", scenario.tree.name(), round + 1))?;
    }
    Ok(rows)
}

/// A tool in one round.
struct Entrant<'a> {
    peer: &'a mut dyn Peer,
    /// The index of its column.
    column: usize,
    place: Place,
    /// The reason why it can no longer be measured in this round.
    out: Option<String>,
}

fn empty_row(scenario: &Scenario, phase: Phase, peers: &[Box<dyn Peer>]) -> Row {
    let cells = peers.iter().map(|peer| Cell { takes_part: peer.takes_part(&phase), ..Cell::default() });
    Row { tree: scenario.tree.name(), phase, cells: cells.collect() }
}

/// Gives each tool an empty destination and lets it start its server. Each round begins with another tool, so that no
/// tool always follows the same other one.
fn enter<'a>(
    peers: &'a mut [Box<dyn Peer>],
    trees: &Path,
    round: u64,
    settings: &Settings,
) -> anyhow::Result<Vec<Entrant<'a>>> {
    let mut entrants = Vec::new();
    for (column, peer) in peers.iter_mut().enumerate() {
        let place = make_place(trees, column, round, settings.limit)?;
        let out = peer.begin(&place).err().map(|error| format!("{error:#}"));
        entrants.push(Entrant { peer: peer.as_mut(), column, place, out });
    }
    let start = round as usize % entrants.len().max(1);
    entrants.rotate_left(start);
    Ok(entrants)
}

fn make_place(trees: &Path, column: usize, round: u64, limit: Duration) -> anyhow::Result<Place> {
    let fresh = |name: String| -> anyhow::Result<PathBuf> {
        let dir = trees.join(name);
        remove(&dir)?;
        fs::create_dir(&dir)?;
        Ok(dir)
    };
    Ok(Place {
        source: trees.join("source"),
        destination: fresh(format!("copy-{column}"))?,
        scratch: fresh(format!("scratch-{column}"))?,
        round,
        limit,
    })
}

fn run_round(
    scenario: &Scenario,
    rows: &mut [Row],
    entrants: &mut [Entrant<'_>],
    work: &WorkDir,
    settings: &Settings,
) -> anyhow::Result<()> {
    let source = work.trees().join("source");
    remove(&source)?;
    scenario.tree.make(&source)?;
    for row in rows {
        row.phase.edit.apply(&source)?;
        for entrant in entrants.iter_mut() {
            let cell = &mut row.cells[entrant.column];
            if !cell.takes_part {
                continue;
            }
            ensure!(!settings.interrupted.load(Ordering::Relaxed), "interrupted");
            work.settle(scenario.tree.bytes() * 5 / 4)?;
            match measure(entrant, work, settings) {
                Ok(sample) => cell.samples.push(sample),
                Err(failure) => cell.failure = Some(failure),
            }
        }
        report_progress(row, settings);
    }
    Ok(())
}

/// Runs a tool once, and checks the result. After a failure, the tool is skipped until the next round, because it no
/// longer starts from the same state as the others.
fn measure(entrant: &mut Entrant<'_>, work: &WorkDir, settings: &Settings) -> Result<Sample, String> {
    if let Some(out) = &entrant.out {
        return Err(out.clone());
    }
    let result = entrant.peer.run(&entrant.place).and_then(|mut sample| {
        if settings.durable {
            let ended = Instant::now();
            work.sync()?;
            sample.elapsed += ended.elapsed();
        }
        let (about, place) = (entrant.peer.about(), &entrant.place);
        compare(&place.source, &place.destination, about.fidelity, about.own)
            .context("the result is wrong")
            .map(|()| sample)
    });
    result.map_err(|error| {
        let failure = format!("{error:#}");
        eprintln!("  {} fails: {failure}", entrant.peer.about().name);
        entrant.out = Some(format!("after an earlier failure: {failure}"));
        failure
    })
}

/// Prints a line to standard error for each step, to show the progress of a long bench.
fn report_progress(row: &Row, settings: &Settings) {
    let latest = |cell: &Cell| match (cell.takes_part, &cell.failure, cell.samples.last()) {
        (false, ..) => "–".to_string(),
        (true, None, Some(sample)) => format!("{:.0}", sample.elapsed.as_secs_f64() * 1000.0),
        _ => "fails".to_string(),
    };
    let cells: Vec<String> = row.cells.iter().map(latest).collect();
    let round = row.cells.iter().map(|cell| cell.samples.len()).max().unwrap_or(0);
    eprintln!("{} / {} ({round} of {}): {}", row.tree, row.phase.name, settings.rounds, cells.join(" "));
}

fn remove(dir: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", dir.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use testkit::{compare::Fidelity, edits::Edit};

    use super::*;
    use crate::{
        peers::{CP, Installed, Tool},
        trees::Tree,
        workdir::FileSystem,
    };

    /// Returns a tool that copies correctly until the step numbered `breaks_at`, where it adds a file.
    fn copier(breaks_at: Option<usize>) -> Box<dyn Peer> {
        let after = match breaks_at {
            Some(1) => "echo >>steps; [ $(wc -l <steps) != 2 ] || touch \"$destination/extra\"",
            _ => "",
        };
        let setup =
            "[ -z \"$(ls -A \"$destination\")\" ] || { echo not every round starts empty >&2; exit 1; }";
        let tool = Tool { name: "copier", fidelity: Fidelity::Full, only_copies: false, setup, after, ..CP };
        Box::new(Installed::new(tool, "cp".into()))
    }

    fn run_copiers(breaks_at: &[Option<usize>]) -> Vec<Row> {
        // In memory: on a disk, `syncfs` would wait for all other writers of the machine.
        let parent = tempfile::tempdir_in("/dev/shm").unwrap();
        let work = WorkDir::make(parent.path(), FileSystem::Dir, 0).unwrap();
        let limit = Duration::from_secs(10);
        let settings = Settings { rounds: 2, limit, durable: true, interrupted: Arc::default() };
        let phase = |edit| Phase { name: "step", edit, reach_ms: None, allowance: 1.0 };
        let grow = Edit::AppendFirst { below: "files", count: 3 };
        let phases = [Edit::None, grow, Edit::None].map(phase).to_vec();
        let scenario = Scenario { tree: Tree::Local1k, phases, needs_clone: false };
        let mut peers: Vec<_> = breaks_at.iter().copied().map(copier).collect();
        run_scenario(&scenario, &mut peers, &work, &settings).unwrap()
    }

    #[test]
    fn a_tool_that_copies_rightly_has_a_sample_of_each_round() {
        for row in run_copiers(&[None]) {
            assert_eq!((row.cells[0].samples.len(), &row.cells[0].failure), (2, &None));
        }
    }

    #[test]
    fn a_wrong_result_is_a_failure_there_and_after_and_of_that_tool_only() {
        let rows = run_copiers(&[None, Some(1)]);
        let failed: Vec<bool> = rows.iter().map(|row| row.cells[1].failure.is_some()).collect();
        assert_eq!(failed, [false, true, true]);
        assert!(rows[1].cells[1].failure.as_ref().unwrap().contains("the result is wrong"), "{rows:?}");
        assert!(rows.iter().all(|row| row.cells[0].failure.is_none()));
    }
}
