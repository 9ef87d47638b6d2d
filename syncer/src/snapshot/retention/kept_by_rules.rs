//! Decides which snapshots a policy keeps, from the list, the policy, the time and a time zone only.
//!
//! The rules are restic's. A snapshot is kept when one rule keeps it. A rule for a period keeps the last snapshot of
//! each of the newest periods that have any, and also the oldest snapshot of all as long as it has periods left.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use contract::{Retention, VolumeId};
use jiff::{Timestamp, civil::ISOWeekDate, tz::TimeZone};

use super::keep_reasons::{KeptBy, Rule, Until, Verdict};
use crate::{
    entry::Time,
    snapshot::store::{JobRules, Period, Purpose, Roots, Snapshot, SnapshotError, SnapshotId, counts},
};

/// The number of snapshots before restores that a volume keeps, apart from pinned ones.
pub(crate) const MAX_SAFETY: u32 = 3;

/// Judges snapshots: those of each SyncJob, those of persons, and those of each volume that some were copied from,
/// separately. Those from before restores follow their own limit. The verdicts are in the order of the snapshots.
///
/// # Errors [`SnapshotError::EmptyPolicy`], because a policy without rules would remove everything.
pub fn judge(
    snapshots: &[&Snapshot],
    policy: &Retention,
    now: Time,
    zone: &TimeZone,
) -> Result<Vec<Verdict>, SnapshotError> {
    if !policy.has_rule() {
        return Err(SnapshotError::EmptyPolicy);
    }
    let judged = by_owner(snapshots).flat_map(|of_one| match of_one[0].purpose {
        Purpose::Safety => judge_safety(of_one),
        _ => judge_job(of_one, policy, now, zone),
    });
    Ok(in_order_of(snapshots, judged))
}

/// Returns the snapshots that a prune removes: the forgotten ones, and those that the verdicts do not keep.
pub fn removed_by(roots: &Roots, verdicts: &[Verdict]) -> BTreeSet<SnapshotId> {
    let forgotten = roots.snapshots.iter().filter(|it| it.forgotten.is_some()).map(|it| it.id);
    forgotten.chain(not_kept(verdicts)).collect()
}

/// Yields the snapshots that the verdicts do not keep.
pub(crate) fn not_kept(verdicts: &[Verdict]) -> impl Iterator<Item = SnapshotId> {
    verdicts.iter().filter(|verdict| !verdict.is_kept()).map(|verdict| verdict.id)
}

/// Groups snapshots by what they were taken for, by their job, and by the volume that they were copied from: each group
/// is judged by itself.
fn by_owner<'s>(snapshots: &[&'s Snapshot]) -> impl Iterator<Item = Vec<&'s Snapshot>> {
    let mut groups: BTreeMap<_, Vec<&Snapshot>> = BTreeMap::new();
    for snapshot in snapshots {
        let job = if snapshot.purpose == Purpose::Safety { "" } else { &snapshot.job };
        let volume = snapshot.origin.as_ref().map(VolumeId::bytes);
        groups.entry((snapshot.purpose, job, volume)).or_default().push(snapshot);
    }
    groups.into_values()
}

/// Judges the snapshots from before restores: pinned ones stay, and the newest few others.
fn judge_safety(mut newest_first: Vec<&Snapshot>) -> Vec<Verdict> {
    newest_first.sort_by_key(|snapshot| std::cmp::Reverse((snapshot.taken, snapshot.id)));
    let mut left = MAX_SAFETY;
    let verdicts = newest_first.into_iter().map(|snapshot| {
        let mut reasons = Vec::new();
        if snapshot.pinned {
            reasons.push(KeptBy::new(Rule::Pinned, Until::Unpinned));
        } else if left > 0 {
            reasons.push(KeptBy::new(Rule::Safety, Until::Newer(Period::Snapshot, left)));
            left -= 1;
        }
        Verdict { id: snapshot.id, reasons, is_limited: false }
    });
    verdicts.collect()
}

