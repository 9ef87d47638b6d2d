//! Decides which older snapshots of a job go so that the next one fits on a full disk, and how many stay all the same.

use std::{collections::BTreeSet, time::SystemTime};

use contract::{SnapshotParams, SnapshotReport};
use jiff::tz::TimeZone;

use super::drop_snapshots::{drop_snapshots, of_job};
use crate::{
    entry::Time,
    monitor::Monitor,
    snapshot::{
        retention::{judge, not_kept},
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
/// keeps at least are not among them, and the newest one that has every entry is one of those.
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
    let next = Snapshot { id, taken: now, tags, pinned: false, failed: 0, origin: None, ..newest.clone() };
    let with_next: Vec<&Snapshot> = std::iter::once(&next).chain(judged.iter().copied()).collect();
    let verdicts = judge(&with_next, &asked.keep, now, zone)?;
    let least = asked.min_keep.unwrap_or(DEFAULT_MIN_KEEP) as usize;
    let newest_whole = judged.iter().find(|it| it.is_whole() && it.taken <= now).map(|it| it.id);
    // Nobody knows yet whether the next one is taken, and has every entry.
    let stays = newest_whole.filter(|_| least > 0);
    let may_go: BTreeSet<SnapshotId> = not_kept(&verdicts).filter(|id| Some(*id) != stays).collect();
    let goes = |id| may_go.contains(&id);
    let mut stay = judged.iter().filter(|snapshot| !goes(snapshot.id)).count();
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

#[cfg(test)]
mod tests {
    use contract::Retention;

    use super::*;
    use crate::snapshot::store::{Purpose, snapshot_list::tests::sample};

    const NOW: Time = Time { seconds: 1_795_370_400, nanos: 0 };

    /// Returns which snapshots go beside a next one, by their numbers, the oldest first; `w` is whole, `-` is not, and
    /// `f` is whole and of the future.
    fn gone(kinds: &str, last: u32, min_keep: u32) -> Vec<u64> {
        let snapshots = kinds.bytes().zip(0..).map(|(kind, nth)| Snapshot {
            purpose: Purpose::AfterRun,
            job: "job".into(),
            taken: Time { seconds: NOW.seconds + if kind == b'f' { 500 } else { nth - 100 }, nanos: 0 },
            failed: u64::from(kind == b'-'),
            pinned: false,
            forgotten: None,
            tags: BTreeSet::new(),
            ..sample(nth as u64)
        });
        let roots = Roots { snapshots: snapshots.collect(), ..Roots::default() };
        let keep = Retention { last, ..Retention::default() };
        let min_keep = Some(min_keep);
        let asked = SnapshotParams { job: "job".into(), keep, min_keep, ..SnapshotParams::default() };
        let gone = superseded(&roots, &asked, NOW, &TimeZone::UTC).unwrap();
        gone.into_iter().map(|id| id.0).collect()
    }

    #[test]
    fn what_the_rules_would_not_keep_goes_but_for_the_newest_complete_one_unless_none_has_to_stay() {
        for (kinds, last, min_keep, goes) in [
            ("www", 3, 1, &[0][..]),
            ("www", 1, 1, &[0, 1]),
            ("www", 1, 2, &[0]),
            ("www", 1, 0, &[0, 1, 2]),
            ("ww-", 1, 1, &[0, 2]),
            ("w--", 1, 1, &[1, 2]),
            ("w--", 1, 2, &[1]),
            ("w--", 2, 1, &[1]),
            ("---", 1, 1, &[0, 1]),
            ("w-", 1, 0, &[0, 1]),
            ("w-f", 1, 1, &[1]),
            ("", 1, 1, &[]),
        ] {
            assert_eq!(gone(kinds, last, min_keep), goes, "{kinds:?}, last {last}, at least {min_keep}");
        }
    }
}
