mod hooks;
mod replace;

use std::time::Duration;

use contract::{ExitCode, Phase, Progress, Report, RunResult, Side};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

use super::{
    super::situation::{Demand, Situation, Step, Turn},
    next, next_run,
};
use crate::{
    api::{self, ActiveRun, Run, RunCause, RunFolder, RunProgress, SyncJobStatus, SyncRun},
    fault::Fault,
    model::{
        claims::Blocked,
        observe::EndState,
        outcome::{Ending, Outcome},
        pairs::Pair,
        record::Record,
        status,
    },
    schedule::Schedule,
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
        timeout: Duration::from_secs(600),
        retries: 2,
        shards: 1,
        is_local: false,
        source: folder("from"),
        destination: folder("to"),
    }
}

fn folder(claim: &str) -> RunFolder {
    RunFolder { claim_name: claim.into(), path: "/".into() }
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
        lost: None,
        is_new_destination: false,
        turn: Turn::Free,
        round: 0,
        record: Record::Kept,
        asked: None,
        hooks: None,
        progress: None,
        pairs: pair(EndState::Absent, EndState::Absent),
        leftovers: None,
        outdated: false,
        now: at(0),
    }
}

fn pair(source: EndState, sink: EndState) -> Vec<Pair> {
    vec![Pair { source, sink }]
}

