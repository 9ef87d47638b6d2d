//! Drops snapshots of a job during a run, and reports what that frees.

use std::collections::BTreeSet;

use contract::{MAX_SNAPSHOTS, Reason, SnapshotReport};

use crate::{
    monitor::Monitor,
    snapshot::{
        retention::{Collected, collect_garbage, plan_collection},
        store::{Purpose, Roots, Snapshot, SnapshotError, SnapshotId, Writer},
    },
};

/// Says why no room is given back, and what to do.
const DAMAGED_LIST: &str =
    "the list of snapshots has damaged records; `volferry snapshot repair` shows what can be done";

/// Yields the snapshots that runs of this job took here; runs without a job share an empty one. Copies from another
/// volume are an archive of that one, and follow the rules of those who copy and prune.
pub(super) fn of_job<'r>(roots: &'r Roots, job: &str) -> impl Iterator<Item = &'r Snapshot> {
    let is_own = |snapshot: &&Snapshot| snapshot.purpose == Purpose::AfterRun && snapshot.origin.is_none();
    roots.kept().filter(is_own).filter(move |snapshot| snapshot.job == job)
}

/// Drops snapshots, frees their room, and adds that to the report.
pub(super) fn drop_snapshots(
    writer: &mut Writer<'_>,
    gone: &BTreeSet<SnapshotId>,
    by: &str,
    report: &mut SnapshotReport,
    monitor: &Monitor,
) -> Result<(), SnapshotError> {
    if !gone.is_empty() {
        let plan = plan_collection(&writer.store, &writer.roots, gone)?;
        let collected = collect_garbage(writer, &plan, by)?;
        report.dropped_count += plan.snapshots.len() as u64;
        let named = plan.snapshots.iter().map(ToString::to_string);
        report.dropped.extend(named.take(MAX_SNAPSHOTS - report.dropped.len()));
        report.freed_bytes += if collected == Collected::All { plan.bytes } else { 0 };
        if collected == Collected::Damaged && report.reason.is_none() {
            report.reason = Some(Reason::RetentionFailed);
            report.message = format!("the run succeeded, and no room was given back: {DAMAGED_LIST}");
        }
    }
    writer.empty_trash(None, monitor)
}
