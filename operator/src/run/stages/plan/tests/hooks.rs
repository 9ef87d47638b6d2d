//! Tests where the hooks of a run are inserted.

use contract::Reason;
use jiff::SignedDuration;

use super::*;
use crate::{
    api::{Hook, HookTarget, Hooks, OnHookFailure, StoppedRun},
    hooks::hook_state::{self, Point},
    status::run_status,
    volumes::claims::LostClaim,
};

fn hook(on_failure: OnHookFailure) -> Option<Hook> {
    let match_labels = [("app".to_string(), "db".to_string())].into();
    let target = HookTarget { match_labels, container: None };
    Some(Hook { target, command: vec!["sync".into()], timeout: "1m".into(), on_failure })
}

fn both(on_failure: OnHookFailure) -> Hooks {
    Hooks { before: hook(on_failure), after: hook(on_failure) }
}

fn with<'a>(status: &'a SyncJobStatus, hooks: &'a Hooks) -> Situation<'a> {
    Situation { hooks: Some(hooks), now: at(3), ..situation(status) }
}

fn running<'a>(status: &'a SyncJobStatus, hooks: &'a Hooks) -> Situation<'a> {
    Situation { pairs: pair(EndState::Running, EndState::Running), ..with(status, hooks) }
}

fn deleted<'a>(status: &'a SyncJobStatus, hooks: &'a Hooks) -> Situation<'a> {
    Situation { facts: facts(|it| it.record = Record::Deleted), ..with(status, hooks) }
}

/// Applies a hook's step to the status, as the controller does.
fn done(status: &mut SyncJobStatus, step: &Step) {
    match step {
        Step::Hook(HookStep::Open) => hook_state::open(status),
        Step::Hook(HookStep::Begin { point, stopped, .. }) => {
            run_status::hook_begun(status, *point, stopped.as_deref(), at(1));
        }
        other => panic!("no step of a hook: {other:?}"),
    }
}

fn over(status: &mut SyncJobStatus, point: Point, failure: Option<&str>) {
    hook_state::end(status, point, failure.map(Into::into), at(2));
}

fn begins(point: Point, stops: bool) -> Step {
    Step::Hook(HookStep::Begin { point, stops, stopped: None })
}

/// Returns the status of a run whose hook `before` has ended.
fn opened(failure: Option<&str>) -> SyncJobStatus {
    let mut status = with_run();
    done(&mut status, &begins(Point::Before, false));
    over(&mut status, Point::Before, failure);
    status
}

#[test]
fn a_run_whose_pods_were_stopped_for_a_lost_destination_halts_once_its_hook_is_over() {
    let hooks = both(OnHookFailure::Fail);
    let mut status = opened(None);
    let run = status.active_run.as_mut().unwrap();
    run.pods_ready_time = run.start_time.clone();
    fn losing<'a>(status: &'a SyncJobStatus, hooks: &'a Hooks, pairs: Vec<Pair>) -> Situation<'a> {
        let fault = Fault::new(Reason::ClaimTerminating, "m");
        Situation { lost: Some(LostClaim { side: Side::Sink, fault }), pairs, ..with(status, hooks) }
    }
    let begun = step(&losing(&status, &hooks, pair(EndState::Running, EndState::Running)));
    assert_eq!(begun, begins(Point::After, true));
    done(&mut status, &begun);
    over(&mut status, Point::After, None);
    let next = step(&losing(&status, &hooks, pair(EndState::Absent, EndState::Absent)));
    assert!(matches!(next, Step::Halt(fault) if fault.reason == Reason::ClaimTerminating));
}

#[test]
fn before_begins_once_all_pods_have_found_their_volumes_free() {
    let (mut status, hooks) = (with_run(), both(OnHookFailure::Fail));
    let began = status.active_run.as_ref().unwrap().start_time.clone().unwrap();
    assert_eq!(step(&with(&status, &hooks)), Step::Launch);
    assert_eq!(step(&running(&status, &hooks)), Step::Start(None));
    let first = step(&Situation { is_free: true, ..running(&status, &hooks) });
    assert_eq!(first, begins(Point::Before, false));
    done(&mut status, &first);
    // A restarted operator finds the same status, and runs the command again.
    assert_eq!(step(&running(&status, &hooks)), Step::Hook(HookStep::Await(Point::Before)));
    over(&mut status, Point::Before, None);
    assert_eq!(step(&running(&status, &hooks)), Step::Run);
    let try_time = status.active_run.unwrap().try_time.unwrap();
    assert_eq!(try_time.0.duration_since(began.0), SignedDuration::from_secs(1), "the hook's second");
}

