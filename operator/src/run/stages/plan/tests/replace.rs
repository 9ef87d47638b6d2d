//! Tests runs that fall due while another is under way, with `concurrencyPolicy: Replace`.

use super::*;

fn replacing() -> Demand {
    Demand { replaces: true, trigger: Some("b".into()), ..demand() }
}

fn with_trigger(trigger: &str) -> SyncJobStatus {
    let mut status = running_since(1);
    let run = status.active_run.as_mut().unwrap();
    (run.trigger, run.spec_hash) = (Some(trigger.into()), Some("h".into()));
    status
}

fn running(status: &SyncJobStatus, demand: Demand) -> Situation<'_> {
    let pairs = pair(EndState::Running, EndState::Running);
    Situation { demand: Ok(demand), pairs, now: at(5), ..situation(status) }
}

#[test]
fn a_new_trigger_stops_the_run_and_the_next_one_begins() {
    let mut status = with_trigger("a");
    status.last_trigger = Some("a".into());
    assert_eq!(step(&running(&status, Demand { replaces: false, ..replacing() })), Step::Run, "it waits");
    let Step::Finish(outcome) = step(&running(&status, replacing())) else { panic!() };
    assert_eq!(outcome.report.result, RunResult::Canceled);
    assert_eq!(outcome.report.reason.as_deref(), Some("Replaced"));
    assert!(outcome.report.message.contains("spec.trigger changed"), "{}", outcome.report.message);
    run_status::finish(&mut status, &outcome, None, at(5));
    crate::status::readiness::give_way(&mut status, at(5));
    assert!(!api::conditions::is_true(&status.conditions, "Stalled"), "{:?}", status.conditions);
    let next = Situation { demand: Ok(replacing()), now: at(6), ..situation(&status) };
    let Step::Begin(run) = step(&next) else { panic!() };
    assert_eq!((run.number, run.cause), (2, Some(RunCause::Trigger)));
}

#[test]
fn the_same_trigger_and_a_change_that_does_not_matter_stop_nothing() {
    let status = with_trigger("b");
    let later = Situation { job: job(GENERATION + 1, "h"), ..running(&status, replacing()) };
    assert_eq!(step(&later), Step::Run);
    let changed = Situation { job: job(GENERATION + 1, "other"), ..later };
    assert_eq!(finished(step(&changed)).reason.as_deref(), Some("Replaced"));
}

#[test]
fn a_time_of_the_schedule_stops_the_run_when_it_comes_and_is_waited_for() {
    let interval = api::Schedule { interval: Some("1m".into()), ..api::Schedule::default() };
    let schedule = Some(Schedule::new(&interval).unwrap());
    let demand = || Demand { schedule: schedule.clone(), ..replacing() };
    let mut status = with_trigger("b");
    status.observed_generation = Some(GENERATION);
    status.next_run_time = Some(Time(at(60)));
    assert_eq!(next(&running(&status, demand())), Step::Run.again(Some(at(60))));
    let due = Situation { now: at(61), ..running(&status, demand()) };
    assert!(finished(step(&due)).message.contains("by the schedule"));
    let suspended = Demand { suspend: true, ..demand() };
    assert_eq!(step(&Situation { now: at(60), ..running(&status, suspended) }), Step::Run);
}

#[test]
fn a_run_that_is_over_counts_and_a_restore_is_not_stopped() {
    let mut status = with_trigger("a");
    let ended = pair(ended(0, 5), ended(0, 5));
    let over = Situation { pairs: ended, now: at(6), ..running(&status, replacing()) };
    assert_eq!(finished(step(&over)).result, RunResult::Succeeded);
    let restore = api::Restore { snapshot: "gold".into(), safety: true, ..api::Restore::default() };
    status.active_run.as_mut().unwrap().restore = Some(restore);
    assert_eq!(step(&running(&status, replacing())), Step::Run);
}
