//! The report of a run.

use std::{collections::HashSet, sync::atomic::Ordering::Relaxed};

use contract::{Report, RunParams, VolumeId, Work};

use crate::{
    apply::Destination,
    report::{Counters, Failures, Stopwatch},
    tree::dir::Totals,
    wire::TreeHead,
};

/// The report of a run that got to its end.
pub(crate) fn make_report(
    params: &RunParams,
    watch: &Stopwatch<'_>,
    source: &Totals,
    counters: &Counters,
    failures: &Failures,
    volume: Option<VolumeId>,
    notes: Vec<String>,
) -> Report {
    let failed = failures.count();
    let now = std::time::SystemTime::now();
    let mut report = Report {
        run: params.run.clone(),
        dry_run: params.dry_run,
        start_time: contract::timestamp(now - watch.elapsed()),
        completion_time: contract::timestamp(now),
        volume,
        timings: watch.timings(),
        work: Work { files_failed: failed, ..work_of(source, counters) },
        failures: failures.named(),
        notes: once_each(notes),
        ..Report::default()
    };
    if failed + report.work.deletes_kept_back > 0 {
        report.tell_failures(counters.kept_back_for.load(Relaxed));
    }
    report
}

/// What the source's tree holds, and what has been done so far.
pub(crate) fn work_of(source: &Totals, counters: &Counters) -> Work {
    Work {
        files_scanned: source.entries,
        files_skipped: source.skipped,
        bytes_total: source.bytes,
        ..counters.work()
    }
}

/// The notes in their order, none of them twice.
fn once_each(notes: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    notes.into_iter().filter(|note| seen.insert(note.clone())).collect()
}

/// What a process counts of what was scanned: of several that share a run, which have all seen it, only one does.
pub(crate) fn own_totals(destination: &Destination, head: &TreeHead) -> Totals {
    match destination.own().leads() {
        true => head.totals,
        false => Totals::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_told_once() {
        let notes = ["b", "a", "b", "c", "a"].map(String::from).to_vec();
        assert_eq!(once_each(notes), ["b", "a", "c"]);
    }
}
