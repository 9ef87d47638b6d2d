//! Tests runs whose two ends report success before their pods have ended.

use super::*;

fn reported() -> EndState {
    EndState::Reported(Box::new(Report { result: RunResult::Succeeded, ..Report::default() }))
}

/// Returns the status of a job whose first run has been reported as succeeded.
fn after_report() -> SyncJobStatus {
    let mut status = running_since(1);
    status.last_success_time = Some(Time(at(-100)));
    let report = Report { result: RunResult::Succeeded, ..Report::default() };
    let outcome = Outcome { report, may_retry: false, exit: ExitCode::Done };
    status::report(&mut status, &outcome, None, at(5));
    status
}

#[test]
fn a_success_that_both_ends_report_is_told_before_their_pods_have_ended() {
    let status = running_since(1);
    let told = |source: EndState, sink: EndState| {
        step(&Situation { pairs: pair(source, sink), now: at(6), ..situation(&status) })
    };
    for (source, sink) in [(reported(), reported()), (ended(0, 5), reported()), (reported(), ended(0, 5))] {
        assert!(matches!(told(source, sink), Step::Report(_)));
    }
    assert_eq!(told(reported(), EndState::Running), Step::Run);
    assert_eq!(told(EndState::Starting(None), reported()), Step::Start(None));
    assert_eq!(told(ended(5, 5), reported()), Step::Linger);
    let late = Situation { pairs: pair(reported(), reported()), now: at(900), ..situation(&status) };
    assert!(matches!(step(&late), Step::Report(_)), "it succeeded before anybody looked");
}

#[test]
fn of_many_runs_each_has_a_moment_to_end_by_the_kubelets_word_before_it_is_told() {
    let status = running_since(1);
    let told = |runs: usize, completed: i64, now: i64| {
        let report = Report {
            result: RunResult::Succeeded,
            completion_time: at(completed).to_string(),
            ..Report::default()
        };
        let end = EndState::Reported(Box::new(report));
        let pairs = pair(end.clone(), end);
        let crowd = Crowd { started: runs, ..Crowd::default() };
        next(&Situation { pairs, crowd, now: at(now), ..situation(&status) })
    };
    assert_eq!(told(50, 5, 6), (Step::Linger, Some(at(10))));
    for (runs, completed, now) in [(1, 5, 6), (50, 5, 10), (50, 7, 6)] {
        assert!(matches!(told(runs, completed, now).0, Step::Report(_)), "{runs} {completed} {now}");
    }
}

/// Returns the situation of one of many runs, both ends of which run since `at(5)`, a second ago.
fn one_of_many(status: &SyncJobStatus) -> Situation<'_> {
    let pairs = pair(EndState::Running, EndState::Running);
    let crowd = Crowd { started: 50, ..Crowd::default() };
    Situation { pairs, crowd, ran_since: Some(at(5)), now: at(6), ..situation(status) }
}

#[test]
fn of_many_runs_each_runs_for_a_moment_before_that_is_told() {
    let (status, told, node) = (with_run(), running_since(5), ["n2".to_string()]);
    let young = || one_of_many(&status);
    assert_eq!(next(&young()), (Step::Linger, Some(at(10))));
    for since in [None, Some(at(1)), Some(at(7))] {
        assert_eq!(step(&Situation { ran_since: since, ..young() }), Step::Run, "{since:?}");
    }
    assert_eq!(step(&Situation { crowd: Crowd::default(), ..young() }), Step::Run, "it is alone");
    assert_eq!(step(&Situation { is_told_by_agents: false, ..young() }), Step::Run, "it was held up");
    assert_eq!(step(&Situation { nodes: &node, ..young() }), Step::Run, "it counts on another node");
    assert_eq!(step(&one_of_many(&told)), Step::Run, "that is told");
}

#[test]
fn of_shards_all_have_to_report_success_before_it_is_told() {
    let status = running_since(1);
    let told = |second: Vec<Pair>| {
        let pairs = [pair(reported(), reported()), second].concat();
        step(&Situation { pairs, now: at(6), ..situation(&status) })
    };
    assert!(matches!(told(pair(ended(0, 5), ended(0, 5))), Step::Report(_)));
    assert_eq!(told(pair(EndState::Running, reported())), Step::Run);
    assert_eq!(
        told(pair(ended(3, 5), ended(3, 5))),
        Step::Run,
        "the last pair is over by the kubelet's word"
    );
}

#[test]
fn a_reported_run_is_over_once_its_pods_have_ended_and_not_before() {
    let status = after_report();
    assert!(status.last_run.is_some() && status.active_run.is_some());
    let with = |source: EndState, sink: EndState| {
        let demand = Ok(Demand { trigger: Some("next".into()), ..demand() });
        let pairs = pair(source, sink);
        next(&Situation { demand, pairs, now: at(6), ..situation(&status) })
    };
    for open in [EndState::Running, EndState::Starting(None), EndState::Stopping, reported()] {
        assert_eq!(with(ended(0, 5), open), (Step::Linger, Some(at(600))));
    }
    for gone in [ended(0, 5), EndState::Absent] {
        assert_eq!(with(ended(0, 5), gone).0, Step::Confirm);
    }
    let deleted = Situation { record: Record::Deleted, ..situation(&status) };
    assert_eq!(step(&deleted), Step::Confirm, "whoever deletes the record of a success cancels nothing");
    let endless = Situation { pairs: pair(reported(), reported()), now: at(601), ..situation(&status) };
    assert_eq!(finished(step(&endless)).reason.as_deref(), Some("TimedOut"));
}

#[test]
fn a_reported_run_whose_pod_fails_is_tried_again_as_if_nothing_had_been_reported() {
    let mut status = after_report();
    assert_eq!(status.last_success_time, Some(Time(at(5))));
    let pairs = pair(ended(0, 5), ended(137, 5));
    let Step::Retry(outcome, when) = step(&Situation { pairs, now: at(6), ..situation(&status) }) else {
        panic!()
    };
    status::retry(&mut status, &outcome, when, at(6));
    assert_eq!((&status.last_run, status.history.len()), (&None, 0));
    assert_eq!(status.last_success_time, Some(Time(at(-100))));
    assert!(status.active_run.as_ref().is_some_and(|run| run.reported.is_none() && run.retries == 1));

    let mut refused = after_report();
    let pairs = pair(ended(4, 5), ended(0, 5));
    let Step::Finish(outcome) = step(&Situation { pairs, now: at(6), ..situation(&refused) }) else {
        panic!()
    };
    status::finish(&mut refused, &outcome, None, at(6));
    assert_eq!((refused.last_run.unwrap().result, refused.history.len()), (RunResult::Failed, 1));
    assert_eq!(refused.last_success_time, Some(Time(at(-100))));
}
