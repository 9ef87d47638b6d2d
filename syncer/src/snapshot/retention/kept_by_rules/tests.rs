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