/// Explains why each snapshot that is not forgotten is kept, by the rules that its job applied last. `zone` is used for
/// jobs whose own time zone is unknown. The verdicts are in the order of the list.
pub fn explain(roots: &Roots, now: Time, zone: &TimeZone) -> Vec<Verdict> {
    let kept: Vec<&Snapshot> = roots.kept().collect();
    let judged = by_owner(&kept).flat_map(|snapshots| {
        let Snapshot { purpose, job, .. } = snapshots[0];
        let rules = roots.rules.get(job).filter(|_| *purpose == Purpose::AfterRun);
        match (purpose, rules) {
            (Purpose::Safety, _) => judge_safety(snapshots),
            (_, Some(JobRules { retention, zone: name })) if retention.has_rule() => {
                let named = (!name.is_empty()).then(|| TimeZone::get(name).ok()).flatten();
                judge_job(snapshots, retention, now, named.as_ref().unwrap_or(zone))
            }
            _ => snapshots.into_iter().map(|snapshot| without_rules(snapshot, now)).collect(),
        }
    });
    in_order_of(&kept, judged)
}

/// Explains why a snapshot is kept whose job has no known rules.
fn without_rules(snapshot: &Snapshot, now: Time) -> Verdict {
    let mut reasons = protections(snapshot, &Retention::default(), now);
    if reasons.is_empty() {
        reasons.push(KeptBy::new(Rule::NoRule, Until::Prune));
    }
    Verdict { id: snapshot.id, reasons, is_limited: false }
}

fn in_order_of(snapshots: &[&Snapshot], judged: impl Iterator<Item = Verdict>) -> Vec<Verdict> {
    let mut verdicts: HashMap<SnapshotId, Verdict> = judged.map(|verdict| (verdict.id, verdict)).collect();
    snapshots.iter().filter_map(|snapshot| verdicts.remove(&snapshot.id)).collect()
}

/// Judges the snapshots of one SyncJob.
fn judge_job(
    mut newest_first: Vec<&Snapshot>,
    policy: &Retention,
    now: Time,
    zone: &TimeZone,
) -> Vec<Verdict> {
    newest_first.sort_by_key(|snapshot| std::cmp::Reverse((snapshot.taken, snapshot.id)));
    let mut reasons: Vec<Vec<KeptBy>> =
        newest_first.iter().map(|snapshot| protections(snapshot, policy, now)).collect();
    if let Some(newest) =
        newest_first.iter().position(|snapshot| snapshot.is_whole() && snapshot.taken <= now)
    {
        reasons[newest].push(KeptBy::new(Rule::NewestWhole, Until::NewerWhole));
    }
    let newest = newest_first.iter().map(|snapshot| snapshot.taken).find(|taken| *taken <= now);
    for (snapshot, reasons) in newest_first.iter().zip(&mut reasons) {
        reasons.extend(within(snapshot.taken, newest, policy.within_seconds));
    }
    let is_protected: Vec<bool> = reasons.iter().map(|reasons| !reasons.is_empty()).collect();
    for (period, count) in counts(policy) {
        keep_last_of(period, count, &newest_first, now, zone, &mut reasons);
    }
    if policy.is_only_limit() {
        reasons.iter_mut().for_each(|reasons| reasons.push(KeptBy::new(Rule::Room, Until::Room)));
    }
    if let Some(max) = policy.max_bytes {
        limit(max, &newest_first, &is_protected, &mut reasons);
    }
    let verdict = |(nth, reasons): (usize, Vec<KeptBy>)| Verdict {
        id: newest_first[nth].id,
        reasons,
        is_limited: policy.max_bytes.is_some() && !is_protected[nth],
    };
    reasons.into_iter().enumerate().map(verdict).collect()
}

