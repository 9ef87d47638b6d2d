use contract::Reason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::{
    api::conditions::{READY, RECONCILING, STALLED, is_true},
    run::outcome::Outcome,
    status::merge_patch::patch,
    status::run_status::{
        begin, finish, new_run, preparing, running,
        tests::{KEEP, at, begun, failed, ready_of, succeeded},
    },
};

#[test]
fn a_failure_stalls_and_says_what_to_do() {
    let mut status = begun();
    status.last_success_time = Some(Time(at(-5000)));
    finish(&mut status, &failed("DeleteLimitExceeded"), KEEP, at(3000));
    assert!(is_true(&status.conditions, STALLED));
    let (reason, message) = ready_of(&status);
    assert_eq!(reason, "DeleteLimitExceeded");
    let limit = "The limit is spec.files.deleteLimit; a change of the spec runs the job again.";
    assert_eq!(message, format!("Run web-1 did not succeed. It broke. {limit}"));
    assert_eq!(status.last_success_time, Some(Time(at(-5000))));
    let mut other = begun();
    finish(&mut other, &failed("NoRoute"), KEEP, at(3000));
    assert_eq!(ready_of(&other).1, "Run web-1 did not succeed. It broke. Change spec.trigger to run again.");
}

#[test]
fn a_suspended_job_is_ready_with_that_reason() {
    let mut status = SyncJobStatus::default();
    suspended(&mut status, false, 4, at(0));
    assert!(is_true(&status.conditions, READY));
    assert_eq!(ready_of(&status).0, "Suspended");
}

#[test]
fn the_same_step_taken_twice_writes_nothing() {
    let fault = Fault::new(Reason::PodPending, "no node");
    let steps: [fn(&mut SyncJobStatus, &Fault, Timestamp); 5] = [
        |status, fault, now| preparing(status, Some(fault), now),
        |status, _, now| running(status, now),
        |status, fault, now| blocked(status, &Blocked::Waiting(fault.clone()), 3, now),
        |status, fault, now| refused(status, fault, 3, now),
        |status, _, now| suspended(status, false, 3, now),
    ];
    for step in steps {
        let mut once = begun();
        step(&mut once, &fault, at(1000));
        let mut twice = once.clone();
        step(&mut twice, &fault, at(2000));
        assert_eq!(patch(&once, &twice, "7").unwrap(), None);
    }
}

/// Returns a job with a schedule whose first run ended so.
fn scheduled(outcome: &Outcome) -> SyncJobStatus {
    let mut status = SyncJobStatus { next_run_time: Some(Time(at(3_600_000))), ..SyncJobStatus::default() };
    begins_by_schedule(&mut status);
    finish(&mut status, outcome, KEEP, at(3000));
    status
}

fn begins_by_schedule(status: &mut SyncJobStatus) {
    let run = new_run("web", 1, 3, None, at(0));
    begin(status, ActiveRun { cause: Some(RunCause::Schedule), ..run }, at(0));
}

/// Returns the types of the conditions that programs read, with their status.
fn read_by_programs(status: &SyncJobStatus) -> Vec<(&str, &str)> {
    let kinds = [READY, RECONCILING, STALLED];
    let found = kinds.into_iter().filter_map(|kind| conditions::find(&status.conditions, kind));
    found.map(|it| (&*it.type_, &*it.status)).collect()
}

#[test]
fn a_run_of_the_schedule_changes_no_condition_until_it_ends_whatever_is_in_its_way() {
    let fault = Fault::new(Reason::PodPending, "no node");
    let refused = Outcome { exit: contract::ExitCode::Guard, ..failed("DeleteLimitExceeded") };
    for outcome in [succeeded(), failed("NoSpace"), refused] {
        let mut status = scheduled(&outcome);
        let before = status.conditions.clone();
        begins_by_schedule(&mut status);
        assert_eq!(status.conditions, before);
        preparing(&mut status, Some(&fault), at(5000));
        assert_eq!(status.conditions, before);
        assert_eq!(told(&status).as_ref(), Some(&fault));
        running(&mut status, at(6000));
        assert_eq!(status.conditions, before);
        assert_eq!(
            told(&status).unwrap().message,
            "Run web-1 waits for its turn.",
            "the stage is recorded later"
        );
    }
}

