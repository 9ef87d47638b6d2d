mod captures;
mod claims;
mod ending;
mod hooks;
mod images;
mod replace;
mod restores;
mod scheduled;
mod turns;

use std::time::Duration;

use contract::{Phase, Progress, Reason, Report, RunResult, Side};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

use super::{next, next_run};
use crate::{
    api::{self, ActiveRun, Run, RunCause, RunFolder, RunProgress, SyncJobStatus, SyncRun},
    fault::Fault,
    pods::pod_state::EndState,
    run::{
        due_times::Schedule,
        outcome::{Ending, Outcome},
        record::Record,
        shard_pairs::Pair,
        stages::{
            situation::{Demand, Facts, Situation, Subject, Turn},
            step::{ClaimStep, Decision, HookStep, Step, StorageStep},
        },
    },
    snapshots::source_capture::Captured,
    status::run_status,
    volumes::claims::Blocked,
};

const GENERATION: i64 = 5;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn demand() -> Demand {
    Demand {
        suspend: false,
        replaces: false,
        priority: 0,
        schedule: None,
        trigger: None,
        capture_timeout: None,
        image_timeout: None,
        timeout: Duration::from_secs(600),
        retries: 2,
        shards: 1,
        is_local: false,
        source: folder("from"),
        destination: folder("to"),
    }
}

fn folder(claim: &str) -> RunFolder {
    RunFolder { claim_name: claim.into(), path: "/".into(), ..RunFolder::default() }
}

/// Returns what was read for a job with that change.
fn facts(change: impl FnOnce(&mut Facts)) -> &'static Facts {
    let mut facts = Facts { record: Record::Kept, ..Facts::default() };
    change(&mut facts);
    Box::leak(Box::new(facts))
}

/// Returns that a person asks for a run.
fn asks(run: &SyncRun) -> &'static Facts {
    facts(|it| it.asked = Some(run.clone()))
}

/// Returns the job with a spec of that generation and hash.
fn job(generation: i64, spec_hash: &str) -> &'static Subject {
    let (name, uid, spec_hash) = ("web".into(), "u".into(), spec_hash.into());
    Box::leak(Box::new(Subject { name, uid, generation, spec_hash, ..Subject::default() }))
}

fn situation(status: &SyncJobStatus) -> Situation<'_> {
    Situation {
        job: job(GENERATION, "h"),
        status,
        facts: facts(|_| ()),
        demand: Ok(demand()),
        claims: Ok(()),
        not_granted: None,
        claim_step: None,
        lost: None,
        is_new_destination: false,
        is_accepted: false,
        turn: Turn::Free,
        keeps_others_waiting: false,
        is_canceled: false,
        refused: None,
        hooks: None,
        progress: None,
        pairs: pair(EndState::Absent, EndState::Absent),
        is_free: false,
        leftovers: None,
        outdated: false,
        overdue: None,
        now: at(0),
    }
}

fn pair(source: EndState, sink: EndState) -> Vec<Pair> {
    vec![Pair { source, sink }]
}

/// Returns the status of a job whose first run started at `at(0)`.
fn with_run() -> SyncJobStatus {
    let run = run_status::new_run("web", 1, GENERATION, None, at(0));
    SyncJobStatus { active_run: Some(run), ..SyncJobStatus::default() }
}

fn running_since(second: i64) -> SyncJobStatus {
    let mut status = with_run();
    status.active_run.as_mut().unwrap().pods_ready_time = Some(MicroTime(at(second)));
    status
}

fn after_run(generation: i64) -> SyncJobStatus {
    let last_run = Some(Run { number: 7, generation, ..Run::default() });
    SyncJobStatus { last_run, last_trigger: Some("a".into()), ..SyncJobStatus::default() }
}

fn ended(exit: i32, second: i64) -> EndState {
    EndState::Ended(Box::new(Ending { exit: Some(exit), at: Some(at(second)), ..Ending::default() }))
}

fn step(situation: &Situation<'_>) -> Step {
    next(situation).step
}

/// Returns the situation of a try whose two ends failed at `at(5)`.
fn failed(status: &SyncJobStatus) -> Situation<'_> {
    Situation { pairs: pair(ended(5, 5), ended(1, 5)), now: at(6), ..situation(status) }
}

fn finished(step: Step) -> Report {
    match step {
        Step::Finish(outcome) => outcome.report,
        other => panic!("not finished: {other:?}"),
    }
}

#[test]
fn a_new_job_begins_its_first_run() {
    let status = SyncJobStatus::default();
    let Step::Begin(run) = step(&situation(&status)) else { panic!() };
    assert_eq!((run.id.as_str(), run.number, run.generation), ("web-1", 1, GENERATION));
}

