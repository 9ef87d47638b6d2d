mod captures;
mod crowd;
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
    queue::crowd::Crowd,
    run::{
        outcome::{Ending, Outcome},
        record::Record,
        schedule::Schedule,
        shard_pairs::Pair,
        stages::situation::{Demand, Situation, Step, Turn},
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

fn situation(status: &SyncJobStatus) -> Situation<'_> {
    Situation {
        job: "web",
        uid: "u",
        generation: GENERATION,
        spec_hash: "h",
        status,
        demand: Ok(demand()),
        claims: Ok(()),
        creates: false,
        grows: false,
        lost: None,
        is_new_destination: false,
        is_accepted: false,
        turn: Turn::Free,
        round: 0,
        crowd: Crowd { started: 1, ..Crowd::default() },
        nodes: &[],
        record: Record::Kept,
        asked: None,
        is_canceled: false,
        refused: None,
        withdrawn: None,
        hooks: None,
        captured: &Captured::Unknown,
        imaged: &Captured::Unknown,
        progress: None,
        pairs: pair(EndState::Absent, EndState::Absent),
        ran_since: None,
        is_free: false,
        is_told_by_agents: true,
        leftovers: None,
        outdated: false,
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
    next(situation).0
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
fn a_claim_that_is_to_be_created_is_before_a_run_begins_or_starts_and_not_while_suspended() {
    let idle = SyncJobStatus::default();
    fn creates(status: &SyncJobStatus) -> Situation<'_> {
        let missing = Err(Blocked::Stalled(Fault::new(Reason::ClaimNotFound, "m")));
        Situation { creates: true, claims: missing, ..situation(status) }
    }
    assert_eq!(step(&creates(&idle)), Step::Create);
    let waiting = ActiveRun { start_time: None, ..with_run().active_run.unwrap() };
    let waiting = SyncJobStatus { active_run: Some(waiting), ..SyncJobStatus::default() };
    assert_eq!((step(&creates(&waiting)), step(&creates(&with_run()))), (Step::Create, Step::Create));
    let suspended = Situation { demand: Ok(Demand { suspend: true, ..demand() }), ..creates(&idle) };
    assert_eq!(step(&suspended), Step::Suspend);
}

#[test]
fn a_claim_that_is_to_grow_is_told_so_before_a_run_begins_or_starts_and_not_while_suspended() {
    let idle = SyncJobStatus::default();
    fn grows(status: &SyncJobStatus) -> Situation<'_> {
        Situation { grows: true, ..situation(status) }
    }
    let waiting = ActiveRun { start_time: None, ..with_run().active_run.unwrap() };
    let waiting = SyncJobStatus { active_run: Some(waiting), ..SyncJobStatus::default() };
    for status in [&idle, &waiting, &with_run()] {
        assert_eq!(step(&grows(status)), Step::Grow, "{status:?}");
    }
    let suspended = Situation { demand: Ok(Demand { suspend: true, ..demand() }), ..grows(&idle) };
    assert_eq!(step(&suspended), Step::Suspend);
    let running = Situation { pairs: pair(EndState::Running, EndState::Running), ..grows(&waiting) };
    assert_ne!(step(&running), Step::Grow, "a volume in use is left alone");
}