#[test]
fn a_run_that_a_person_asked_for_is_reconciling_also_with_a_schedule() {
    let mut status = scheduled(&succeeded());
    let run = new_run("web", 2, 3, None, at(0));
    begin(&mut status, ActiveRun { cause: Some(RunCause::Manual), ..run }, at(4000));
    assert_eq!(read_by_programs(&status), [(READY, "False"), (RECONCILING, "True")]);
}

#[test]
fn what_blocked_a_run_of_the_schedule_is_taken_back_when_it_goes_on() {
    let mut status = scheduled(&succeeded());
    begins_by_schedule(&mut status);
    blocked(&mut status, &Blocked::Stalled(Fault::new(Reason::ClaimNotFound, "no claim")), 3, at(5000));
    assert_eq!(read_by_programs(&status), [(READY, "False"), (STALLED, "True")]);
    preparing(&mut status, None, at(6000));
    assert_eq!(read_by_programs(&status), [(READY, "True")]);
    assert_eq!(obstacle(&status), None);
}

#[test]
fn a_job_whose_next_run_may_succeed_by_itself_is_ready_and_says_when_that_is() {
    let status = scheduled(&failed("NoSpace"));
    assert_eq!(read_by_programs(&status), [(READY, "True")]);
    let message = "Run web-1 did not succeed. It broke. The next run starts at 2027-01-15T09:00:00Z.";
    assert_eq!(ready_of(&status), ("Scheduled", message));
}

#[test]
fn a_job_whose_next_run_would_be_refused_too_is_stalled_in_spite_of_its_schedule() {
    for (exit, reason) in [
        (contract::ExitCode::Guard, "DeleteLimitExceeded"),
        (contract::ExitCode::Partial, "SnapshotsDamaged"),
        (contract::ExitCode::Failed, "ChildRefused"),
    ] {
        let refused = Outcome { exit, ..failed(reason) };
        let status = scheduled(&refused);
        assert_eq!(read_by_programs(&status), [(READY, "False"), (STALLED, "True")], "{reason}");
        assert_eq!(ready_of(&status).0, reason);
    }
}

#[test]
fn the_advice_after_a_restore_that_failed_is_a_restore() {
    let mut status = begun();
    let run = new_run("web", 2, 3, None, at(0));
    begin(&mut status, ActiveRun { cause: Some(RunCause::Restore), ..run }, at(0));
    finish(&mut status, &failed("SnapshotNotFound"), KEEP, at(3000));
    let (_, message) = ready_of(&status);
    assert!(message.contains("kubectl volferry restore") && !message.contains("spec.trigger"), "{message}");
}

#[test]
fn a_job_that_waits_for_its_first_time_is_ready_and_observed() {
    let next_run_time = Some(Time(at(3_600_000)));
    let mut status = SyncJobStatus { next_run_time, ..SyncJobStatus::default() };
    rest(&mut status, 3, at(0));
    assert!(is_true(&status.conditions, READY));
    assert_eq!(ready_of(&status), ("Scheduled", "The first run starts at 2027-01-15T09:00:00Z."));
    assert_eq!((status.observed_generation, status.phase), (Some(3), Some(SyncJobPhase::Pending)));
}

#[test]
fn suspending_leaves_ready_and_stalled_as_they_were_and_says_so() {
    let over = |outcome: &Outcome| {
        let mut status = begun();
        finish(&mut status, outcome, KEEP, at(2100));
        status
    };
    let (good, bad) = (over(&succeeded()), over(&failed("GuardRefused")));
    for (before, is_scheduled, is_stalled) in [(&good, false, false), (&bad, false, true)] {
        let mut status = before.clone();
        suspended(&mut status, is_scheduled, 4, at(3000));
        assert_eq!(is_true(&status.conditions, READY), is_true(&before.conditions, READY));
        assert_eq!(is_true(&status.conditions, STALLED), is_stalled);
        let (reason, message) = ready_of(&status);
        assert!(reason == "Suspended" && message.starts_with("No run is started while"), "{message}");
        assert!(message.contains("Run web-1"), "{message}");
    }
}