#[test]
fn a_run_counts_for_the_nodes_of_its_volumes_from_its_place_on() {
    let (idle, nodes) = (SyncJobStatus::default(), ["n1".to_string()]);
    let Step::Begin(run) =
        step(&Situation { facts: facts(|it| it.nodes = nodes.to_vec()), ..situation(&idle) })
    else {
        panic!()
    };
    assert_eq!(run.nodes, nodes);
    let mut status = SyncJobStatus { active_run: Some(*run), ..SyncJobStatus::default() };
    run_status::stand_on(&mut status, &["n1".into(), "n2".into()]);
    assert_eq!(status.active_run.as_ref().unwrap().nodes, ["n1", "n2"], "and for those of its pods");
    run_status::queue(&mut status, 0, &["n3".into()], at(2));
    assert_eq!(status.active_run.unwrap().nodes, ["n3"]);
}

#[test]
fn a_run_has_as_many_shards_as_the_spec_that_it_is_of() {
    let shared = |shards| Ok(Demand { shards, ..demand() });
    let idle = SyncJobStatus::default();
    let Step::Begin(run) = step(&Situation { demand: shared(3), ..situation(&idle) }) else { panic!() };
    assert_eq!(run.shards, 3);
    let run = ActiveRun { start_time: Some(MicroTime(at(0))), ..*run };
    let status = SyncJobStatus { active_run: Some(run), ..SyncJobStatus::default() };
    let changed = Situation { demand: shared(5), job: job(GENERATION + 1, "h"), ..situation(&status) };
    let Step::Begin(run) = step(&changed) else { panic!() };
    assert_eq!((run.number, run.shards), (1, 5));
}

#[test]
fn one_shard_that_is_done_leaves_the_run_running_and_one_that_fails_has_all_of_it_tried_again() {
    let status = running_since(1);
    let with = |last: EndState| {
        let mut pairs = pair(EndState::Running, EndState::Running);
        pairs.extend(pair(last.clone(), last));
        Situation { pairs, now: at(36), ..situation(&status) }
    };
    assert_eq!(step(&with(ended(0, 5))), Step::Run);
    let overdue = Some(at(40));
    let going = next(&Situation { overdue, ..with(EndState::Running) });
    assert_eq!(going.again, overdue, "nothing else tells of a pod whose node is lost");
    let Step::Retry(outcome, _) = step(&with(ended(1, 5))) else { panic!() };
    assert!(outcome.report.message.starts_with("Shard 1 of 2: The sink ended"), "{}", outcome.report.message);
}

#[test]
fn each_generation_and_each_trigger_gets_one_run() {
    let mut triggered = demand();
    triggered.trigger = Some("b".into());
    let mut answered = demand();
    answered.trigger = Some("a".into());
    let cases = [
        (GENERATION, demand(), false),
        (GENERATION - 1, demand(), true),
        (GENERATION, triggered, true),
        (GENERATION, answered, false),
    ];
    for (generation, demand, begins) in cases {
        let status = after_run(generation);
        let step = step(&Situation { demand: Ok(demand), ..situation(&status) });
        match step {
            Step::Begin(run) => assert!(begins && run.number == 8),
            other => assert!(!begins && other == Step::Rest, "{other:?}"),
        }
    }
}

#[test]
fn a_suspended_job_begins_nothing_and_lets_a_run_end() {
    let suspended = Ok(Demand { suspend: true, ..demand() });
    let idle = SyncJobStatus::default();
    assert_eq!(step(&Situation { demand: suspended.clone(), ..situation(&idle) }), Step::Suspend);
    let active = with_run();
    assert_eq!(step(&Situation { demand: suspended, ..situation(&active) }), Step::Launch);
}

#[test]
fn a_spec_that_cannot_be_run_is_refused_but_does_not_disturb_a_run() {
    let fault = Fault::new(Reason::InvalidSpec, "m");
    let idle = SyncJobStatus::default();
    assert_eq!(
        step(&Situation { demand: Err(fault.clone()), ..situation(&idle) }),
        Step::Block(Blocked::Stalled(fault.clone()))
    );
    let active = running_since(1);
    let running = Situation {
        demand: Err(fault),
        pairs: pair(EndState::Running, EndState::Running),
        ..situation(&active)
    };
    assert_eq!(step(&running), Step::Run);
}

#[test]
fn a_recorded_run_is_launched_and_launched_again_after_a_kill_between_its_jobs() {
    let status = with_run();
    assert_eq!(step(&situation(&status)), Step::Launch);
    for state in [EndState::Starting(None), EndState::Running] {
        assert_eq!(
            step(&Situation { pairs: pair(state.clone(), EndState::Absent), ..situation(&status) }),
            Step::Launch
        );
        assert_eq!(
            step(&Situation { pairs: pair(EndState::Absent, state), ..situation(&status) }),
            Step::Launch
        );
    }
}

