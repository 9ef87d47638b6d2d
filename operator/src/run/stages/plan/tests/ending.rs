//! Runs that end, and tries that are followed by another.

use super::*;

#[test]
fn two_ends_that_succeeded_finish_the_run() {
    let status = running_since(1);
    let report = finished(step(&Situation { pairs: pair(ended(0, 5), ended(0, 5)), ..situation(&status) }));
    assert_eq!(report.result, RunResult::Succeeded);
}

#[test]
fn the_other_end_has_a_while_to_end_too_and_is_then_given_up() {
    let status = running_since(1);
    let lingering =
        |now| Situation { pairs: pair(EndState::Running, ended(0, 5)), now, ..situation(&status) };
    assert_eq!(next(&lingering(at(6))), Step::Linger.again(Some(at(35))));
    assert_eq!(finished(step(&lingering(at(35)))).result, RunResult::Succeeded);
}

#[test]
fn a_try_that_failed_is_followed_by_another_until_retries_or_time_are_used_up() {
    let mut status = running_since(1);
    let Decision { step: first, again } = next(&failed(&status));
    assert!(matches!(first, Step::Retry(_, retry_at) if retry_at == at(16)), "{first:?}");
    assert_eq!(again, Some(at(16)));
    status.active_run.as_mut().unwrap().retries = 2;
    assert_eq!(finished(step(&failed(&status))).result, RunResult::Failed);
    status.active_run.as_mut().unwrap().retries = 0;
    let late = Situation { now: at(595), ..failed(&status) };
    assert_eq!(finished(step(&late)).result, RunResult::Failed);
}

#[test]
fn a_refusal_ends_the_run_at_once() {
    let status = running_since(1);
    for exit in [4, 6] {
        let step = step(&Situation { pairs: pair(ended(exit, 5), ended(exit, 5)), ..situation(&status) });
        assert_eq!(finished(step).result, RunResult::Failed);
    }
}

#[test]
fn the_next_try_waits_for_its_time() {
    let mut status = with_run();
    let run = status.active_run.as_mut().unwrap();
    (run.retries, run.try_time) = (1, Some(MicroTime(at(16))));
    assert_eq!(next(&Situation { now: at(6), ..situation(&status) }), Step::Await.again(Some(at(16))));
    assert_eq!(step(&Situation { now: at(16), ..situation(&status) }), Step::Launch);
    let set_back = Situation { now: at(-1000), ..situation(&status) };
    assert_eq!(step(&set_back), Step::Launch, "no pause is so long");
}

#[test]
fn a_run_ends_at_its_timeout_and_says_what_held_it_up() {
    let status = with_run();
    let stuck = EndState::Starting(Some(Fault::new(Reason::PodPending, "No node fits.")));
    let waiting =
        |now| Situation { pairs: pair(stuck.clone(), EndState::Running), now, ..situation(&status) };
    assert_eq!(next(&waiting(at(599))).again, Some(at(600)));
    let report = finished(step(&waiting(at(600))));
    assert_eq!(report.reason.as_deref(), Some("TimedOut"));
    assert!(
        report.message.contains("within 10m00s") && report.message.contains("No node fits."),
        "{}",
        report.message
    );
}

#[test]
fn a_run_that_was_never_launched_says_at_its_timeout_what_the_status_said() {
    let mut status = with_run();
    let report_of = |status: &SyncJobStatus| finished(step(&Situation { now: at(600), ..situation(status) }));
    run_status::preparing(&mut status, None, at(1));
    assert!(report_of(&status).message.contains("(spec.limits.timeout). The next run"), "nothing is known");
    run_status::preparing(&mut status, Some(&Fault::new(Reason::ChildRefused, "It is refused.")), at(2));
    let message = report_of(&status).message;
    assert!(message.contains("(spec.limits.timeout). It is refused. The next run"), "{message}");
}

#[test]
fn ends_that_ran_and_never_met_are_said_to_at_the_timeout() {
    let at_timeout = |status: &SyncJobStatus, progress: Option<&RunProgress>| {
        let pairs = pair(EndState::Running, EndState::Running);
        finished(step(&Situation { pairs, progress, now: at(600), ..situation(status) })).message
    };
    let mut status = running_since(1);
    for said in [None, Some(&RunProgress::default())] {
        assert!(
            at_timeout(&status, said).contains("port 8900 (UDP, or TCP)"),
            "{}",
            at_timeout(&status, said)
        );
    }
    let progress = Progress { phase: Phase::Scan, ..Progress::default() };
    let progress = RunProgress { progress, ..RunProgress::default() };
    assert!(!at_timeout(&status, Some(&progress)).contains("8900"));
    status.active_run.as_mut().unwrap().local = true;
    assert!(!at_timeout(&status, None).contains("8900"));
}

