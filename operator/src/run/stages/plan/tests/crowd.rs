//! Tests runs while many others are under way.

use super::*;

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
fn a_run_is_over_when_its_pods_have_ended_and_not_when_they_say_so() {
    let status = running_since(1);
    let told = |source: EndState, sink: EndState| {
        step(&Situation { pairs: pair(source, sink), now: at(6), ..situation(&status) })
    };
    assert_eq!(told(ended(0, 5), EndState::Running), Step::Linger);
    assert_eq!(finished(told(ended(0, 5), ended(0, 5))).result, RunResult::Succeeded);
}
