//! A run that takes a snapshot of a folder into a store elsewhere, in place of a copy of its files.

use std::time::SystemTime;

use contract::{Compare, Phase, Report, RunParams, SnapshotParams, Work, timestamp};

use crate::{
    ends::source_lock::SourceLock,
    entry::FullMeta,
    measure::{failures::Failures, monitor::Monitor, report::Stopwatch},
    plan::{guards::empty_source::check_snapshot, scan_params::options_for_snapshot},
    run::outcome::{Clock, Outcome},
    scan::scan,
    session_error::{SessionError, go_on},
    snapshot::{
        SnapshotError,
        around_runs::{labels, remember_rules, retain_offsite},
        create::ScannedTree,
        offsite::{OffsiteStore, OffsiteWork, last_of_job, quiet_before, take_offsite},
        typed_time::time_of,
    },
    sys::root::{Root, TreeLocation},
};

/// Opens the store, before the tree is read.
pub type OpenOffsite<'t> = dyn FnMut() -> Result<Box<dyn OffsiteStore>, SnapshotError> + 't;

/// Takes a snapshot of the folder `source` into a store elsewhere. Every error is in the outcome.
pub fn snapshot_offsite(
    source: impl Into<TreeLocation>,
    params: &RunParams,
    open: &mut OpenOffsite<'_>,
    monitor: &Monitor,
) -> Outcome {
    let mut clock = Clock::start(monitor);
    clock.watch.of_source();
    let result = run(&source.into(), params, open, &mut clock.watch);
    let result = result.map_err(|error| go_on(monitor).err().unwrap_or(error));
    clock.outcome(&params.run, result).with_no_snapshot(params.demands.snapshot.as_ref())
}

fn run(
    place: &TreeLocation,
    params: &RunParams,
    open: &mut OpenOffsite<'_>,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    let monitor = watch.monitor();
    let failures = Failures::default();
    params.bandwidth_limit.into_iter().for_each(|limit| monitor.limit_copies(limit));
    let mut store = open()?;
    watch.enter(Phase::Scan);
    let root = Root::enter(place).map_err(SessionError::Source)?;
    let lock = SourceLock::hold(&root, place)?;
    let began = time_of(SystemTime::now());
    let options = options_for_snapshot(params, quiet_before(began))?;
    let unread = |source| SessionError::Scan { path: place.path(), source };
    let tree = scan(&root, &options, &failures, monitor).map_err(unread)?;
    let totals = tree.totals;
    let mut work = Work {
        files_scanned: totals.entries,
        files_skipped: totals.skipped,
        bytes_total: totals.bytes,
        ..Work::default()
    };
    let root_meta = FullMeta { meta: tree.root_meta, attrs: tree.root_attrs.clone() };
    let source = ScannedTree { tree: &tree, options: &options, root_meta, root: &root, began, written: None };
    let no_rules = SnapshotParams::default();
    let asked = params.demands.snapshot.as_ref().unwrap_or(&no_rules);
    let labels = labels(asked, &params.run);
    let before = last_of_job(&*store, &labels.job).map_or(0, |last| last.entries);
    let overridden = check_snapshot(totals.entries, before, params.force)?;
    let of = OffsiteWork {
        source: &source,
        labels,
        reads_all: params.compare == Compare::Content,
        failures: &failures,
        monitor,
    };
    let taken = take_offsite(
        &of,
        &mut *store,
        &mut |roots| remember_rules(roots, asked),
        &mut |phase| watch.enter(phase),
        &mut work,
    );
    work.files_failed = failures.count();
    work.bytes_on_wire = store.written();
    watch.did(work);
    let made = taken?;
    watch.enter(Phase::Snapshot);
    let snapshot = retain_offsite(&mut *store, asked, &made, &failures, monitor);
    let mut report = Report { run: params.run.clone(), ..report_of(work, &failures, watch) };
    report.notes.extend(lock.note.into_iter().chain(overridden));
    report.add_snapshot(snapshot);
    report.fill_rates();
    Ok(report)
}

/// Returns what a run that has ended did, when, and what failed.
fn report_of(work: Work, failures: &Failures, watch: &Stopwatch<'_>) -> Report {
    let now = SystemTime::now();
    let mut report = Report {
        start_time: timestamp(now - watch.elapsed()),
        completion_time: timestamp(now),
        timings: watch.timings(),
        work,
        failures: failures.named(),
        usage: watch.source_usage(),
        ..Report::default()
    };
    if failures.count() > 0 {
        report.summarize_failures(0);
    }
    report
}
