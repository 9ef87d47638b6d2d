//! Tests runs that wait for their turn.

use super::*;
use contract::Reason;

/// Returns the status of a job whose first run is queued and has no turn yet.
fn waiting() -> SyncJobStatus {
    let mut status = with_run();
    status.active_run.as_mut().unwrap().start_time = None;
    status
}

fn taken() -> Turn {
    Turn::Taken(Fault::new(Reason::WaitingForRun, "m"))
}

#[test]
fn a_run_waits_for_its_turn_as_long_as_it_takes_and_is_recorded_as_started_before_anything_is_made() {
    let status = waiting();
    let taken = Situation { turn: taken(), now: at(100_000), ..situation(&status) };
    assert_eq!(next(&taken), Step::Wait(Fault::new(Reason::WaitingForRun, "m")).again(Some(at(100_010))));
    assert_eq!(step(&Situation { now: at(100_000), ..situation(&status) }), Step::Admit);
    let unknown = Situation { turn: Turn::Unknown, ..situation(&status) };
    assert_eq!(step(&unknown), Step::Linger, "nobody looked, so nothing is made");
}

#[test]
fn a_run_that_was_started_looks_again_before_anything_is_made() {
    let status = with_run();
    let taken = Situation { turn: taken(), ..situation(&status) };
    assert_eq!(step(&taken), Step::Wait(Fault::new(Reason::WaitingForRun, "m")));
    let half = Situation {
        turn: Turn::Unknown,
        pairs: pair(EndState::Running, EndState::Absent),
        ..situation(&status)
    };
    assert_eq!(step(&half), Step::Launch, "it has been let through before");
}

#[test]
fn a_run_that_is_launched_keeps_its_start_until_its_pods_are_gone() {
    let mut status = with_run();
    status.active_run.as_mut().unwrap().launched = true;
    let taken = Situation { turn: taken(), ..situation(&status) };
    assert_eq!(step(&taken), Step::Launch, "another operator may be making them");
    let missing = Fault::new(Reason::ClaimNotFound, "m");
    let without = Situation { claims: Err(Blocked::Stalled(missing.clone())), ..situation(&status) };
    assert_eq!(
        step(&without),
        Step::Start(Some(missing)),
        "nothing is made on a claim that is not as it was"
    );
    assert!(Step::Withdraw.ends_launch() && !Step::Launch.ends_launch() && !Step::Start(None).ends_launch());
}

#[test]
fn a_waiting_run_leaves_its_place_while_it_cannot_use_it_and_takes_one_again() {
    let mut status = waiting();
    let blocked = Blocked::Stalled(Fault::new(Reason::ClaimNotFound, "m"));
    assert_eq!(
        step(&Situation { claims: Err(blocked.clone()), ..situation(&status) }),
        Step::Block(blocked.clone())
    );
    crate::status::readiness::blocked(&mut status, &blocked, GENERATION, at(1));
    assert_eq!(status.active_run.as_ref().unwrap().queue_time, None);
    assert_eq!(step(&situation(&status)), Step::Queue);
    run_status::queue(&mut status, 0, &[], at(2));
    assert_eq!(step(&situation(&status)), Step::Admit);
}

#[test]
fn a_waiting_run_has_no_pods_and_takes_the_newest_spec() {
    let status = waiting();
    let ran = Situation { pairs: pair(EndState::Running, EndState::Running), ..situation(&status) };
    assert_eq!(step(&ran), Step::Withdraw);
    let Step::Begin(run) = step(&Situation { job: job(GENERATION + 1, "h"), ..situation(&status) }) else {
        panic!()
    };
    assert_eq!((run.generation, run.is_started()), (GENERATION + 1, false));
    assert_eq!(run.source, Some(folder("from")));
}

