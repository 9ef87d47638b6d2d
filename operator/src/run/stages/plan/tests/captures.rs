//! Runs whose source is captured at one instant.

use super::*;
use crate::{
    api::{Hook, Hooks},
    hooks::hook_state::{self, Point},
    names::TryNames,
    snapshots::source_capture,
    status::readiness,
};
use contract::Reason;

fn captures(status: &SyncJobStatus) -> Situation<'_> {
    let demand = Demand { capture_timeout: Some(Duration::from_secs(60)), ..demand() };
    Situation { demand: Ok(demand), ..situation(status) }
}

/// Returns a status whose capture began at that second.
fn begun(second: i64) -> SyncJobStatus {
    let mut status = with_run();
    source_capture::begin(&mut status, TryNames::new("web", "u", 1, 0).capture(), at(second));
    status
}

fn both() -> Hooks {
    Hooks { before: Some(Hook::default()), after: Some(Hook::default()) }
}

fn taking() -> Captured {
    Captured::Taking(Some(Fault::new(Reason::Capturing, "The pool is full")))
}

#[test]
fn a_capture_is_recorded_before_anything_is_made_for_it_and_the_pods_follow_it() {
    let idle = with_run();
    let Step::Capture(StorageStep::Begin(name)) = step(&captures(&idle)) else { panic!() };
    let mut status = with_run();
    source_capture::begin(&mut status, name.clone(), at(0));
    assert_eq!(status.captures, [name]);
    let told = |captured: &Captured| {
        step(&Situation { facts: facts(|it| it.captured = captured.clone()), ..captures(&status) })
    };
    assert_eq!(told(&Captured::Missing), Step::Capture(StorageStep::Wait(None)));
    assert!(
        matches!(told(&taking()), Step::Capture(StorageStep::Wait(Some(fault))) if fault.message == "The pool is full")
    );
    assert_eq!(told(&Captured::Lazy), Step::Launch, "the storage waits for the pod");
    assert_eq!(told(&Captured::Taken(None)), Step::Capture(StorageStep::End));
    source_capture::end(&mut status, &Captured::Taken(None), at(3));
    assert_eq!(step(&captures(&status)), Step::Launch);
}

#[test]
fn the_application_is_let_go_as_soon_as_the_source_is_captured_and_only_once() {
    let hooks = both();
    let mut status = with_run();
    fn held<'a>(status: &'a SyncJobStatus, hooks: &'a Hooks) -> Situation<'a> {
        Situation { hooks: Some(hooks), now: at(9), ..captures(status) }
    }
    let before = Step::Hook(HookStep::begin(Point::Before));
    assert_eq!(step(&held(&status, &hooks)), before);
    run_status::hook_begun(&mut status, Point::Before, None, at(1));
    hook_state::end(&mut status, Point::Before, None, at(2));
    let Step::Capture(StorageStep::Begin(name)) = step(&held(&status, &hooks)) else { panic!() };
    source_capture::begin(&mut status, name, at(2));
    source_capture::end(&mut status, &Captured::Taken(None), at(4));
    let after = Step::Hook(HookStep::begin(Point::After));
    assert_eq!(step(&held(&status, &hooks)), after);
    run_status::hook_begun(&mut status, Point::After, None, at(4));
    hook_state::end(&mut status, Point::After, None, at(5));
    assert_eq!(step(&held(&status, &hooks)), Step::Launch);
    let over = Situation { pairs: pair(ended(0, 9), ended(0, 9)), ..held(&status, &hooks) };
    assert!(matches!(step(&over), Step::Finish(_)), "after has run");
}

#[test]
fn a_capture_that_takes_too_long_lets_the_application_go_and_ends_the_run() {
    let hooks = both();
    let status = begun(0);
    let late = Situation { facts: facts(|it| it.captured = taking()), now: at(60), ..captures(&status) };
    let report = finished(step(&late));
    assert_eq!(report.reason.as_deref(), Some("CaptureFailed"));
    assert!(report.message.contains(" 1m00s "), "{}", report.message);
    assert!(report.message.ends_with("The pool is full."), "{}", report.message);
    let mut held = begun(0);
    hook_state::open(&mut held);
    let late = Situation {
        facts: facts(|it| it.captured = taking()),
        now: at(60),
        hooks: Some(&hooks),
        ..captures(&held)
    };
    assert!(matches!(step(&late), Step::Hook(HookStep::Begin { point: Point::After, stopped: Some(_), .. })));
}

#[test]
fn what_the_cluster_cannot_capture_stalls_before_the_application_is_held() {
    let (status, hooks) = (with_run(), both());
    let impossible = Captured::Impossible(Fault::new(Reason::CaptureFailed, "m"));
    let asked =
        Situation { facts: facts(|it| it.captured = impossible), hooks: Some(&hooks), ..captures(&status) };
    assert!(matches!(step(&asked), Step::Block(Blocked::Stalled(fault)) if fault.reason == "CaptureFailed"));
    // It leaves the queue, and does not come back as long as nothing changes.
    let mut left = status.clone();
    readiness::leave_queue(&mut left);
    let next = step(&Situation { status: &left, ..asked });
    assert!(matches!(next, Step::Block(Blocked::Stalled(fault)) if fault.reason == "CaptureFailed"));
}

#[test]
fn a_retry_reads_the_same_instant_and_a_run_that_gives_its_turn_back_captures_anew() {
    let mut status = begun(0);
    source_capture::end(&mut status, &Captured::Taken(None), at(1));
    let failed = finished(step(&Situation { now: at(700), ..captures(&status) }));
    run_status::retry(&mut status, &Outcome::canceled(Fault::new("a", failed.message)), at(20), at(10));
    assert_eq!(step(&Situation { now: at(30), ..captures(&status) }), Step::Launch);
    assert_eq!(source_capture::left(&status).count(), 0, "it is in use");
    run_status::wait(&mut status, &Fault::new(Reason::WaitingForRun, "m"), at(40));
    assert_eq!(source_capture::left(&status).count(), 1, "it is to be removed");
    assert_eq!(status.active_run.unwrap().capture, None);
}

#[test]
fn a_name_that_somebody_else_wrote_into_the_status_is_not_read_from() {
    let mut status = with_run();
    let of_another = TryNames::new("web", "another", 1, 0).capture();
    for name in ["accounts".to_string(), "vf-web-1-capture".into(), of_another] {
        source_capture::begin(&mut status, name.clone(), at(0));
        source_capture::end(&mut status, &Captured::Taken(None), at(1));
        assert!(matches!(step(&captures(&status)), Step::Capture(StorageStep::Begin(own)) if own != name));
    }
}
