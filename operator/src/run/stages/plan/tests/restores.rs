//! Tests that a restore goes first, and what becomes of runs that wait.

use super::*;
use crate::{run::restore, status::readiness};

fn asked(spec: serde_json::Value) -> SyncRun {
    SyncRun::new("back", serde_json::from_value(spec).unwrap())
}

fn restore() -> SyncRun {
    asked(serde_json::json!({"syncJob": {"name": "web"}, "restore": {"snapshot": "gold"}}))
}

/// Returns the status of a job whose run for that trigger waits.
fn waiting(trigger: Option<&str>) -> SyncJobStatus {
    let mut status = after_run(GENERATION);
    let run = run_status::new_run("web", 8, GENERATION, trigger.map(Into::into), at(0));
    let cause = Some(if trigger.is_some() { RunCause::Trigger } else { RunCause::Spec });
    run_status::begin(&mut status, ActiveRun { cause, start_time: None, try_time: None, ..run }, at(0));
    status
}

#[test]
fn suspending_removes_a_run_that_waits_and_a_trigger_that_was_not_answered_counts_again() {
    let suspended = || Ok(Demand { suspend: true, trigger: Some("b".into()), ..demand() });
    let resumed = || Ok(Demand { trigger: Some("b".into()), ..demand() });
    let mut status = waiting(Some("b"));
    assert_eq!(step(&Situation { demand: suspended(), ..situation(&status) }), Step::Suspend);
    readiness::suspended(&mut status, false, GENERATION, at(1));
    assert_eq!(status.active_run, None);
    assert_eq!(step(&Situation { demand: suspended(), ..situation(&status) }), Step::Suspend);
    let Step::Begin(run) = step(&Situation { demand: resumed(), ..situation(&status) }) else { panic!() };
    assert_eq!(run.cause, Some(RunCause::Trigger));
    let mut answered = waiting(None);
    answered.last_trigger = Some("b".into());
    readiness::suspended(&mut answered, false, GENERATION, at(1));
    assert_eq!(step(&Situation { demand: resumed(), ..situation(&answered) }), Step::Rest);
}

#[test]
fn a_restore_takes_the_place_of_a_run_that_waits_and_stops_one_that_has_begun() {
    let back = restore();
    let mut status = waiting(Some("b"));
    let suspended = Ok(Demand { suspend: true, trigger: Some("b".into()), ..demand() });
    let waits = Situation { facts: asks(&back), demand: suspended, ..situation(&status) };
    assert_eq!(step(&waits), Step::Yield);
    readiness::leave(&mut status, GENERATION, at(1));
    let Step::Begin(run) = step(&Situation { facts: asks(&back), ..situation(&status) }) else { panic!() };
    assert_eq!((run.id.as_str(), run.cause), ("back", Some(RunCause::Restore)));

    let running = running_since(1);
    let pairs = pair(EndState::Running, EndState::Running);
    let report = finished(step(&Situation { facts: asks(&back), pairs, now: at(5), ..situation(&running) }));
    assert_eq!((report.result, report.reason.as_deref()), (RunResult::Canceled, Some("Replaced")));
    assert!(report.message.contains("a restore was asked for"), "{}", report.message);
    let over = pair(ended(0, 5), ended(0, 5));
    let over = Situation { facts: asks(&back), pairs: over, now: at(6), ..situation(&running) };
    assert_eq!(finished(step(&over)).result, RunResult::Succeeded, "it is over already");
}

#[test]
fn what_was_asked_for_before_a_restore_waits_for_a_person_and_what_is_asked_for_later_does_not() {
    let mut manual = asked(serde_json::json!({"syncJob": {"name": "web"}}));
    let mut created = |second| {
        manual.metadata.creation_timestamp = Some(Time(at(second)));
        manual.clone()
    };
    let mut status = after_run(GENERATION);
    assert!(restore::lets_in(&status, &created(0)));
    let run = run_status::new_run("web", 8, GENERATION, None, at(10));
    let gold = restore().spec.restore;
    run_status::begin(&mut status, ActiveRun { restore: gold, ..run }, at(10));
    assert!(!restore::lets_in(&status, &restore()), "one restore does not stop another");
    run_status::finish(&mut status, &Outcome::stopped(Fault::new("r", "m")), None, at(20));
    assert!(!restore::lets_in(&status, &created(5)));
    assert!(restore::lets_in(&status, &created(15)));
    assert!(restore::lets_in(&status, &restore()));
    restore::resume(&mut status.conditions);
    assert!(restore::lets_in(&status, &created(5)));
}