#[test]
fn a_volume_in_use_is_waited_for_without_any_hook() {
    let (status, hooks) = (with_run(), both(OnHookFailure::Fail));
    let report =
        Report { reason: Some("DestinationBusy".into()), result: RunResult::Failed, ..Report::default() };
    let busy = Ending { exit: Some(1), at: Some(at(2)), report: Some(report), ..Ending::default() };
    let pairs = pair(ended(5, 2), EndState::Ended(Box::new(busy)));
    let next = step(&Situation { pairs, now: at(3), ..with(&status, &hooks) });
    assert!(matches!(next, Step::Postpone(..)), "{next:?}");
}

#[test]
fn nothing_runs_before_a_run_has_its_claims_and_its_turn() {
    let (status, hooks) = (with_run(), both(OnHookFailure::Fail));
    let taken = Turn::Taken(Fault::new(Reason::WaitingForRun, "m"));
    assert!(matches!(step(&Situation { turn: taken, ..with(&status, &hooks) }), Step::Wait(_)));
    let blocked = Err(Blocked::Waiting(Fault::new(Reason::ClaimNotBound, "m")));
    assert!(matches!(step(&Situation { claims: blocked, ..with(&status, &hooks) }), Step::Block(_)));
}

#[test]
fn a_run_with_after_alone_owes_it_from_before_its_pods_on() {
    let hooks = Hooks { before: None, ..both(OnHookFailure::Fail) };
    let mut status = with_run();
    assert_eq!(step(&with(&status, &hooks)), Step::Hook(HookStep::Open));
    done(&mut status, &Step::Hook(HookStep::Open));
    assert_eq!(step(&with(&status, &hooks)), Step::Launch);
    let ended = Situation { pairs: pair(ended(0, 5), ended(0, 5)), now: at(6), ..with(&status, &hooks) };
    assert_eq!(step(&ended), begins(Point::After, false));
}

#[test]
fn a_failed_before_starts_no_pods_and_after_runs() {
    let (mut status, hooks) = (opened(Some("The hook before failed.")), both(OnHookFailure::Fail));
    let next = step(&with(&status, &hooks));
    let Step::Hook(HookStep::Begin { point: Point::After, stopped: Some(stopped), .. }) = &next else {
        panic!("{next:?}")
    };
    assert_eq!((stopped.result, stopped.reason.as_str()), (RunResult::Failed, "HookFailed"));
    done(&mut status, &next);
    assert_eq!(step(&with(&status, &hooks)), Step::Hook(HookStep::Await(Point::After)));
    over(&mut status, Point::After, None);
    let report = finished(step(&with(&status, &hooks)));
    assert_eq!(
        (report.reason.as_deref(), report.message.as_str()),
        (Some("HookFailed"), "The hook before failed.")
    );
}

#[test]
fn a_failed_before_that_may_be_ignored_is_a_note() {
    let (mut status, hooks) = (opened(Some("The hook before failed.")), both(OnHookFailure::Continue));
    assert_eq!(step(&with(&status, &hooks)), Step::Launch);
    let pairs = pair(ended(0, 5), ended(0, 5));
    let next = step(&Situation { pairs: pairs.clone(), now: at(6), ..with(&status, &hooks) });
    done(&mut status, &next);
    over(&mut status, Point::After, Some("The hook after failed."));
    let report = finished(step(&Situation { pairs, now: at(7), ..with(&status, &hooks) }));
    assert_eq!(report.result, RunResult::Succeeded);
    assert_eq!(report.notes, ["The hook before failed.", "The hook after failed."]);
}

#[test]
fn a_failed_after_of_a_good_run_leaves_it_partially_failed() {
    let (mut status, hooks) = (opened(None), both(OnHookFailure::Fail));
    let pairs = pair(ended(0, 5), ended(0, 5));
    let next = step(&Situation { pairs: pairs.clone(), now: at(6), ..with(&status, &hooks) });
    assert_eq!(next, begins(Point::After, false));
    done(&mut status, &next);
    over(&mut status, Point::After, Some("The hook after failed."));
    let report = finished(step(&Situation { pairs, now: at(7), ..with(&status, &hooks) }));
    assert_eq!((report.result, report.reason.as_deref()), (RunResult::PartiallyFailed, Some("HookFailed")));
    assert_eq!(report.message, "The files are in step, and the hook after failed.");
}

#[test]
fn after_waits_for_the_last_try() {
    let (mut status, hooks) = (opened(None), both(OnHookFailure::Fail));
    let Step::Retry(outcome, again) = step(&Situation { hooks: Some(&hooks), ..failed(&status) }) else {
        panic!("no retry")
    };
    run_status::retry(&mut status, &outcome, again, at(6));
    assert_eq!(step(&Situation { now: at(60), ..with(&status, &hooks) }), Step::Launch, "without before");
    status.active_run.as_mut().unwrap().retries = 2;
    let last = Situation { hooks: Some(&hooks), now: at(60), ..failed(&status) };
    assert_eq!(step(&last), begins(Point::After, false));
}

