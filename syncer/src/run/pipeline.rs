//! One run onto a tree, from both ends opened to its report: the steps of "How a run goes" in `syncer/doc/design.md`.

use std::sync::atomic::Ordering::Relaxed;

use contract::{History, Phase, Report, SnapshotReport};

use crate::{
    destination::Settings,
    measure::report::Stopwatch,
    plan::{compare_params::work_of, planned::Planned, run_state::Run, single_file::Subject},
    run::make_report::{add_usage, make_report},
    session_error::SessionError,
    sink::{
        compare_run::Onto,
        dry_run::DryTree,
        open_destination::HeldDestination,
        source_end::{ScannedTrees, SourceEnd},
        tree_sink::TreeSink,
    },
    transport::Control,
    tree::Tree,
};

/// Runs from `source` onto the tree of `subject`, whose lock the session may have `held`; `control` is the link to a
/// source over the network. The caller has connected and opened both ends, which is step 1.
pub(crate) fn run(
    source: impl SourceEnd,
    subject: &Subject,
    settings: Settings,
    held: &mut HeldDestination,
    control: Option<&Control>,
    run: &Run<'_>,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    if run.params.dry_run {
        dry_run(source, &DryTree::open(subject, settings, run)?, run, watch)
    } else {
        real_run(source, TreeSink::open(subject, settings, held, control, run)?, run, watch)
    }
}

/// Runs from the scan to the report.
fn real_run(
    mut source: impl SourceEnd,
    sink: TreeSink<'_>,
    run: &Run<'_>,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    // 2. to 4. Scan, compare and plan.
    let plan = plan(&mut source, &sink.onto(), &|| sink.scan(), watch)?;
    // 5. to 8. Guard, transfer, apply, commit.
    let done = change(&mut source, &sink, &plan, run, watch).inspect_err(|_| sink.give_up());
    let totals = sink.totals(&plan.head);
    watch.did(work_of(&totals, &run.counters));
    done?;
    if run.params.verify || run.params.remove_source_files {
        watch.enter(Phase::Plan);
        run.note(sink.verify(&mut source, &plan)?);
    }
    // 9. Take a snapshot, if the owner of the destination wants one.
    let snapshot = snapshot(&sink, &plan, run, watch);
    // 10. Copy the snapshots of the source, if the run asks for them.
    let history = if run.params.history != History::None {
        watch.enter(Phase::Snapshot);
        Some(sink.history(&mut source)?)
    } else {
        None
    };
    // 11. Report.
    let mut report = make_report(run, watch, &totals);
    if let Some(snapshot) = snapshot {
        report.add_snapshot(snapshot);
    }
    if let Some(history) = history {
        report.add_history(history);
    }
    sink.complete(&mut report);
    add_usage(&mut report, &source, run, watch);
    sink.close();
    source.send_report(&report)?;
    Ok(report)
}

/// Runs without changes: the plan is shown, and checked as a run would check it.
fn dry_run(
    mut source: impl SourceEnd,
    sink: &DryTree<'_>,
    run: &Run<'_>,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    let plan = plan(&mut source, &sink.onto(), &|| sink.scan(), watch)?;
    let shown = sink.show(&plan, &mut source);
    let totals = sink.totals(&plan.head);
    watch.did(work_of(&totals, &run.counters));
    run.note(shown?);
    let mut report = make_report(run, watch, &totals);
    report.volume = sink.volume();
    add_usage(&mut report, &source, run, watch);
    source.send_report(&report)?;
    Ok(report)
}

/// Scans and compares both trees, and plans the changes.
fn plan(
    source: &mut impl SourceEnd,
    onto: &Onto<'_>,
    scan: &dyn Fn() -> Result<Tree, SessionError>,
    watch: &mut Stopwatch<'_>,
) -> Result<Planned, SessionError> {
    // 2. Scan both trees.
    watch.enter(Phase::Scan);
    let ScannedTrees { head, sink } = source.scan(onto.run, &mut || {
        watch.inspect_limits();
        scan()
    })?;
    let head = onto.adapt(head, &sink);
    // 3. and 4. Compare the listings of directories that differ, and plan the steps of each.
    watch.enter(Phase::Plan);
    let mut compared = onto.compare(source, &head, &sink)?;
    // 4. Compare contents where metadata is not enough, which completes the plan. The report times it with the guards.
    watch.enter(Phase::Delta);
    let checked = onto.compare_contents(&mut compared, &sink, source)?;
    onto.run.note(source.ready(&mut compared, onto.root, onto.run)?);
    Ok(Planned { head, compared, sink, checked })
}

/// Changes the destination as planned, if the guards let it.
fn change(
    source: &mut impl SourceEnd,
    sink: &TreeSink<'_>,
    plan: &Planned,
    run: &Run<'_>,
    watch: &mut Stopwatch<'_>,
) -> Result<(), SessionError> {
    // 5. Guard: refuse before anything is touched.
    let room = source.room(sink.root());
    run.note(sink.guard(plan, room.as_ref())?);
    sink.itemize(plan, source)?;
    sink.expect_plan(plan)?;
    if let Some(before) = source.before_changes() {
        run.note(sink.record(before, plan)?);
        sink.guard_room_left(before, plan, source.room(sink.root()).as_ref())?;
    }
    let mut changes = sink.begin(plan)?;
    // 6. Transfer the content of files.
    watch.enter(Phase::Transfer);
    changes.transfer(source)?;
    // 7. Apply: delete, once all content has arrived, and set the metadata of directories.
    watch.enter(Phase::Apply);
    changes.apply()?;
    // 8. Commit.
    watch.enter(Phase::Commit);
    changes.commit()
}

/// Takes the snapshot that the run requests, unless anything in the run failed.
fn snapshot(
    sink: &TreeSink<'_>,
    plan: &Planned,
    run: &Run<'_>,
    watch: &mut Stopwatch<'_>,
) -> Option<SnapshotReport> {
    let asked = run.params.demands.snapshot.as_ref()?;
    if run.failures.count() + run.counters.deletes_kept_back.load(Relaxed) > 0 {
        return Some(SnapshotReport::of_failed_run());
    }
    watch.enter(Phase::Snapshot);
    Some(sink.snapshot(asked, plan))
}