#[test]
fn ends_that_run_and_do_not_meet_are_said_to_after_a_minute_until_they_do() {
    let status = running_since(1);
    let met = Progress { phase: Phase::Scan, ..Progress::default() };
    let met = RunProgress { progress: met, ..RunProgress::default() };
    let running = |second, progress| {
        let pairs = pair(EndState::Running, EndState::Running);
        next(&Situation { pairs, progress, now: at(second), ..situation(&status) })
    };
    assert_eq!(running(2, None), Step::Run.again(Some(at(61))));
    let connecting = RunProgress::default();
    let late = running(61, Some(&connecting));
    let Step::Start(Some(fault)) = &late.step else { panic!("{late:?}") };
    assert_eq!((fault.reason.clone(), late.again), (Reason::PeerNotMet, Some(at(71))));
    assert!(fault.message.contains("port 8900 (UDP, or TCP)"), "{}", fault.message);
    assert_eq!(running(71, Some(&met)).step, Step::Run);
    let measures =
        ActiveRun { benchmark: Some(api::Benchmark::default()), ..status.active_run.clone().unwrap() };
    let measures = SyncJobStatus { active_run: Some(measures), ..SyncJobStatus::default() };
    let pairs = pair(EndState::Running, EndState::Running);
    let making = next(&Situation { pairs, now: at(90), ..situation(&measures) });
    assert_eq!(making.step, Step::Run, "the source of a benchmark makes its tree");
    assert_ne!(running(2, Some(&met)).again, Some(at(61)));
}

#[test]
fn a_run_that_a_person_cancels_or_whose_record_is_deleted_is_canceled_in_any_stage() {
    let waiting = ActiveRun { start_time: None, ..with_run().active_run.unwrap() };
    let waiting = SyncJobStatus { active_run: Some(waiting), ..SyncJobStatus::default() };
    for (status, state) in
        [(waiting, EndState::Absent), (with_run(), EndState::Absent), (running_since(1), EndState::Running)]
    {
        let run = || Situation { pairs: pair(state.clone(), state.clone()), ..situation(&status) };
        let deleted = Situation { facts: facts(|it| it.record = Record::Deleted), ..run() };
        let canceled = Situation { is_canceled: true, ..run() };
        for (stopped, reason) in [(deleted, "RunDeleted"), (canceled, "Canceled")] {
            let report = finished(step(&stopped));
            assert_eq!((report.result, report.reason.as_deref()), (RunResult::Canceled, Some(reason)));
        }
    }
}

#[test]
fn a_run_whose_grant_is_withdrawn_ends_for_that_unless_it_is_done() {
    let status = running_since(1);
    let withdrawn = facts(|it| it.withdrawn = Some(Fault::new(Reason::NotGranted, "it is withdrawn")));
    for (end, reason) in [
        (EndState::Running, Some("NotGranted")),
        // The garbage collector was faster than the operator.
        (EndState::Absent, Some("NotGranted")),
        (ended(5, 5), Some("NotGranted")),
        (ended(0, 5), None),
        (ended(4, 5), Some("GuardRefused")),
    ] {
        let run = Situation { pairs: pair(end.clone(), end), facts: withdrawn, ..situation(&status) };
        assert_eq!(finished(step(&run)).reason.as_deref(), reason);
    }
}

#[test]
fn a_run_that_ended_before_its_timeout_was_looked_at_counts() {
    let status = running_since(1);
    let late = Situation { pairs: pair(ended(0, 500), ended(0, 500)), now: at(9000), ..situation(&status) };
    assert_eq!(finished(step(&late)).result, RunResult::Succeeded);
}

#[test]
fn a_job_deleted_under_a_running_pod_fails_the_try() {
    let status = running_since(1);
    let step =
        step(&Situation { pairs: pair(ended(5, 5), EndState::Absent), now: at(6), ..situation(&status) });
    let Step::Retry(outcome, _) = step else { panic!("{step:?}") };
    assert_eq!(outcome.report.reason.as_deref(), Some("JobDeleted"));
}

#[test]
fn an_end_that_is_being_removed_is_waited_for() {
    let status = with_run();
    for other in [EndState::Running, EndState::Absent, EndState::Starting(None)] {
        let waiting = Situation { pairs: pair(EndState::Stopping, other), ..situation(&status) };
        assert_eq!(next(&waiting), Step::Linger.again(Some(at(600))));
    }
}
