//! Which SyncRuns of a job are kept, and which are deleted. Pure.

use std::collections::BTreeSet;

use kube::ResourceExt as _;

use crate::api::{SyncJobStatus, SyncRun};

/// The number of SyncRuns of benchmarks that are kept for a SyncJob.
const KEPT: usize = 10;

/// Returns the SyncRuns of a job that its history no longer keeps, except those of benchmarks.
pub fn forgotten<'a>(
    status: &SyncJobStatus,
    runs: impl IntoIterator<Item = &'a SyncRun>,
) -> Vec<&'a SyncRun> {
    let Some(last) = &status.last_run else { return Vec::new() };
    let is_known = |name: &str| {
        status.history.iter().any(|entry| entry.id == name)
            || status.active_run.as_ref().is_some_and(|run| run.id == name)
    };
    let is_over = |run: &SyncRun| {
        run.spec.benchmark.is_none() && run.spec.number.is_some_and(|number| number <= last.number)
    };
    let runs = runs.into_iter().filter(|run| run.metadata.deletion_timestamp.is_none());
    runs.filter(|run| is_over(run) && !is_known(&run.name_any())).collect()
}

/// Returns the SyncRuns of benchmarks to delete: all ended ones except the newest.
pub fn forgotten_benchmarks<'a>(
    status: &SyncJobStatus,
    runs: impl IntoIterator<Item = &'a SyncRun>,
) -> Vec<&'a SyncRun> {
    let Some(last) = &status.last_benchmark else { return Vec::new() };
    let is_over = |run: &&SyncRun| {
        run.spec.benchmark.is_some()
            && run.metadata.deletion_timestamp.is_none()
            && run.spec.number.is_some_and(|number| number <= last.number)
    };
    let mut over: Vec<_> = runs.into_iter().filter(is_over).collect();
    let numbers: BTreeSet<_> = over.iter().map(|run| run.spec.number).collect();
    let first_kept = numbers.into_iter().rev().nth(KEPT - 1).flatten();
    over.retain(|run| run.spec.number < first_kept);
    over
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Benchmark, Run, SyncRunSpec};

    #[test]
    fn the_newest_benchmarks_are_kept_and_runs_are_not_judged() {
        let run = |number: i64, is_benchmark: bool| {
            let benchmark = is_benchmark.then(Benchmark::default);
            let spec = SyncRunSpec { number: Some(number), benchmark, ..SyncRunSpec::default() };
            SyncRun::new(&format!("r{number}"), spec)
        };
        let runs: Vec<_> = (1..=30).map(|number| run(number, number % 2 == 0)).collect();
        let last_benchmark = Some(Run { number: 28, ..Run::default() });
        let status = SyncJobStatus { last_benchmark, ..SyncJobStatus::default() };
        let gone: Vec<_> =
            forgotten_benchmarks(&status, &runs).iter().map(|run| run.spec.number.unwrap()).collect();
        assert_eq!(gone, [2, 4, 6, 8], "of 2 to 28, and not the one under way");
    }
}