/// Returns the reasons that depend on no other snapshot.
fn protections(snapshot: &Snapshot, policy: &Retention, now: Time) -> Vec<KeptBy> {
    let mut reasons = Vec::new();
    if snapshot.pinned {
        reasons.push(KeptBy::new(Rule::Pinned, Until::Unpinned));
    }
    if snapshot.taken > now {
        reasons.push(KeptBy::new(Rule::Future, Until::Clock(snapshot.taken)));
    }
    let tags = snapshot.tags.intersection(&policy.tags).cloned();
    reasons.extend(tags.map(|tag| KeptBy::new(Rule::Tag(tag), Until::Untagged)));
    reasons
}

fn within(taken: Time, newest: Option<Time>, within: Option<u64>) -> Option<KeptBy> {
    let within = i64::try_from(within?).unwrap_or(i64::MAX);
    let newest = newest?;
    let since = Time { seconds: newest.seconds.saturating_sub(within), ..newest };
    let until = Time { seconds: taken.seconds.saturating_add(within), ..taken };
    (taken >= since).then_some(KeptBy::new(Rule::Within, Until::Time(until)))
}

/// Keeps the newest snapshot of each of the newest `count` periods that have any. Ignores snapshots in the future.
fn keep_last_of(
    period: Period,
    count: u32,
    newest_first: &[&Snapshot],
    now: Time,
    zone: &TimeZone,
    reasons: &mut [Vec<KeptBy>],
) {
    let (mut left, mut last) = (count, None);
    let current = key(period, now, 0, zone);
    for (nth, snapshot) in newest_first.iter().enumerate().filter(|(_, snapshot)| snapshot.taken <= now) {
        if left == 0 {
            return;
        }
        let key = key(period, snapshot.taken, snapshot.id.0, zone);
        let is_new = last != Some(key);
        if is_new || nth + 1 == newest_first.len() {
            let rule = if is_new { Rule::Last(period) } else { Rule::Oldest(period) };
            let is_current = is_new && key == current && period != Period::Snapshot;
            let until = if is_current { Until::NewerInPeriod(period) } else { Until::Newer(period, left) };
            reasons[nth].push(KeptBy::new(rule, until));
            left -= 1;
        }
        last = Some(key);
    }
}

/// A key that snapshots of one period share: the number of the period in its year, or in another row of periods.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PeriodKey {
    row: i64,
    nth: i64,
}

fn key(period: Period, taken: Time, id: u64, zone: &TimeZone) -> PeriodKey {
    let Ok(timestamp) = Timestamp::from_second(taken.seconds) else {
        // Beyond the years of the calendar, each second is a period.
        return PeriodKey { row: i64::MIN, nth: taken.seconds };
    };
    let zoned = timestamp.to_zoned(zone.clone());
    let (date, offset) = (zoned.date(), i64::from(zoned.offset().seconds()));
    let in_year = |nth: i64| PeriodKey { row: date.year().into(), nth };
    match period {
        Period::Snapshot => PeriodKey { row: 0, nth: id as i64 },
        // An hour that occurs twice in autumn counts twice.
        Period::Hour => PeriodKey { row: offset, nth: (taken.seconds + offset).div_euclid(3600) },
        Period::Day => in_year(date.day_of_year().into()),
        Period::Week => {
            let week: ISOWeekDate = date.iso_week_date();
            PeriodKey { row: week.year().into(), nth: week.week().into() }
        }
        Period::Month => in_year(date.month().into()),
        Period::Year => in_year(0),
    }
}

/// Removes the reasons of the oldest snapshots until the rest takes at most `max` bytes: the tree of the oldest one,
/// and what each newer one added. Protected ones stay.
fn limit(max: u64, newest_first: &[&Snapshot], is_protected: &[bool], reasons: &mut [Vec<KeptBy>]) {
    let mut added: u64 = 0;
    let mut is_full = false;
    for (nth, snapshot) in newest_first.iter().enumerate() {
        if reasons[nth].is_empty() {
            continue;
        }
        is_full |= added.saturating_add(snapshot.bytes) > max;
        if is_full && !is_protected[nth] {
            reasons[nth].clear();
        } else {
            added = added.saturating_add(snapshot.added_bytes);
        }
    }
}

#[cfg(test)]
mod tests;
