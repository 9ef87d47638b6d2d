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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::snapshot::store::snapshot_list::tests::sample;

    const NOW: Time = Time { seconds: 1_795_370_400, nanos: 0 };

    fn taken(id: u64, seconds: i64) -> Snapshot {
        let taken = Time { seconds, nanos: 0 };
        Snapshot { taken, pinned: false, forgotten: None, tags: BTreeSet::new(), ..sample(id) }
    }

    fn kept(snapshots: &[Snapshot], policy: &Retention) -> Vec<u64> {
        let all: Vec<&Snapshot> = snapshots.iter().collect();
        let verdicts = judge(&all, policy, NOW, &TimeZone::UTC).unwrap();
        verdicts.iter().filter(|verdict| verdict.is_kept()).map(|verdict| verdict.id.0).collect()
    }

    const DAY: i64 = 86_400;

    /// Makes two snapshots a day: n was taken at 18:00, n days ago, and n + 100 an hour before.
    fn two_a_day(days: u64) -> Vec<Snapshot> {
        let at = |n: u64, hour: i64| taken(n + 100 * hour as u64, NOW.seconds - n as i64 * DAY - hour * 3600);
        (0..days).flat_map(|n| [at(n, 0), at(n, 1)]).collect()
    }

    #[test]
    fn each_rule_keeps_the_last_of_its_periods() {
        let snapshots = two_a_day(90);
        let of = |policy: Retention| kept(&snapshots, &policy);
        assert_eq!(of(Retention { last: 3, ..Retention::default() }), [0, 100, 1]);
        assert_eq!(of(Retention { hourly: 3, ..Retention::default() }), [0, 100, 1]);
        assert_eq!(of(Retention { daily: 3, ..Retention::default() }), [0, 1, 2]);
        // NOW is Sunday, 22 November 2026.
        assert_eq!(of(Retention { weekly: 3, ..Retention::default() }), [0, 7, 14]);
        assert_eq!(of(Retention { monthly: 3, ..Retention::default() }), [0, 22, 53]);
        assert_eq!(of(Retention { yearly: 1, ..Retention::default() }), [0]);
        assert_eq!(of(Retention { within_seconds: Some(DAY as u64), ..Retention::default() }), [0, 100, 1]);
        assert_eq!(of(Retention { daily: 2, weekly: 2, ..Retention::default() }), [0, 1, 7]);
    }

    #[test]
    fn copies_of_each_volume_are_judged_apart() {
        let of = |id, origin: Option<u8>| {
            let origin = origin.map(|byte| VolumeId::new([byte; 16]));
            Snapshot { origin, ..taken(id, NOW.seconds - id as i64) }
        };
        let snapshots = [of(1, None), of(2, Some(1)), of(3, Some(2)), of(4, None), of(5, Some(1))];
        assert_eq!(kept(&snapshots, &Retention { last: 1, ..Retention::default() }), [1, 2, 3]);
    }

    #[test]
    fn the_oldest_is_kept_while_a_rule_has_periods_left() {
        assert_eq!(kept(&two_a_day(3), &Retention { yearly: 5, ..Retention::default() }), [0, 102]);
    }

    #[test]
    fn an_empty_policy_is_refused() {
        let judged = judge(&[], &Retention::default(), NOW, &TimeZone::UTC);
        assert!(matches!(judged, Err(SnapshotError::EmptyPolicy)));
    }

    #[test]
    fn pins_tags_the_future_and_the_newest_whole_one_stay() {
        let mut snapshots = two_a_day(10);
        snapshots[10].pinned = true;
        snapshots[11].tags.insert("gold".into());
        snapshots[0].failed = 1;
        snapshots.push(taken(77, NOW.seconds + 5));
        let policy = Retention { last: 1, tags: ["gold".into()].into(), ..Retention::default() };
        assert_eq!(kept(&snapshots, &policy), [0, 100, 5, 105, 77]);
    }

    #[test]
    fn each_job_is_judged_by_itself() {
        let mut snapshots = two_a_day(2);
        snapshots[3].job = "other".into();
        assert_eq!(kept(&snapshots, &Retention { last: 1, ..Retention::default() }), [0, 101]);
    }

    #[test]
    fn the_oldest_go_first_where_bytes_are_limited() {
        let mut snapshots = two_a_day(3);
        snapshots.iter_mut().for_each(|snapshot| (snapshot.bytes, snapshot.added_bytes) = (100, 10));
        let limited =
            |max_bytes| kept(&snapshots, &Retention { max_bytes: Some(max_bytes), ..Retention::default() });
        assert_eq!(limited(120), [0, 100, 1]);
        assert_eq!(limited(0), [0], "the newest whole one");
        assert_eq!(limited(u64::MAX).len(), 6);
        let both = Retention { daily: 3, max_bytes: Some(110), ..Retention::default() };
        assert_eq!(kept(&snapshots, &both), [0, 1]);
    }

    #[test]
    fn many_in_a_short_time_push_out_nothing_that_is_within() {
        let mut snapshots = two_a_day(5);
        snapshots.extend((1000..1200).map(|id| taken(id, NOW.seconds - id as i64 + 900)));
        let policy = Retention {
            last: 1,
            within_seconds: Some(2 * DAY as u64),
            max_bytes: Some(1),
            ..Retention::default()
        };
        let kept = kept(&snapshots, &policy);
        assert!([0, 100, 1, 101, 2].iter().all(|id| kept.contains(id)), "{kept:?}");
    }

    fn reasons(verdicts: &[Verdict]) -> Vec<(u64, Vec<(String, Until)>)> {
        let told = |reason: &KeptBy| (reason.to_string(), reason.until);
        verdicts.iter().map(|one| (one.id.0, one.reasons.iter().map(told).collect())).collect()
    }

    /// NOW is 18:00, and hours and days are those of UTC.
    #[test]
    fn each_reason_says_which_event_ends_it() {
        let mut snapshots = two_a_day(3);
        snapshots[2].pinned = true;
        snapshots[3].tags.insert("gold".into());
        snapshots.push(taken(77, NOW.seconds + 5));
        let retention = Retention {
            last: 2,
            daily: 2,
            yearly: 3,
            within_seconds: Some(3600),
            tags: ["gold".into()].into(),
            ..Retention::default()
        };
        let rules = JobRules { retention, zone: "UTC".into() };
        let mut roots = Roots { snapshots, ..Roots::default() };
        roots.rules.insert("job".into(), rules);
        roots.snapshots[5].forgotten = Some(NOW);
        let said = reasons(&explain(&roots, NOW, &TimeZone::UTC));
        let newer = |rule: &str, period, count| (rule.to_string(), Until::Newer(period, count));
        let of = |rule: &str, until| (rule.to_string(), until);
        let day = Time { seconds: 3600, nanos: 0 };
        let within = |ago: i64| Until::Time(Time { seconds: NOW.seconds - ago + day.seconds, nanos: 0 });
        let expected = vec![
            (
                0,
                vec![
                    of("newest whole", Until::NewerWhole),
                    of("within", within(0)),
                    newer("last", Period::Snapshot, 2),
                    of("daily", Until::NewerInPeriod(Period::Day)),
                    of("yearly", Until::NewerInPeriod(Period::Year)),
                ],
            ),
            (100, vec![of("within", within(3600)), newer("last", Period::Snapshot, 1)]),
            (1, vec![of("pinned", Until::Unpinned), newer("daily", Period::Day, 1)]),
            (101, vec![of("tag gold", Until::Untagged)]),
            (2, vec![newer("oldest yearly", Period::Year, 2)]),
            (
                77,
                vec![
                    of("in the future", Until::Clock(Time { seconds: NOW.seconds + 5, nanos: 0 })),
                    of("within", within(-5)),
                ],
            ),
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn a_snapshot_of_a_job_without_rules_is_kept_until_a_prune() {
        let mut snapshots = two_a_day(1);
        (snapshots[0].job, snapshots[0].purpose) = (String::new(), Purpose::Manual);
        (snapshots[1].job, snapshots[1].pinned) = ("other".into(), true);
        let rules = [("other".to_string(), JobRules::default())].into();
        let roots = Roots { snapshots, rules, ..Roots::default() };
        let said = reasons(&explain(&roots, NOW, &TimeZone::UTC));
        let only = |rule: &str, until| vec![(rule.to_string(), until)];
        assert_eq!(said, [(0, only("no rule", Until::Prune)), (100, only("pinned", Until::Unpinned))]);
    }

    /// Compares the list with the result of a prune by the same rules.
    #[test]
    fn the_list_and_a_prune_agree() {
        let roots = Roots { snapshots: two_a_day(40), ..Roots::default() };
        let retention = Retention { daily: 5, weekly: 4, max_bytes: Some(1 << 40), ..Retention::default() };
        let all: Vec<&Snapshot> = roots.snapshots.iter().collect();
        let judged = judge(&all, &retention, NOW, &TimeZone::UTC).unwrap();
        assert!(judged.iter().all(|verdict| verdict.id.0 == 0 || verdict.is_limited));
        let rules = [("job".to_string(), JobRules { retention, zone: String::new() })].into();
        let explained = explain(&Roots { rules, ..roots.clone() }, NOW, &TimeZone::UTC);
        assert_eq!(explained, judged);
    }

    fn any_snapshots() -> impl Strategy<Value = Vec<Snapshot>> {
        let one = (0_i64..100 * DAY, any::<bool>(), 0_u64..2, 0_u64..1000, 0_usize..3);
        prop::collection::vec(one, 0..60).prop_map(|all| {
            let made = all.into_iter().enumerate().map(|(id, (ago, pinned, failed, bytes, job))| {
                let mut snapshot = taken(id as u64, NOW.seconds + 2 * DAY - ago);
                (snapshot.pinned, snapshot.failed, snapshot.bytes) = (pinned && id % 5 == 0, failed, bytes);
                snapshot.job = format!("job{job}");
                snapshot
            });
            made.collect()
        })
    }

    fn any_policy() -> impl Strategy<Value = Retention> {
        let counts = prop::array::uniform6(0_u32..6);
        (counts, prop::option::of(0..40 * DAY as u64), prop::option::of(0_u64..20_000)).prop_map(
            |(n, within_seconds, max_bytes)| {
                let [last, hourly, daily, weekly, monthly, yearly] = n;
                Retention {
                    last,
                    hourly,
                    daily,
                    weekly,
                    monthly,
                    yearly,
                    within_seconds,
                    max_bytes,
                    tags: BTreeSet::new(),
                }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_the_policy_the_promises_hold(snapshots in any_snapshots(), policy in any_policy()) {
            let all: Vec<&Snapshot> = snapshots.iter().collect();
            let Ok(verdicts) = judge(&all, &policy, NOW, &TimeZone::UTC) else { return Ok(()) };
            prop_assert_eq!(verdicts.len(), snapshots.len());
            let kept: BTreeSet<u64> = verdicts.iter().filter(|one| one.is_kept()).map(|one| one.id.0).collect();
            for snapshot in &snapshots {
                if snapshot.pinned || snapshot.taken > NOW {
                    prop_assert!(kept.contains(&snapshot.id.0));
                }
            }
            for job in ["job0", "job1", "job2"] {
                let whole = snapshots.iter().filter(|one| one.job == job && one.is_whole() && one.taken <= NOW);
                if let Some(newest) = whole.max_by_key(|one| (one.taken, one.id)) {
                    prop_assert!(kept.contains(&newest.id.0));
                }
            }
            // Judging the kept ones again keeps all of them.
            let rest: Vec<&Snapshot> = snapshots.iter().filter(|one| kept.contains(&one.id.0)).collect();
            if policy.max_bytes.is_none() {
                let again = judge(&rest, &policy, NOW, &TimeZone::UTC).unwrap();
                prop_assert!(again.iter().all(Verdict::is_kept));
            }
            // The order of the list does not matter.
            let backwards: Vec<&Snapshot> = all.iter().rev().copied().collect();
            let mut other = judge(&backwards, &policy, NOW, &TimeZone::UTC).unwrap();
            other.reverse();
            prop_assert_eq!(other, verdicts);
        }

        #[test]
        fn a_wider_rule_keeps_no_fewer(snapshots in any_snapshots(), policy in any_policy()) {
            let narrow = Retention { max_bytes: None, ..policy };
            let wide = Retention { daily: narrow.daily + 1, weekly: narrow.weekly + 2, ..narrow.clone() };
            let all: Vec<&Snapshot> = snapshots.iter().collect();
            let Ok(narrow) = judge(&all, &narrow, NOW, &TimeZone::UTC) else { return Ok(()) };
            let wide = judge(&all, &wide, NOW, &TimeZone::UTC).unwrap();
            prop_assert!(narrow.iter().zip(&wide).all(|(narrow, wide)| wide.is_kept() || !narrow.is_kept()));
        }
    }
}
