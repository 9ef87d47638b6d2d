//! The report of a run.

use std::{collections::HashSet, sync::atomic::Ordering::Relaxed};

use contract::{Effort, Efforts, Measured, Report, Side, Work, bottleneck};

use crate::{
    measure::report::Stopwatch,
    plan::{compare_params::work_of, run_state::Run},
    sink::source_end::ContentEnd,
    tree::dir::Totals,
};

/// Makes the report of a completed run.
pub(crate) fn make_report(run: &Run<'_>, watch: &Stopwatch<'_>, source: &Totals) -> Report {
    let Run { params, failures, counters, .. } = run;
    let failed = failures.count();
    let now = std::time::SystemTime::now();
    let mut report = Report {
        run: params.run.clone(),
        dry_run: params.dry_run,
        start_time: contract::timestamp(now - watch.elapsed()),
        completion_time: contract::timestamp(now),
        timings: watch.timings(),
        work: Work { files_failed: failed, ..work_of(source, counters) },
        failures: failures.named(),
        notes: once_each(run.take_notes()),
        ..Report::default()
    };
    if failed + report.work.deletes_kept_back > 0 {
        report.summarize_failures(counters.kept_back_for.load(Relaxed));
    }
    report
}

/// Adds the resources that both ends used, their effort in each phase, and the bottleneck of the run.
pub(crate) fn add_usage(
    report: &mut Report,
    source: &impl ContentEnd,
    run: &Run<'_>,
    watch: &mut Stopwatch<'_>,
) {
    source.add_usage(report, watch);
    let remote = source.efforts();
    let sink = watch.efforts(Side::Sink);
    let of_source = remote.map_or_else(|| watch.efforts(Side::Source), <[Effort]>::to_vec);
    report.bottleneck = bottleneck(&Measured {
        source: &of_source,
        sink: &sink,
        is_local: remote.is_none(),
        bandwidth_limit: run.params.bandwidth_limit,
        bytes_on_wire: report.work.bytes_on_wire,
    });
    report.efforts = Efforts { source: of_source, sink };
    report.fill_rates();
}

/// Returns the notes in their order, without repetitions.
fn once_each(notes: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    notes.into_iter().filter(|note| seen.insert(note.clone())).collect()
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
