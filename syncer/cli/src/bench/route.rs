//! The route by which the files of a bench get from one folder to the other.

use std::{
    fs,
    path::{Path, PathBuf},
};

use contract::{Demands, Report, RunParams, RunResult};
use syncer::{
    monitor::Monitor,
    session::{self, LinkOptions},
};

use super::bench_error::BenchError;

/// The ends of the runs that are in this process: both, or one of them.
pub(super) enum Way<'a> {
    Local { from: &'a Path, copy: PathBuf },
    Send { from: &'a Path, link: &'a LinkOptions },
    Receive { copy: PathBuf, link: &'a LinkOptions },
}

impl<'a> Way<'a> {
    /// Returns the route between these folders; `None` if there are none.
    pub(super) fn new(
        from: Option<&'a Path>,
        to: Option<&Path>,
        link: Option<&'a LinkOptions>,
    ) -> Option<Self> {
        let copy = to.map(|to| to.join("copy"));
        match (from, copy, link) {
            (Some(from), Some(copy), None) => Some(Self::Local { from, copy }),
            (Some(from), None, Some(link)) => Some(Self::Send { from, link }),
            (None, Some(copy), Some(link)) => Some(Self::Receive { copy, link }),
            _ => None,
        }
    }

    /// Returns the folder of the tree, if it is on this machine.
    pub(super) fn from(&self) -> Option<&'a Path> {
        match self {
            Self::Local { from, .. } | Self::Send { from, .. } => Some(from),
            Self::Receive { .. } => None,
        }
    }

    fn copy(&self) -> Option<&Path> {
        match self {
            Self::Local { copy, .. } | Self::Receive { copy, .. } => Some(copy),
            Self::Send { .. } => None,
        }
    }

    /// Runs once, so that the copy equals the tree.
    pub(super) fn run_once(&self, params: &RunParams, monitor: &Monitor) -> Result<Report, BenchError> {
        monitor.reset();
        let outcome = match self {
            Self::Local { from, copy } => session::sync(*from, copy.as_path(), params, monitor),
            Self::Send { from, link } => session::send(*from, link, params, monitor),
            Self::Receive { copy, link } => {
                session::receive(copy.as_path(), link, &Demands::of(params), monitor, true, &mut |_| ())
            }
        };
        let report = outcome.report;
        match report.result {
            RunResult::Succeeded => Ok(report),
            _ => Err(BenchError::Run { exit: outcome.exit, report: Box::new(report) }),
        }
    }

    /// Removes the copy, so that the next round starts without one.
    pub(super) fn remove_copy(&self) -> Result<(), BenchError> {
        let Some(copy) = self.copy() else { return Ok(()) };
        fs::remove_dir_all(copy).map_err(|source| BenchError::Remove { path: copy.into(), source })
    }
}