#[test]
fn nothing_is_launched_beside_the_pods_of_an_earlier_try() {
    let status = with_run();
    let with = |now| Situation { leftovers: Some("They go.".into()), now, ..situation(&status) };
    assert_eq!(step(&with(at(1))), Step::Start(Some(Fault::new(Reason::Preparing, "They go."))));
    assert!(finished(step(&with(at(600)))).message.contains("(spec.limits.timeout). They go. The next run"));
}

#[test]
fn a_run_that_is_not_launched_yet_takes_the_newest_spec_and_keeps_its_name() {
    let status = with_run();
    let Step::Begin(run) = step(&Situation { job: job(GENERATION + 1, "h"), ..situation(&status) }) else {
        panic!()
    };
    assert_eq!((run.id.as_str(), run.number, run.generation), ("web-1", 1, GENERATION + 1));
}

#[test]
fn a_trigger_that_came_with_the_correction_is_answered_by_the_corrected_run() {
    let mut status = with_run();
    let triggered = Ok(Demand { trigger: Some("b".into()), ..demand() });
    let corrected =
        Situation { job: job(GENERATION + 1, "h"), demand: triggered.clone(), ..situation(&status) };
    let Step::Begin(run) = step(&corrected) else { panic!() };
    assert_eq!(run.trigger.as_deref(), Some("b"));

    run_status::begin(&mut status, *run, at(1));
    run_status::finish(&mut status, &Outcome::stopped(Fault::new("m", "m")), None, at(2));
    let over = Situation { job: job(GENERATION + 1, "h"), demand: triggered, ..situation(&status) };
    assert_eq!(step(&over), Step::Rest);
}

#[test]
fn a_run_whose_pods_cannot_start_is_made_anew_when_the_spec_or_the_image_is_corrected() {
    let status = with_run();
    let stuck = EndState::Starting(Some(Fault::new(Reason::PodPending, "m")));
    let starting = |generation, outdated| Situation {
        job: job(generation, "h"),
        outdated,
        pairs: pair(stuck.clone(), EndState::Running),
        ..situation(&status)
    };
    assert_eq!(step(&starting(GENERATION + 1, false)), Step::Withdraw);
    let bare =
        Situation { pairs: pair(EndState::Absent, EndState::Absent), ..starting(GENERATION + 1, false) };
    let Step::Begin(run) = step(&bare) else { panic!() };
    assert_eq!((run.number, run.generation, run.is_started()), (1, GENERATION + 1, false));
    assert_eq!(step(&starting(GENERATION, true)), Step::Withdraw);
    assert!(matches!(step(&starting(GENERATION, false)), Step::Start(Some(_))));
}

#[test]
fn half_a_launch_of_an_older_spec_is_withdrawn() {
    let status = with_run();
    let half =
        Situation { outdated: true, pairs: pair(EndState::Running, EndState::Absent), ..situation(&status) };
    assert_eq!(step(&half), Step::Withdraw);
}

#[test]
fn a_launched_run_goes_on_when_the_spec_changes() {
    let status = running_since(1);
    let changed = Situation {
        job: job(GENERATION + 1, "h"),
        outdated: true,
        pairs: pair(EndState::Running, EndState::Running),
        ..situation(&status)
    };
    assert_eq!(step(&changed), Step::Run);
}

#[test]
fn what_keeps_a_pod_from_starting_is_passed_on_from_either_end() {
    let status = with_run();
    let fault = Fault::new(Reason::ImagePullFailed, "m");
    let stuck = EndState::Starting(Some(fault.clone()));
    for (source, sink) in [
        (stuck.clone(), EndState::Running),
        (EndState::Running, stuck.clone()),
        (EndState::Starting(None), stuck.clone()),
    ] {
        let starting = Situation { pairs: pair(source, sink), ..situation(&status) };
        let Decision { step, again } = next(&starting);
        assert_eq!(step, Step::Start(Some(fault.clone())));
        assert_eq!(again, Some(at(5)), "then it is late");
        assert_eq!(next(&Situation { now: at(6), ..starting }).again, Some(at(16)));
    }
}