/// A job whose first run began at `at(0)`.
fn with_run() -> SyncJobStatus {
    let run = status::new_run("web", 1, GENERATION, None, at(0));
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

/// A try whose two ends failed at `at(5)`.
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
        let missing = Err(Blocked::Stalled(Fault::new("ClaimNotFound", "m")));
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
fn a_run_has_as_many_shards_as_the_spec_that_it_is_of() {
    let shared = |shards| Ok(Demand { shards, ..demand() });
    let idle = SyncJobStatus::default();
    let Step::Begin(run) = step(&Situation { demand: shared(3), ..situation(&idle) }) else { panic!() };
    assert_eq!(run.shards, 3);
    let run = ActiveRun { start_time: Some(MicroTime(at(0))), ..run };
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
    let blocked = Blocked::Stalled(Fault::new("ClaimNotFound", "m"));
    let (step, again) = next(&Situation { claims: Err(blocked.clone()), ..situation(&status) });
    assert_eq!(step, Step::Block(blocked));
    assert!(again.is_some(), "a storage class is not watched");
}

#[test]
fn a_spec_that_cannot_be_run_is_refused_but_does_not_disturb_a_run() {
    let fault = Fault::new("InvalidSpec", "m");
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
    assert_eq!(step(&with(at(1))), Step::Start(Some(Fault::new("Preparing", "They go."))));
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

    status::begin(&mut status, run, at(1));
    status::finish(&mut status, &Outcome::stopped(Fault::new("m", "m")), None, at(2));
    let over = Situation { generation: GENERATION + 1, demand: triggered, ..situation(&status) };
    assert_eq!(step(&over), Step::Rest);
}

#[test]
fn a_run_whose_pods_cannot_start_is_made_anew_when_the_spec_or_the_image_is_corrected() {
    let status = with_run();
    let stuck = EndState::Starting(Some(Fault::new("PodPending", "m")));
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
    let fault = Fault::new("ImagePullFailed", "m");
    let stuck = EndState::Starting(Some(fault.clone()));
    for (source, sink) in [
        (stuck.clone(), EndState::Running),
        (EndState::Running, stuck.clone()),
        (EndState::Starting(None), stuck.clone()),
    ] {
        let (step, again) = next(&Situation { pairs: pair(source, sink), ..situation(&status) });
        assert_eq!(step, Step::Start(Some(fault.clone())));
        assert_eq!(again, Some(at(10)));
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
    let stuck = EndState::Starting(Some(Fault::new("PodPending", "No node fits.")));
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
    status::preparing(&mut status, None, at(1));
    assert!(report_of(&status).message.contains("(spec.limits.timeout). The next run"), "nothing is known");
    status::preparing(&mut status, Some(&Fault::new("ChildRefused", "It is refused.")), at(2));
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
        assert!(at_timeout(&status, said).contains("UDP port 8900"), "{}", at_timeout(&status, said));
    }
    let progress = Progress { phase: Phase::Scan, ..Progress::default() };
    let progress = RunProgress { progress, ..RunProgress::default() };
    assert!(!at_timeout(&status, Some(&progress)).contains("8900"));
    status.active_run.as_mut().unwrap().local = true;
    assert!(!at_timeout(&status, None).contains("8900"));
}

#[test]
fn a_run_whose_record_somebody_deletes_is_canceled_in_any_stage() {
    let waiting = ActiveRun { start_time: None, ..with_run().active_run.unwrap() };
    let waiting = SyncJobStatus { active_run: Some(waiting), ..SyncJobStatus::default() };
    for (status, state) in
        [(waiting, EndState::Absent), (with_run(), EndState::Absent), (running_since(1), EndState::Running)]
    {
        let deleted =
            Situation { record: Record::Deleted, pairs: pair(state.clone(), state), ..situation(&status) };
        let report = finished(step(&deleted));
        assert_eq!((report.result, report.reason.as_deref()), (RunResult::Canceled, Some("RunDeleted")));
    }
}

#[test]
fn nothing_is_made_of_a_run_before_its_record_is_there() {
    let status = with_run();
    for (record, expected) in [
        (Record::Missing, Step::Linger),
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
    let restore = api::Restore { snapshot: "latest".into(), safety: true };
    let spec = api::SyncRunSpec { restore: Some(restore.clone()), ..api::SyncRunSpec::default() };
    let asked = SyncRun::new("back", spec);
    let mut status = after_run(GENERATION);
    let Step::Begin(run) = step(&Situation { asked: Some(&asked), ..situation(&status) }) else { panic!() };
    assert_eq!((run.cause, &run.restore), (Some(RunCause::Restore), &Some(restore)));
    status::begin(&mut status, run, at(0));
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
    status::begin(&mut status, run, at(9000));
    status.active_run = None;
    let late = Situation { demand: Ok(hourly()), now: at(90_000), ..situation(&status) };
    assert!(matches!(step(&late), Step::Begin(_)), "the schedule goes on");
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

/// A job whose first run has a place and no turn yet.
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
    status::queue(&mut status, 0, at(2));
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

#[test]
fn a_destination_that_is_lost_halts_the_run_until_it_is_back_and_a_lost_source_lets_it_end() {
    let fault = Fault::new("ClaimTerminating", "m");
    let mut status = running_since(1);
    let both_run = pair(EndState::Running, EndState::Running);
    let losing =
        |side, pairs, status| Situation { lost: Some((side, fault.clone())), pairs, ..situation(status) };
    assert_eq!(step(&losing(Side::Source, both_run.clone(), &status)), Step::Run);
    let halt = Step::Halt(Blocked::Stalled(fault.clone()));
    assert_eq!(step(&losing(Side::Sink, both_run, &status)), halt);
    let over = losing(Side::Sink, pair(ended(0, 5), ended(0, 5)), &status);
    assert_eq!(finished(step(&over)).result, RunResult::Succeeded);

    status::halt(&mut status, &Blocked::Stalled(fault.clone()), at(6));
    let run = status.active_run.as_ref().unwrap();
    assert_eq!((run.retries, run.postponed, run.is_started()), (0, 1, false));
    assert_eq!(step(&situation(&status)), Step::Queue, "the claim is back");
}

#[test]
fn a_job_at_rest_stalls_when_a_claim_is_lost_and_runs_onto_a_destination_made_anew() {
    let mut status = after_run(GENERATION);
    let fault = Fault::new("ClaimNotFound", "m");
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
    let stuck = EndState::Starting(Some(Fault::new("PodPending", "No node fits.")));
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
    let stuck = EndState::Starting(Some(Fault::new("PodPending", "m")));
    let some = |first: EndState| {
        let mut pairs = pair(EndState::Running, first);
        pairs.extend(pair(EndState::Running, stuck.clone()));
        step(&Situation { pairs, now: at(40), ..situation(&status) })
    };
    assert!(matches!(some(EndState::Running), Step::Start(Some(_))), "a shard is at work");
    assert!(matches!(some(stuck.clone()), Step::Dismiss(Side::Source, _)));
}

fn hourly() -> Demand {
    let spec = api::Schedule { cron: Some("0 * * * *".into()), ..Default::default() };
    Demand { schedule: Some(Schedule::new(&spec).unwrap()), ..demand() }
}

/// The first full hour after `at(0)`, which is 08:00 UTC of some day.
const HOUR: i64 = 3600;

/// The situation of a job with a schedule, with its step and the time that its status gets.
fn scheduled(status: &SyncJobStatus, demand: Demand, now: Timestamp) -> (Step, Option<Timestamp>) {
    let situation = Situation { demand: Ok(demand), now, ..situation(status) };
    let step = step(&situation);
    let next = next_run(&situation, &step);
    (step, next)
}

#[test]
fn a_scheduled_job_waits_for_its_time_and_looks_again_then() {
    let status = SyncJobStatus::default();
    assert_eq!(scheduled(&status, hourly(), at(0)), (Step::Rest, Some(at(HOUR))));
    let waiting = Situation { demand: Ok(hourly()), now: at(5), ..situation(&status) };
    assert_eq!(next(&waiting), (Step::Rest, Some(at(HOUR))));
    let yearly = api::Schedule { cron: Some("@yearly".into()), ..Default::default() };
    let yearly = Demand { schedule: Some(Schedule::new(&yearly).unwrap()), ..demand() };
    let far = Situation { demand: Ok(yearly), ..situation(&status) };
    assert_eq!(next(&far), (Step::Rest, Some(at(3600))), "somebody may set the clock");
}

#[test]
fn what_fell_due_begins_once_and_the_next_time_is_ahead() {
    let status = SyncJobStatus { next_run_time: Some(Time(at(HOUR))), ..after_run(GENERATION) };
    let (step, next) = scheduled(&status, hourly(), at(10 * HOUR + 7));
    assert!(matches!(step, Step::Begin(run) if run.number == 8));
    assert_eq!(next, Some(at(11 * HOUR)));
}

#[test]
fn a_time_that_passes_during_a_run_is_made_up_after_it() {
    let mut status = SyncJobStatus { next_run_time: Some(Time(at(HOUR))), ..running_since(1) };
    let running = pair(EndState::Running, EndState::Running);
    let demand = Demand { timeout: Duration::from_secs(1 << 20), ..hourly() };
    let under_way = Situation { demand: Ok(demand), pairs: running, now: at(HOUR + 9), ..situation(&status) };
    assert_eq!((step(&under_way), next_run(&under_way, &Step::Run)), (Step::Run, Some(at(HOUR))));
    let active = status.active_run.take().unwrap();
    status.last_run = Some(Run { number: active.number, start_time: Some(Time(at(0))), ..Run::default() });
    assert!(matches!(scheduled(&status, hourly(), at(HOUR + 20)).0, Step::Begin(_)));
}

#[test]
fn with_a_schedule_a_trigger_asks_for_a_run_and_a_change_of_the_spec_does_not() {
    let status = after_run(GENERATION - 1);
    assert_eq!(scheduled(&status, hourly(), at(1)).0, Step::Rest);
    let triggered = Demand { trigger: Some("b".into()), ..hourly() };
    let (step, next) = scheduled(&status, triggered, at(1));
    assert!(matches!(step, Step::Begin(_)) && next == Some(at(HOUR)));
}

#[test]
fn a_job_that_was_suspended_waits_for_its_next_time() {
    let mut status = SyncJobStatus { next_run_time: Some(Time(at(HOUR))), ..after_run(GENERATION) };
    let suspended = Demand { suspend: true, ..hourly() };
    assert_eq!(scheduled(&status, suspended, at(HOUR / 2)), (Step::Suspend, None));
    status.next_run_time = None;
    assert_eq!(scheduled(&status, hourly(), at(5 * HOUR + 1)), (Step::Rest, Some(at(6 * HOUR))));
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

fn reported() -> EndState {
    EndState::Reported(Box::new(Report { result: RunResult::Succeeded, ..Report::default() }))
}

/// A job whose first run has been reported as succeeded.
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
