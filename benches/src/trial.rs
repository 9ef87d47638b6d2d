//! Runs one named bench with one program: brings the destination to the start state, runs, and checks the result.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use testkit::{
    compare::{Fidelity, compare},
    edits::files_below,
};

use crate::{
    peers::{Measured, Peer as _, Place, Volferry},
    probe::Probe,
    suites::{Bench, Mode, Step},
};

/// The trees of a bench, which all programs read.
#[derive(Debug, Clone)]
pub struct Sources {
    /// The content of the destination before a measured run; `None` if it is empty or equals the source.
    before: Option<PathBuf>,
    /// The tree to sync.
    source: PathBuf,
    /// The expected content of the destination afterwards.
    expected: PathBuf,
}

impl Sources {
    /// Creates the trees of `bench` in `dir`.
    pub fn make(bench: &Bench, dir: &Path) -> anyhow::Result<Self> {
        let make = |name| -> anyhow::Result<PathBuf> {
            let root = dir.join(name);
            bench.shape.make(&root).map(|()| root)
        };
        let source = make("source")?;
        let before = match bench.step {
            Step::After(edit) => {
                edit.apply(&source)?;
                Some(make("before")?)
            }
            Step::First | Step::Again => None,
        };
        let expected = match bench.excluded {
            Some(ending) => without(ending, make("expected")?)?,
            None => source.clone(),
        };
        Ok(Self { before, source, expected })
    }
}

/// Removes the files with an extension from the tree in `root`.
fn without(ending: &str, root: PathBuf) -> anyhow::Result<PathBuf> {
    let files = files_below(&root)?;
    let mut excluded = files.iter().filter(|path| path.extension().is_some_and(|name| name == ending));
    excluded.try_for_each(fs::remove_file)?;
    Ok(root)
}

/// One bench with one program in one mode.
#[derive(Debug)]
pub struct Trial {
    volferry: Volferry,
    place: Place,
    step: Step,
    sources: Sources,
}

impl Trial {
    /// Creates an empty destination for the program in `dir`, which must not exist, and brings it to the state that the
    /// bench needs before all runs. A run that takes longer than `limit` fails.
    pub fn new(
        bench: &Bench,
        mode: Mode,
        program: PathBuf,
        sources: &Sources,
        dir: &Path,
        limit: Duration,
    ) -> anyhow::Result<Self> {
        let flags = bench.excluded.iter().map(|ending| format!("--exclude=*.{ending}")).collect();
        let mut volferry = Volferry { flags, ..Volferry::new(program, mode) };
        let (destination, scratch) = (dir.join("copy"), dir.join("scratch"));
        fs::create_dir_all(&scratch)?;
        fs::create_dir(&destination)?;
        let place = Place { source: sources.source.clone(), destination, scratch, round: 0, limit };
        volferry.begin(&place)?;
        let trial = Self { volferry, place, step: bench.step, sources: sources.clone() };
        if trial.step == Step::Again {
            trial.volferry.measure(&trial.place, Probe::None)?;
        }
        Ok(trial)
    }

    /// Brings the destination to the state from which the measured run starts.
    pub fn prepare(&self) -> anyhow::Result<()> {
        if self.step == Step::First {
            fs::remove_dir_all(&self.place.destination)?;
            fs::create_dir(&self.place.destination)?;
        }
        if let Some(before) = &self.sources.before {
            let place = Place { source: before.clone(), ..self.place.clone() };
            self.volferry.measure(&place, Probe::None).context("preparing the destination")?;
        }
        Ok(())
    }

    /// Runs once, from the state that [`Trial::prepare`] created, with each end under `probe`.
    pub fn run(&self, probe: Probe) -> anyhow::Result<Measured> {
        self.volferry.measure(&self.place, probe)
    }

    /// Checks that the result is as expected, because a program that leaves out work must not win.
    pub fn check(&self) -> anyhow::Result<()> {
        let fidelity =
            if self.sources.expected == self.sources.source { Fidelity::Full } else { Fidelity::Files };
        let own = self.volferry.about().own;
        compare(&self.sources.expected, &self.place.destination, fidelity, own).context("the result is wrong")
    }

    /// Returns the folder with probes and reports.
    pub fn scratch(&self) -> &Path {
        &self.place.scratch
    }

    /// Returns the names of the run's ends.
    pub fn ends(&self) -> &'static [&'static str] {
        self.volferry.ends()
    }
}