#[test]
fn nothing_is_made_of_a_run_while_its_record_cannot_be_there() {
    let status = with_run();
    for (record, expected) in [
        (Record::Missing, Step::Launch),
        (Record::Asked, Step::Launch),
        (Record::Leaving, Step::Linger),
        (Record::Taken(Fault::new("r", "m")), Step::Start(Some(Fault::new("r", "m")))),
        (Record::Kept, Step::Launch),
    ] {
        assert_eq!(
            step(&Situation { facts: facts(|it| it.record = record), ..situation(&status) }),
            expected
        );
    }
}

#[test]
fn a_person_asks_for_a_run_under_a_name_of_their_own() {
    let status = after_run(GENERATION);
    let asked = SyncRun::new("before-the-upgrade", api::SyncRunSpec::default());
    let Step::Begin(run) = step(&Situation { facts: asks(&asked), ..situation(&status) }) else { panic!() };
    assert_eq!((run.id.as_str(), run.number, run.cause), ("before-the-upgrade", 8, Some(RunCause::Manual)));
    let suspended = Ok(Demand { suspend: true, ..demand() });
    let suspended = Situation { facts: asks(&asked), demand: suspended, ..situation(&status) };
    assert_eq!(step(&suspended), Step::Suspend);
}

#[test]
fn a_number_that_a_person_has_used_as_a_name_is_left_out() {
    let status = after_run(GENERATION - 1);
    let facts = facts(|it| it.ended = ["web-8".into()].into());
    let Step::Begin(run) = step(&Situation { facts, ..situation(&status) }) else { panic!() };
    assert_eq!((run.id.as_str(), run.number), ("web-9", 9));
}

#[test]
fn a_number_of_a_record_does_not_come_again_after_the_status_was_erased() {
    let status = SyncJobStatus::default();
    let facts = facts(|it| it.last_number = 20);
    let Step::Begin(run) = step(&Situation { facts, ..situation(&status) }) else { panic!() };
    assert_eq!(run.number, 21);
}

#[test]
fn an_end_does_not_wait_on_its_node_for_one_that_cannot_start() {
    let status = with_run();
    let stuck = EndState::Starting(Some(Fault::new(Reason::PodPending, "No node fits.")));
    let with = |source: EndState, sink: EndState, now| Situation {
        pairs: pair(source, sink),
        now,
        ..situation(&status)
    };
    for (source, sink, side) in
        [(stuck.clone(), EndState::Running, Side::Sink), (EndState::Running, stuck.clone(), Side::Source)]
    {
        assert!(matches!(step(&with(source.clone(), sink.clone(), at(29))), Step::Start(Some(_))));
        let Step::Dismiss(dismissed, fault) = step(&with(source, sink, at(30))) else { panic!() };
        assert_eq!((dismissed, fault.reason.as_str()), (side, "PodPending"));
        assert!(fault.message.starts_with("No node fits. Until the "), "{}", fault.message);
        assert!(fault.message.contains(&format!("there is no {side} pod")), "{}", fault.message);
    }
    let alone = |source| with(source, EndState::Absent, at(40));
    assert!(matches!(step(&alone(stuck.clone())), Step::Start(Some(_))), "its partner stays away");
    assert_eq!(step(&alone(EndState::Running)), Step::Launch);
    assert!(
        matches!(step(&with(stuck.clone(), stuck, at(40))), Step::Start(Some(_))),
        "nobody waits for anybody"
    );
}

#[test]
fn of_shards_only_a_side_that_has_no_partner_at_all_is_removed() {
    let status = with_run();
    let stuck = EndState::Starting(Some(Fault::new(Reason::PodPending, "m")));
    let some = |first: EndState| {
        let mut pairs = pair(EndState::Running, first);
        pairs.extend(pair(EndState::Running, stuck.clone()));
        step(&Situation { pairs, now: at(40), ..situation(&status) })
    };
    assert!(matches!(some(EndState::Running), Step::Start(Some(_))), "a shard is at work");
    assert!(matches!(some(stuck.clone()), Step::Dismiss(Side::Source, _)));
}

#[test]
fn a_change_that_does_not_matter_to_a_run_asks_for_none() {
    let of = |spec_hash: Option<&str>| {
        let mut status = after_run(GENERATION - 1);
        status.last_run.as_mut().unwrap().spec_hash = spec_hash.map(Into::into);
        step(&situation(&status))
    };
    assert_eq!(of(Some("h")), Step::Rest);
    let Step::Begin(run) = of(Some("other")) else { panic!() };
    assert_eq!(run.spec_hash.as_deref(), Some("h"));
    assert!(matches!(of(None), Step::Begin(_)), "an older operator recorded none");
    let mut upgraded = after_run(GENERATION);
    upgraded.last_run.as_mut().unwrap().spec_hash = Some("of other fields".into());
    assert_eq!(step(&situation(&upgraded)), Step::Rest, "nobody changed the spec");
}
