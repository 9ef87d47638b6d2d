//! One run, from both ends opened to its report: the steps of "How a run goes" in `syncer/doc/design.md`.

use std::sync::atomic::Ordering::Relaxed;

use contract::{History, Phase, Report, SnapshotReport};

use crate::{
    measure::report::Stopwatch,
    plan::{compare_params::work_of, planned::Planned},
    run::make_report::{make_report, tell_bottleneck},
    session_error::SessionError,
    sink::traits::{Changes as _, Run, SinkEnd, SourceEnd},
};

/// Runs from the scan to the report. The caller has connected and opened both ends, which is step 1.
pub(crate) fn run<D: SinkEnd>(
    mut source: impl SourceEnd,
    sink: D,
    run: &Run<'_>,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    // 2. Scan both trees.
    watch.enter(Phase::Scan);
    let (head, there) = source.scan(run, &mut || {
        watch.look_at_limits();
        sink.scan(run)
    })?;
    let head = sink.adapt(head, &there, run);
    // 3. and 4. Compare the listings of directories that differ, and plan the steps of each.
    watch.enter(Phase::Plan);
    let mut compared = sink.compare(&mut source, &head, &there, run)?;
    // 4. Compare contents where metadata is not enough, which completes the plan. The report times it with the guards.
    watch.enter(Phase::Delta);
    let checked = sink.compare_contents(&mut compared, &there, &mut source, run)?;
    run.note(source.ready(&mut compared, sink.root(), run)?);
    let plan = Planned { head, compared, sink: there, checked };
    // 5. to 8. Guard, transfer, apply, commit.
    let done = change(&mut source, &sink, &plan, run, watch).inspect_err(|_| sink.give_up(run));
    let totals = sink.totals(&plan.head);
    watch.did(work_of(&totals, &run.counters));
    let done = done?;
    if done && (run.params.verify || run.params.remove_source_files) {
        watch.enter(Phase::Plan);
        run.note(sink.verify(&mut source, &plan, run)?);
    }
    // 9. Take a snapshot, if the owner of the destination wants one.
    let snapshot = if done { snapshot(&sink, &plan, run, watch) } else { None };
    // 10. Copy the snapshots of the source, if the run asks for them.
    let history = match done && run.params.history != History::None {
        true => {
            watch.enter(Phase::Snapshot);
            sink.history(&mut source, run)?
        }
        false => None,
    };
    // 11. Report.
    let mut report = make_report(run, watch, &totals);
    if let Some(snapshot) = snapshot {
        report.tell_snapshot(snapshot);
    }
    if let Some(history) = history {
        report.tell_history(history);
    }
    sink.complete(&mut report);
    source.add_usage(&mut report, watch);
    tell_bottleneck(&mut report, source.efforts(), run, watch);
    report.fill_rates();
    sink.close();
    source.send_report(&report)?;
    Ok(report)
}

/// Takes the snapshot that the run requests, unless anything in the run failed.
fn snapshot(
    sink: &impl SinkEnd,
    plan: &Planned,
    run: &Run<'_>,
    watch: &mut Stopwatch<'_>,
) -> Option<SnapshotReport> {
    let asked = run.params.demands.snapshot.as_ref()?;
    if run.failures.count() + run.counters.deletes_kept_back.load(Relaxed) > 0 {
        return Some(SnapshotReport::of_failed_run());
    }
    watch.enter(Phase::Snapshot);
    sink.snapshot(asked, plan, run)
}

/// Changes the destination as planned, if the guards let it. Returns whether it was changed: a dry run ends after the
/// guards.
fn change<D: SinkEnd>(
    source: &mut impl SourceEnd,
    sink: &D,
    plan: &Planned,
    run: &Run<'_>,
    watch: &mut Stopwatch<'_>,
) -> Result<bool, SessionError> {
    // 5. Guard: refuse before anything is touched.
    run.note(sink.guard(plan, source, run)?);
    if let Some(before) = source.before_changes() {
        run.note(sink.record(before, plan, run)?);
    }
    let Some(mut changes) = sink.begin(plan, run)? else { return Ok(false) };
    // 6. Transfer the content of files.
    watch.enter(Phase::Transfer);
    changes.transfer(source)?;
    // 7. Apply: delete, once all content has arrived, and set the metadata of directories.
    watch.enter(Phase::Apply);
    changes.apply()?;
    // 8. Commit.
    watch.enter(Phase::Commit);
    changes.commit()?;
    Ok(true)
}
