//! Decides which older snapshots of a job go so that the next one fits on a full disk, and how many stay all the same.

use std::{collections::BTreeSet, time::SystemTime};

use contract::{SnapshotParams, SnapshotReport};
use jiff::tz::TimeZone;

use super::drop_snapshots::{drop_snapshots, of_job};
use crate::{
    entry::Time,
    monitor::Monitor,
    snapshot::{
        retention::judge,
        store::{Roots, Snapshot, SnapshotError, SnapshotId, Writer},
        typed_time::time_of,
    },
};

/// The number of a job's snapshots that stay at least when the next one needs room.
const DEFAULT_MIN_KEEP: u32 = 1;

/// Drops what the job's rules would not keep beside the snapshot that did not fit, so that it fits. Returns whether any
/// was dropped.
pub(super) fn make_room(
    writer: &mut Writer<'_>,
    asked: &SnapshotParams,
    by: &str,
    report: &mut SnapshotReport,
    monitor: &Monitor,
) -> Result<bool, SnapshotError> {
    if writer.roots.damages() > 0 {
        return Ok(false);
    }
    let gone = superseded(&writer.roots, asked, time_of(SystemTime::now()), &TimeZone::system())?;
    drop_snapshots(writer, &gone, by, report, monitor)?;
    report.dropped_for_room = gone.len() as u64;
    Ok(!gone.is_empty())
}

/// Returns the snapshots of the job that its rules would not keep beside one that is taken now. As many as the job
/// keeps at least are not among them.
fn superseded(
    roots: &Roots,
    asked: &SnapshotParams,
    now: Time,
    zone: &TimeZone,
) -> Result<BTreeSet<SnapshotId>, SnapshotError> {
    let mut judged: Vec<&Snapshot> = of_job(roots, &asked.job).collect();
    judged.sort_by_key(|snapshot| std::cmp::Reverse((snapshot.taken, snapshot.id)));
    let Some(newest) = judged.first().copied().filter(|_| asked.keep.has_rule()) else {
        return Ok(BTreeSet::new());
    };
    let tags = asked.tags.iter().cloned().collect();
    let id = SnapshotId(u64::MAX);
    let next = Snapshot { id, taken: now, tags, pinned: false, failed: 0, ..newest.clone() };
    let with_next: Vec<&Snapshot> = std::iter::once(&next).chain(judged.iter().copied()).collect();
    let verdicts = judge(&with_next, &asked.keep, now, zone)?;
    let goes = |id| verdicts.iter().any(|verdict| verdict.id == id && !verdict.is_kept());
    let mut stay = judged.iter().filter(|snapshot| !goes(snapshot.id)).count();
    let least = asked.min_keep.unwrap_or(DEFAULT_MIN_KEEP) as usize;
    let mut gone = BTreeSet::new();
    for snapshot in judged.iter().filter(|snapshot| goes(snapshot.id)) {
        if stay < least {
            stay += 1;
        } else {
            gone.insert(snapshot.id);
        }
    }
    Ok(gone)
}
