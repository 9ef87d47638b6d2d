//! Tests runs that fall due by a schedule.

use super::*;

fn hourly() -> Demand {
    let spec = api::Schedule { cron: Some("0 * * * *".into()), ..Default::default() };
    Demand { schedule: Some(Schedule::new(&spec).unwrap()), ..demand() }
}

/// The first full hour after `at(0)`, which is 08:00 UTC of some day.
const HOUR: i64 = 3600;

/// Returns the step of a job with a schedule, and the `nextRunTime` that its status gets.
fn scheduled(status: &SyncJobStatus, demand: Demand, now: Timestamp) -> (Step, Option<Timestamp>) {
    let situation = Situation { demand: Ok(demand), now, ..situation(status) };
    let step = step(&situation);
    let next = next_run(&situation, &step);
    (step, next)
}

#[test]
fn a_scheduled_job_waits_for_its_time_and_looks_again_then() {
    let status = SyncJobStatus::default();
    assert_eq!(scheduled(&status, hourly(), at(0)), (Step::Rest, Some(at(HOUR))));
    let waiting = Situation { demand: Ok(hourly()), now: at(5), ..situation(&status) };
    assert_eq!(next(&waiting), Step::Rest.again(Some(at(HOUR))));
    let yearly = api::Schedule { cron: Some("@yearly".into()), ..Default::default() };
    let yearly = Demand { schedule: Some(Schedule::new(&yearly).unwrap()), ..demand() };
    let far = Situation { demand: Ok(yearly), ..situation(&status) };
    assert_eq!(next(&far), Step::Rest.again(Some(at(3600))), "somebody may set the clock");
}

#[test]
fn what_fell_due_begins_once_and_the_next_time_is_ahead() {
    let status = SyncJobStatus { next_run_time: Some(Time(at(HOUR))), ..after_run(GENERATION) };
    let (step, next) = scheduled(&status, hourly(), at(10 * HOUR + 7));
    assert!(matches!(step, Step::Begin(run) if run.number == 8));
    assert_eq!(next, Some(at(11 * HOUR)));
}

#[test]
fn a_time_that_passes_during_a_run_is_made_up_after_it() {
    let mut status = SyncJobStatus { next_run_time: Some(Time(at(HOUR))), ..running_since(1) };
    status.active_run.as_mut().unwrap().local = true;
    let running = pair(EndState::Running, EndState::Running);
    let demand = Demand { timeout: Duration::from_secs(1 << 20), ..hourly() };
    let under_way = Situation { demand: Ok(demand), pairs: running, now: at(HOUR + 9), ..situation(&status) };
    assert_eq!((step(&under_way), next_run(&under_way, &Step::Run)), (Step::Run, Some(at(HOUR))));
    let active = status.active_run.take().unwrap();
    status.last_run = Some(Run { number: active.number, start_time: Some(Time(at(0))), ..Run::default() });
    assert!(matches!(scheduled(&status, hourly(), at(HOUR + 20)).0, Step::Begin(_)));
}

#[test]
fn with_a_schedule_a_trigger_asks_for_a_run_and_a_change_of_the_spec_does_not() {
    let status = after_run(GENERATION - 1);
    assert_eq!(scheduled(&status, hourly(), at(1)).0, Step::Rest);
    let triggered = Demand { trigger: Some("b".into()), ..hourly() };
    let (step, next) = scheduled(&status, triggered, at(1));
    assert!(matches!(step, Step::Begin(_)) && next == Some(at(HOUR)));
}

#[test]
fn a_job_that_was_suspended_waits_for_its_next_time() {
    let mut status = SyncJobStatus { next_run_time: Some(Time(at(HOUR))), ..after_run(GENERATION) };
    let suspended = Demand { suspend: true, ..hourly() };
    assert_eq!(scheduled(&status, suspended, at(HOUR / 2)), (Step::Suspend, None));
    status.next_run_time = None;
    assert_eq!(scheduled(&status, hourly(), at(5 * HOUR + 1)), (Step::Rest, Some(at(6 * HOUR))));
}
