//! Reports the snapshot that a run has taken into a store elsewhere, drops those that the job's rules do not keep, and
//! checks the next part of the store.

use std::{collections::BTreeSet, time::SystemTime};

use contract::{MAX_SNAPSHOTS, SnapshotParams, SnapshotReport, SnapshotVerify};
use jiff::tz::TimeZone;

use super::{
    after_run::{entry, list, report_error, report_failures},
    check_after_run::{report_check, report_of},
    drop_snapshots::of_job,
};
use crate::{
    failures::Failures,
    monitor::Monitor,
    snapshot::{
        check::ReadPace,
        offsite::{OffsiteStore, RemovedSnapshots},
        retention::{judge, not_kept},
        store::{Roots, Snapshot, SnapshotError, SnapshotId},
        typed_time::time_of,
    },
};

/// Reports a snapshot that was taken, drops what the rules do not keep, and checks a part of the store if that is asked
/// for.
pub(crate) fn retain_offsite(
    store: &mut dyn OffsiteStore,
    asked: &SnapshotParams,
    made: &Snapshot,
    failures: &Failures,
    monitor: &Monitor,
) -> SnapshotReport {
    let mut report = SnapshotReport::default();
    report_failures(&mut report, made, failures);
    report.made = Some(entry(made, &[]));
    list(&mut report, store.roots(), &asked.job, &[]);
    if asked.keep.has_rule()
        && let Err(error) = apply_rules(store, asked, &mut report)
    {
        report_error(&mut report, &error);
    }
    if let Some(SnapshotVerify { parts, bandwidth_limit }) = asked.verify {
        let checked = store.verify(parts, &ReadPace::new(bandwidth_limit, monitor));
        report_check(checked.map(|it| report_of(it.part, &it.verified)), &mut report);
    }
    report
}

fn apply_rules(
    store: &mut dyn OffsiteStore,
    asked: &SnapshotParams,
    report: &mut SnapshotReport,
) -> Result<(), SnapshotError> {
    let now = time_of(SystemTime::now());
    let verdicts = |roots: &Roots| {
        let judged: Vec<&Snapshot> = of_job(roots, &asked.job).collect();
        judge(&judged, &asked.keep, now, &TimeZone::system())
    };
    let gone = |roots: &Roots| Ok(not_kept(&verdicts(roots)?).collect::<BTreeSet<SnapshotId>>());
    if !gone(store.roots())?.is_empty() {
        let RemovedSnapshots { snapshots, bytes } = store.remove(&gone)?;
        report.dropped_count = snapshots.len() as u64;
        report.dropped = snapshots.iter().take(MAX_SNAPSHOTS).map(ToString::to_string).collect();
        report.freed_bytes = bytes;
    }
    let verdicts = verdicts(store.roots())?;
    list(report, store.roots(), &asked.job, &verdicts);
    Ok(())
}