#[test]
fn a_run_counts_for_the_nodes_of_its_volumes_from_its_place_on() {
    let (idle, nodes) = (SyncJobStatus::default(), ["n1".to_string()]);
    let Step::Begin(run) = step(&Situation { nodes: &nodes, ..situation(&idle) }) else { panic!() };
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
    let changed = Situation { demand: shared(5), generation: GENERATION + 1, ..situation(&status) };
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
fn a_claim_that_cannot_be_mounted_holds_the_run_back_before_it_begins() {
    let status = SyncJobStatus::default();
    let blocked = Blocked::Stalled(Fault::new(Reason::ClaimNotFound, "m"));
    let (step, again) = next(&Situation { claims: Err(blocked.clone()), ..situation(&status) });
    assert_eq!(step, Step::Block(blocked));
    assert!(again.is_some(), "a storage class is not watched");
}

#[test]
fn a_spec_that_cannot_be_run_is_refused_but_does_not_disturb_a_run() {
    let fault = Fault::new(Reason::InvalidSpec, "m");
    let idle = SyncJobStatus::default();
    assert_eq!(
        step(&Situation { demand: Err(fault.clone()), ..situation(&idle) }),
        Step::Refuse(fault.clone())
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
    let Step::Begin(run) = step(&Situation { generation: GENERATION + 1, ..situation(&status) }) else {
        panic!()
    };
    assert_eq!((run.id.as_str(), run.number, run.generation), ("web-1", 1, GENERATION + 1));
}

#[test]
fn a_trigger_that_came_with_the_correction_is_answered_by_the_corrected_run() {
    let mut status = with_run();
    let triggered = Ok(Demand { trigger: Some("b".into()), ..demand() });
    let corrected = Situation { generation: GENERATION + 1, demand: triggered.clone(), ..situation(&status) };
    let Step::Begin(run) = step(&corrected) else { panic!() };
    assert_eq!(run.trigger.as_deref(), Some("b"));

    run_status::begin(&mut status, *run, at(1));
    run_status::finish(&mut status, &Outcome::stopped(Fault::new("m", "m")), None, at(2));
    let over = Situation { generation: GENERATION + 1, demand: triggered, ..situation(&status) };
    assert_eq!(step(&over), Step::Rest);
}

#[test]
fn a_run_whose_pods_cannot_start_is_made_anew_when_the_spec_or_the_image_is_corrected() {
    let status = with_run();
    let stuck = EndState::Starting(Some(Fault::new(Reason::PodPending, "m")));
    let starting = |generation, outdated| Situation {
        generation,
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
        generation: GENERATION + 1,
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
        let (step, again) = next(&starting);
        assert_eq!(step, Step::Start(Some(fault.clone())));
        assert_eq!(again, Some(at(5)), "then it is late");
        assert_eq!(next(&Situation { now: at(6), ..starting }).1, Some(at(16)));
    }
}

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
    assert_eq!(next(&lingering(at(6))), (Step::Linger, Some(at(35))));
    assert_eq!(finished(step(&lingering(at(35)))).result, RunResult::Succeeded);
}

#[test]
fn a_try_that_failed_is_followed_by_another_until_retries_or_time_are_used_up() {
    let mut status = running_since(1);
    let (first, again) = next(&failed(&status));
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
    assert_eq!(next(&Situation { now: at(6), ..situation(&status) }), (Step::Await, Some(at(16))));
    assert_eq!(step(&Situation { now: at(16), ..situation(&status) }), Step::Launch);
}

#[test]
fn a_run_ends_at_its_timeout_and_says_what_held_it_up() {
    let status = with_run();
    let stuck = EndState::Starting(Some(Fault::new(Reason::PodPending, "No node fits.")));
    let waiting =
        |now| Situation { pairs: pair(stuck.clone(), EndState::Running), now, ..situation(&status) };
    assert_eq!(next(&waiting(at(599))).1, Some(at(600)));
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
fn a_run_that_a_person_cancels_or_whose_record_is_deleted_is_canceled_in_any_stage() {
    let waiting = ActiveRun { start_time: None, ..with_run().active_run.unwrap() };
    let waiting = SyncJobStatus { active_run: Some(waiting), ..SyncJobStatus::default() };
    for (status, state) in
        [(waiting, EndState::Absent), (with_run(), EndState::Absent), (running_since(1), EndState::Running)]
    {
        let run = || Situation { pairs: pair(state.clone(), state.clone()), ..situation(&status) };
        let deleted = Situation { record: Record::Deleted, ..run() };
        let canceled = Situation { is_canceled: true, ..run() };
        for (stopped, reason) in [(deleted, "RunDeleted"), (canceled, "Canceled")] {
            let report = finished(step(&stopped));
            assert_eq!((report.result, report.reason.as_deref()), (RunResult::Canceled, Some(reason)));
        }
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
        assert_eq!(step(&Situation { record, ..situation(&status) }), expected);
    }
}

#[test]
fn a_person_asks_for_a_run_under_a_name_of_their_own() {
    let status = after_run(GENERATION);
    let asked = SyncRun::new("before-the-upgrade", api::SyncRunSpec::default());
    let Step::Begin(run) = step(&Situation { asked: Some(&asked), ..situation(&status) }) else { panic!() };
    assert_eq!((run.id.as_str(), run.number, run.cause), ("before-the-upgrade", 8, Some(RunCause::Manual)));
    let suspended = Ok(Demand { suspend: true, ..demand() });
    let suspended = Situation { asked: Some(&asked), demand: suspended, ..situation(&status) };
    assert_eq!(step(&suspended), Step::Suspend);
}

#[test]
fn after_a_restore_in_place_only_a_person_starts_a_run() {
    let restore = api::Restore { snapshot: "latest".into(), safety: true, ..api::Restore::default() };
    let spec = api::SyncRunSpec { restore: Some(restore.clone()), ..api::SyncRunSpec::default() };
    let asked = SyncRun::new("back", spec);
    let mut status = after_run(GENERATION);
    let Step::Begin(run) = step(&Situation { asked: Some(&asked), ..situation(&status) }) else { panic!() };
    assert_eq!((run.cause, &run.restore), (Some(RunCause::Restore), &Some(restore)));
    run_status::begin(&mut status, *run, at(0));
    status.active_run = None;
    let schedule =
        Schedule::new(&api::Schedule { interval: Some("1m".into()), ..Default::default() }).unwrap();
    let hourly = || Demand { schedule: Some(schedule.clone()), ..demand() };
    let held =
        Situation { demand: Ok(hourly()), generation: GENERATION + 1, now: at(9000), ..situation(&status) };
    assert_eq!((step(&held), next_run(&held, &Step::Rest)), (Step::Rest, None));
    let changed = Situation { generation: GENERATION + 1, spec_hash: "other", ..situation(&status) };
    assert_eq!(step(&changed), Step::Rest);
    let asked = SyncRun::new("on", api::SyncRunSpec::default());
    assert!(matches!(step(&Situation { asked: Some(&asked), ..held.clone() }), Step::Begin(_)));
    let triggered = Ok(Demand { trigger: Some("go".into()), ..hourly() });
    let Step::Begin(run) = step(&Situation { demand: triggered, ..held }) else { panic!() };
    run_status::begin(&mut status, *run, at(9000));
    status.active_run = None;
    let late = Situation { demand: Ok(hourly()), now: at(90_000), ..situation(&status) };
    assert!(matches!(step(&late), Step::Begin(_)), "the schedule goes on");
}

#[test]
fn a_benchmark_takes_no_run_out_of_turn_and_one_that_is_refused_ends() {
    let benchmark = Some(api::Benchmark::default());
    let spec = api::SyncRunSpec { benchmark: benchmark.clone(), ..api::SyncRunSpec::default() };
    let asked = SyncRun::new("bench", spec);
    let mut status = after_run(GENERATION);
    status.last_benchmark = Some(api::Run { number: 11, ..api::Run::default() });
    let schedule =
        Schedule::new(&api::Schedule { interval: Some("1m".into()), ..Default::default() }).unwrap();
    let hourly =
        Ok(Demand { schedule: Some(schedule), trigger: Some("go".into()), replaces: true, ..demand() });
    let due = Situation { asked: Some(&asked), demand: hourly, now: at(9000), ..situation(&status) };
    let begin = step(&due);
    let Step::Begin(run) = begin.clone() else { panic!("{begin:?}") };
    assert_eq!((run.cause, &run.benchmark, run.number), (Some(RunCause::Benchmark), &benchmark, 12));
    let rest = Situation { asked: None, ..due.clone() };
    assert_eq!(next_run(&due, &begin), next_run(&rest, &Step::Rest), "the time of the next run stays");

    let mut begun = status.clone();
    run_status::begin(&mut begun, ActiveRun { start_time: None, ..*run }, at(9000));
    assert_eq!(begun.last_trigger, status.last_trigger, "the trigger is still to be answered");
    let active = Situation { status: &begun, asked: None, ..due };
    assert_eq!(next_run(&active, &Step::Run), next_run(&rest, &Step::Rest));
    let refused = Situation { refused: Some(Fault::new("No", "a device")), ..active };
    assert_eq!(finished(step(&refused)).message, "a device");
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
        assert_eq!(next(&waiting), (Step::Linger, Some(at(600))));
    }
}

#[test]
fn a_destination_that_is_lost_halts_the_run_until_it_is_back_and_a_lost_source_lets_it_end() {
    let fault = Fault::new(Reason::ClaimTerminating, "m");
    let mut status = running_since(1);
    let both_run = pair(EndState::Running, EndState::Running);
    let losing =
        |side, pairs, status| Situation { lost: Some((side, fault.clone())), pairs, ..situation(status) };
    assert_eq!(step(&losing(Side::Source, both_run.clone(), &status)), Step::Run);
    let halt = Step::Halt(Blocked::Stalled(fault.clone()));
    assert_eq!(step(&losing(Side::Sink, both_run, &status)), halt);
    let over = losing(Side::Sink, pair(ended(0, 5), ended(0, 5)), &status);
    assert_eq!(finished(step(&over)).result, RunResult::Succeeded);

    run_status::halt(&mut status, &Blocked::Stalled(fault.clone()), at(6));
    let run = status.active_run.as_ref().unwrap();
    assert_eq!((run.retries, run.postponed, run.is_started()), (0, 1, false));
    assert_eq!(step(&situation(&status)), Step::Queue, "the claim is back");
}

#[test]
fn a_job_at_rest_stalls_when_a_claim_is_lost_and_runs_onto_a_destination_made_anew() {
    let mut status = after_run(GENERATION);
    let fault = Fault::new(Reason::ClaimNotFound, "m");
    for side in [Side::Source, Side::Sink] {
        let lost = Situation { lost: Some((side, fault.clone())), ..situation(&status) };
        assert_eq!(step(&lost), Step::Block(Blocked::Stalled(fault.clone())));
    }
    let anew = |status: &SyncJobStatus| step(&Situation { is_new_destination: true, ..situation(status) });
    assert!(matches!(anew(&status), Step::Begin(_)));
    status.last_run.as_mut().unwrap().result = RunResult::Failed;
    assert_eq!(anew(&status), Step::Rest, "a run onto it was made, and failed");
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