#[test]
fn after_a_restore_in_place_only_a_person_starts_a_run() {
    let restore = api::Restore { snapshot: "latest".into(), safety: true, ..api::Restore::default() };
    let spec = api::SyncRunSpec { restore: Some(restore.clone()), ..api::SyncRunSpec::default() };
    let asked = SyncRun::new("back", spec);
    let mut status = after_run(GENERATION);
    let Step::Begin(run) = step(&Situation { facts: asks(&asked), ..situation(&status) }) else { panic!() };
    assert_eq!((run.cause, &run.restore), (Some(RunCause::Restore), &Some(restore)));
    run_status::begin(&mut status, *run, at(0));
    status.active_run = None;
    let schedule =
        Schedule::new(&api::Schedule { interval: Some("1m".into()), ..Default::default() }).unwrap();
    let hourly = || Demand { schedule: Some(schedule.clone()), ..demand() };
    let held = Situation {
        demand: Ok(hourly()),
        job: job(GENERATION + 1, "h"),
        now: at(9000),
        ..situation(&status)
    };
    assert_eq!((step(&held), next_run(&held, &Step::Rest)), (Step::Rest, None));
    let changed = Situation { job: job(GENERATION + 1, "other"), ..situation(&status) };
    assert_eq!(step(&changed), Step::Rest);
    let asked = SyncRun::new("on", api::SyncRunSpec::default());
    assert!(matches!(step(&Situation { facts: asks(&asked), ..held.clone() }), Step::Begin(_)));
    let triggered = Ok(Demand { trigger: Some("go".into()), ..hourly() });
    let Step::Begin(run) = step(&Situation { demand: triggered, ..held }) else { panic!() };
    run_status::begin(&mut status, *run, at(9000));
    status.active_run = None;
    let late = Situation { demand: Ok(hourly()), now: at(90_000), ..situation(&status) };
    assert!(matches!(step(&late), Step::Begin(_)), "the schedule goes on");
}

#[test]
fn a_benchmark_takes_no_run_out_of_turn_and_one_that_is_refused_ends() {
    let benchmark = Some(api::Benchmark::default());
    let spec = api::SyncRunSpec { benchmark: benchmark.clone(), ..api::SyncRunSpec::default() };
    let asked = SyncRun::new("bench", spec);
    let mut status = after_run(GENERATION);
    status.last_benchmark = Some(api::Run { number: 11, ..api::Run::default() });
    let schedule =
        Schedule::new(&api::Schedule { interval: Some("1m".into()), ..Default::default() }).unwrap();
    let hourly =
        Ok(Demand { schedule: Some(schedule), trigger: Some("go".into()), replaces: true, ..demand() });
    let due = Situation { facts: asks(&asked), demand: hourly, now: at(9000), ..situation(&status) };
    let begin = step(&due);
    let Step::Begin(run) = begin.clone() else { panic!("{begin:?}") };
    assert_eq!((run.cause, &run.benchmark, run.number), (Some(RunCause::Benchmark), &benchmark, 12));
    let rest = Situation { facts: facts(|_| ()), ..due.clone() };
    assert_eq!(next_run(&due, &begin), next_run(&rest, &Step::Rest), "the time of the next run stays");

    let mut begun = status.clone();
    run_status::begin(&mut begun, ActiveRun { start_time: None, ..*run }, at(9000));
    assert_eq!(begun.last_trigger, status.last_trigger, "the trigger is still to be answered");
    let active = Situation { status: &begun, facts: facts(|_| ()), ..due };
    assert_eq!(next_run(&active, &Step::Run), next_run(&rest, &Step::Rest));
    let refused = Situation { refused: Some(Fault::new("No", "a device")), ..active };
    assert_eq!(finished(step(&refused)).message, "a device");
}