/// Pods may keep running for a while as they are stopped, and report that they were stopped.
#[test]
fn a_run_that_takes_too_long_is_stopped_before_after_and_ends_as_timed_out() {
    let (mut status, hooks) = (opened(None), both(OnHookFailure::Fail));
    let running = pair(EndState::Running, EndState::Running);
    let next = step(&Situation { pairs: running, now: at(700), ..with(&status, &hooks) });
    let Step::Hook(HookStep::Begin { point: Point::After, stops: true, stopped: Some(stopped) }) = &next
    else {
        panic!("{next:?}")
    };
    let StoppedRun { reason, .. } = &**stopped;
    assert_eq!(*reason, "TimedOut");
    done(&mut status, &next);
    over(&mut status, Point::After, None);
    let killed =
        Situation { pairs: pair(ended(5, 701), ended(5, 701)), now: at(702), ..with(&status, &hooks) };
    assert_eq!(finished(step(&killed)).reason.as_deref(), Some("TimedOut"));
}

#[test]
fn a_run_that_is_canceled_runs_after_and_a_hook_in_progress_is_waited_for() {
    let (mut status, hooks) = (with_run(), both(OnHookFailure::Fail));
    done(&mut status, &begins(Point::Before, false));
    assert_eq!(step(&deleted(&status, &hooks)), Step::Hook(HookStep::Await(Point::Before)));
    over(&mut status, Point::Before, None);
    let next = step(&deleted(&status, &hooks));
    assert!(matches!(next, Step::Hook(HookStep::Begin { point: Point::After, stops: true, .. })), "{next:?}");
    done(&mut status, &next);
    over(&mut status, Point::After, None);
    assert_eq!(finished(step(&deleted(&status, &hooks))).result, RunResult::Canceled);
}

#[test]
fn a_run_that_waits_without_an_end_in_sight_runs_after_and_before_anew() {
    let (mut status, hooks) = (opened(None), both(OnHookFailure::Fail));
    let blocked = || Err(Blocked::Waiting(Fault::new(Reason::ClaimNotBound, "m")));
    let next = step(&Situation { claims: blocked(), ..with(&status, &hooks) });
    assert_eq!(next, begins(Point::After, true));
    done(&mut status, &next);
    over(&mut status, Point::After, None);
    // The claim may exist again by now.
    assert_eq!(step(&with(&status, &hooks)), begins(Point::Before, false));
    let Step::Block(why) = step(&Situation { claims: blocked(), ..with(&status, &hooks) }) else { panic!() };
    crate::status::readiness::blocked(&mut status, &why, GENERATION, at(3));
    assert_eq!(status.active_run.unwrap().hooks, None);
}

#[test]
fn a_run_without_after_ends_as_ever() {
    let hooks = Hooks { after: None, ..both(OnHookFailure::Fail) };
    let status = opened(None);
    let ended = Situation { pairs: pair(ended(0, 5), ended(0, 5)), now: at(6), ..with(&status, &hooks) };
    assert_eq!(finished(step(&ended)).result, RunResult::Succeeded);
    let failed = opened(Some("no"));
    assert_eq!(finished(step(&with(&failed, &hooks))).reason.as_deref(), Some("HookFailed"));
}

#[test]
fn a_destination_that_grows_before_a_retry_lets_the_application_go_first() {
    let (mut status, hooks) = (opened(None), both(OnHookFailure::Fail));
    fn grows<'a>(status: &'a SyncJobStatus, hooks: &'a Hooks) -> Situation<'a> {
        Situation { claim_step: Some(ClaimStep::Grow), ..with(status, hooks) }
    }
    let next = step(&grows(&status, &hooks));
    assert_eq!(next, begins(Point::After, true));
    done(&mut status, &next);
    over(&mut status, Point::After, None);
    assert_eq!(step(&grows(&status, &hooks)), Step::Claim(ClaimStep::Grow));
}

#[test]
fn a_job_that_the_api_server_refuses_ends_the_run_after_its_hook() {
    let (mut status, hooks) = (opened(None), both(OnHookFailure::Fail));
    let fault = Fault::new(Reason::ChildRefused, "The API server refuses the Job.");
    let refusal = || Step::Finish(Outcome::stopped(fault.clone()));
    let next = crate::run::stages::plan::refused(&with(&status, &hooks), refusal());
    let Step::Hook(HookStep::Begin { point: Point::After, stops: true, stopped: Some(stopped) }) = &next
    else {
        panic!("{next:?}")
    };
    assert_eq!((stopped.reason.as_str(), &*stopped.message), ("ChildRefused", &*fault.message));
    done(&mut status, &next);
    over(&mut status, Point::After, None);
    assert_eq!(finished(step(&with(&status, &hooks))).reason.as_deref(), Some("ChildRefused"));
    assert_eq!(
        crate::run::stages::plan::refused(&with(&status, &hooks), refusal()),
        refusal(),
        "nothing is owed any more"
    );
}
