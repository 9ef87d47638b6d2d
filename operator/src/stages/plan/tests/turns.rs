//! Tests runs that wait for their turn.

use super::*;

/// Returns the status of a job whose first run is queued and has no turn yet.
fn waiting() -> SyncJobStatus {
    let mut status = with_run();
    status.active_run.as_mut().unwrap().start_time = None;
    status
}

fn taken() -> Turn {
    Turn::Taken(Fault::new("WaitingForRun", "m"))
}

#[test]
fn a_run_waits_for_its_turn_as_long_as_it_takes_and_is_recorded_as_started_before_anything_is_made() {
    let status = waiting();
    let taken = Situation { turn: taken(), now: at(100_000), ..situation(&status) };
    assert_eq!(next(&taken), (Step::Wait(Fault::new("WaitingForRun", "m")), Some(at(100_010))));
    assert_eq!(step(&Situation { now: at(100_000), ..situation(&status) }), Step::Admit);
    let unknown = Situation { turn: Turn::Unknown, ..situation(&status) };
    assert_eq!(step(&unknown), Step::Linger, "nobody looked, so nothing is made");
}

#[test]
fn a_run_that_was_started_looks_again_before_anything_is_made() {
    let status = with_run();
    let taken = Situation { turn: taken(), ..situation(&status) };
    assert_eq!(step(&taken), Step::Wait(Fault::new("WaitingForRun", "m")));
    let half = Situation {
        turn: Turn::Unknown,
        pairs: pair(EndState::Running, EndState::Absent),
        ..situation(&status)
    };
    assert_eq!(step(&half), Step::Launch, "it has been let through before");
}

#[test]
fn a_waiting_run_leaves_its_place_while_it_cannot_use_it_and_takes_one_again() {
    let mut status = waiting();
    let blocked = Blocked::Stalled(Fault::new("ClaimNotFound", "m"));
    assert_eq!(
        step(&Situation { claims: Err(blocked.clone()), ..situation(&status) }),
        Step::Block(blocked.clone())
    );
    let suspended = Ok(Demand { suspend: true, ..demand() });
    assert_eq!(step(&Situation { demand: suspended, ..situation(&status) }), Step::Suspend);
    status::blocked(&mut status, &blocked, GENERATION, at(1));
    assert_eq!(status.active_run.as_ref().unwrap().queue_time, None);
    assert_eq!(step(&situation(&status)), Step::Queue);
    status::queue(&mut status, 0, &[], at(2));
    assert_eq!(step(&situation(&status)), Step::Admit);
}

#[test]
fn a_waiting_run_has_no_pods_and_takes_the_newest_spec() {
    let status = waiting();
    let ran = Situation { pairs: pair(EndState::Running, EndState::Running), ..situation(&status) };
    assert_eq!(step(&ran), Step::Withdraw);
    let Step::Begin(run) = step(&Situation { generation: GENERATION + 1, ..situation(&status) }) else {
        panic!()
    };
    assert_eq!((run.generation, run.is_started()), (GENERATION + 1, false));
    assert_eq!(run.source, Some(folder("from")));
}

#[test]
fn a_volume_in_use_is_tried_again_without_end_and_costs_no_retry() {
    for reason in ["SourceBusy", "DestinationBusy"] {
        let mut status = running_since(1);
        let run = status.active_run.as_mut().unwrap();
        (run.retries, run.postponed) = (2, 3);
        let report = Report { reason: Some(reason.into()), ..Report::default() };
        let busy = Ending { exit: Some(1), at: Some(at(5)), report: Some(report), ..Ending::default() };
        let busy = EndState::Ended(Box::new(busy));
        let (step, again) =
            next(&Situation { pairs: pair(busy.clone(), busy), now: at(599), ..situation(&status) });
        let Step::Postpone(outcome, retry_at) = step else { panic!("{step:?}") };
        assert_eq!((retry_at, again), (at(599 + 80), Some(at(599 + 80))));
        status::postpone(&mut status, &outcome, "Who.", retry_at, at(599));
        let run = status.active_run.as_ref().unwrap();
        assert_eq!((run.retries, run.postponed, run.past_tries()), (2, 4, 6));
        let later = Situation { now: at(679), ..situation(&status) };
        assert_eq!(next(&later).0, Step::Launch, "the timeout of 600 s has not gone on");
    }
}