#[test]
fn a_volume_in_use_is_waited_for_without_a_place_or_a_retry_for_as_long_as_a_run_may_take() {
    for reason in ["SourceBusy", "DestinationBusy"] {
        let mut status = running_since(1);
        let run = status.active_run.as_mut().unwrap();
        (run.retries, run.postponed) = (2, 3);
        let report = Report { reason: Some(reason.into()), ..Report::default() };
        let busy = Ending { exit: Some(1), at: Some(at(5)), report: Some(report), ..Ending::default() };
        let busy = EndState::Ended(Box::new(busy));
        let Decision { step: found, again } =
            next(&Situation { pairs: pair(busy.clone(), busy.clone()), now: at(599), ..situation(&status) });
        let Step::Postpone(outcome, retry_at) = found else { panic!("{found:?}") };
        assert_eq!((retry_at, again), (at(599 + 80), Some(at(599 + 80))));
        run_status::postpone(&mut status, &outcome, "Who.", retry_at, at(599));
        let run = status.active_run.as_ref().unwrap();
        assert_eq!((run.retries, run.postponed, run.past_tries()), (2, 4, 6));
        assert_eq!(
            (run.is_started(), &run.queue_time),
            (false, &None),
            "others have the place and the claims"
        );
        let waits = Situation { now: at(678), ..situation(&status) };
        assert_eq!(next(&waits), Step::Await.again(Some(at(679))));
        assert_eq!(step(&Situation { now: at(679), ..situation(&status) }), Step::Queue);
        run_status::queue(&mut status, 0, &[], at(679));
        run_status::admit(&mut status, at(680));
        let again = |now| Situation { pairs: pair(busy.clone(), busy.clone()), now, ..situation(&status) };
        let Step::Postpone(_, last) = step(&again(at(1190))) else { panic!() };
        assert_eq!(last, at(599 + 600), "a last look when the time is over");
        let report = finished(step(&again(at(1199))));
        assert_eq!(report.reason.as_deref(), Some(reason));
        assert!(report.message.contains("has waited for 10m00s (spec.limits.timeout)"), "{}", report.message);
    }
}

/// Returns the situation of a run whose pods do not start, and for which others wait.
fn stuck(status: &SyncJobStatus, second: i64) -> Situation<'_> {
    let pending = Fault::new(Reason::PodPending, "No node fits.");
    Situation {
        pairs: pair(EndState::Starting(Some(pending)), EndState::Absent),
        demand: Ok(Demand { timeout: Duration::from_secs(3600), ..demand() }),
        keeps_others_waiting: true,
        now: at(second),
        ..situation(status)
    }
}

#[test]
fn a_run_whose_pods_do_not_start_gives_its_place_to_others_and_ends_after_its_timeout() {
    let mut status = with_run();
    assert!(matches!(step(&stuck(&status, 599)), Step::Start(Some(_))));
    let alone = Situation { keeps_others_waiting: false, ..stuck(&status, 600) };
    assert!(matches!(step(&alone), Step::Start(Some(_))), "nobody has use for its place");
    let works = Situation { pairs: pair(EndState::Running, EndState::Running), ..stuck(&status, 600) };
    assert_eq!(step(&works), Step::Run);
    let Step::Postpone(outcome, again) = step(&stuck(&status, 600)) else { panic!("it keeps its place") };
    run_status::postpone(&mut status, &outcome, "", again, at(600));
    let run = status.active_run.as_ref().unwrap();
    assert_eq!(
        (run.is_started(), run.queue_time.is_some(), run.retries, run.postponed),
        (false, false, 0, 1)
    );
    let ready = crate::api::conditions::find(&status.conditions, "Ready").unwrap();
    assert_eq!(ready.reason, "PodPending");
    assert!(
        ready
            .message
            .starts_with("No node fits. Others wait for their turn, so run web-1 gave its place up.")
    );
    assert_eq!(step(&Situation { now: again, turn: Turn::Free, ..situation(&status) }), Step::Queue);

    run_status::queue(&mut status, 0, &[], at(1000));
    run_status::admit(&mut status, at(2990));
    assert!(matches!(step(&stuck(&status, 3599)), Step::Postpone(..)));
    let over = finished(step(&stuck(&status, 3600)));
    assert_eq!(over.reason.as_deref(), Some("TimedOut"), "{}", over.message);
    assert!(over.message.contains("No node fits."), "{}", over.message);
}
