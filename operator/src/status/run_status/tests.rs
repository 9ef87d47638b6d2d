use contract::{Failure, Reason, Timings, Work};
use serde_json::json;

use super::*;
use crate::api::conditions::{INCOMPLETE, READY, RECONCILING, is_true};

pub(crate) const KEEP: Option<KeptRuns> = Some(KeptRuns { succeeded: 10, failed: 10 });

pub(crate) fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_800_000_000_000 + ms).unwrap()
}

pub(crate) fn begun() -> SyncJobStatus {
    let mut status = SyncJobStatus::default();
    begin(&mut status, new_run("web", 1, 3, Some("now".into()), at(0)), at(0));
    status
}

fn report() -> Report {
    Report {
        run: "web-1".into(),
        start_time: at(1500).to_string(),
        completion_time: at(2000).to_string(),
        timings: Timings {
            connect: 20,
            scan: 80,
            transfer: 300,
            commit: 100,
            total: 500,
            ..Timings::default()
        },
        work: Work {
            files_scanned: 1008,
            files_created: 100,
            files_deleted: 2,
            bytes_changed: 20_873_216,
            ..Work::default()
        },
        ..Report::default()
    }
}

pub(crate) fn failed(reason: &str) -> Outcome {
    let report = Report {
        result: RunResult::Failed,
        reason: Some(reason.into()),
        message: "It broke.".into(),
        ..report()
    };
    Outcome { report, may_retry: true, exit: contract::ExitCode::Failed }
}

pub(crate) fn succeeded() -> Outcome {
    Outcome { report: report(), may_retry: false, exit: contract::ExitCode::Done }
}

fn last(status: &SyncJobStatus) -> &Run {
    status.last_run.as_ref().unwrap()
}

pub(crate) fn ready_of(status: &SyncJobStatus) -> (&str, &str) {
    let ready = conditions::find(&status.conditions, READY).unwrap();
    (&ready.reason, &ready.message)
}

#[test]
fn a_run_that_begins_makes_the_job_reconciling_and_its_spec_observed() {
    let status = begun();
    assert_eq!(status.observed_generation, Some(3));
    assert_eq!(status.last_trigger.as_deref(), Some("now"));
    assert!(is_true(&status.conditions, RECONCILING) && !is_true(&status.conditions, READY));
}

#[test]
fn a_success_is_ready_and_its_timings_add_up_to_the_total() {
    let mut status = begun();
    finish(&mut status, &succeeded(), KEEP, at(2100));
    assert!(is_true(&status.conditions, READY) && !is_true(&status.conditions, RECONCILING));
    let t = last(&status).timings;
    assert_eq!((t.queue, t.pod_start, t.total), (0, 1500, 2000));
    assert_eq!(t.queue + t.pod_start + t.connect + t.scan + t.transfer + t.commit, t.total);
    assert_eq!(status.phase, Some(SyncJobPhase::Succeeded));
    assert_eq!(status.last_success_time, last(&status).completion_time);
    assert_eq!(ready_of(&status).1, "Run web-1: 102/1008 entries changed, 19.9Mi bytes, in 500ms.");
    let columns = crate::api::Summary {
        files: "102/1008".into(),
        transferred: "19.9Mi".into(),
        duration: Some("500ms".into()),
    };
    assert_eq!(status.summary, Some(columns));
    let mut next = status.clone();
    begin(&mut next, new_run("web", 2, 3, None, at(3000)), at(3000));
    assert_eq!(next.summary, status.summary, "the columns are of a run that is over");
    assert_eq!(status.active_run, None);
}

/// Returns the outcome of a try that ran between the two times.
fn ran(result: RunResult, (from, to): (i64, i64), work: Work) -> Outcome {
    let total = u64::try_from(to - from).unwrap();
    let report = Report {
        result,
        reason: (result != RunResult::Succeeded).then(|| "PeerLost".into()),
        message: if result == RunResult::Succeeded { String::new() } else { "It broke.".into() },
        start_time: at(from).to_string(),
        completion_time: at(to).to_string(),
        timings: Timings { transfer: total, total, ..Timings::default() },
        work,
        ..Report::default()
    };
    Outcome { report, may_retry: true, exit: contract::ExitCode::Done }
}

#[test]
fn a_run_is_told_as_a_whole_with_all_its_tries() {
    let mut status = begun();
    let work = |created, changed| Work {
        files_scanned: 9,
        files_created: created,
        bytes_changed: changed,
        ..Work::default()
    };
    let first = Outcome {
        report: Report { notes: vec!["a".into()], ..ran(RunResult::Failed, (100, 400), work(7, 100)).report },
        ..ran(RunResult::Failed, (100, 400), work(7, 100))
    };
    retry(&mut status, &first, at(1000), at(400));
    let run = status.active_run.clone().unwrap();
    assert_eq!((run.retries, run.try_time), (1, Some(MicroTime(at(1000)))));
    assert!(
        ready_of(&status).1.starts_with("Run web-1 failed (PeerLost): It broke. It is tried again at 2027-")
    );
    finish(&mut status, &ran(RunResult::Succeeded, (1500, 2000), work(2, 60)), KEEP, at(2100));
    let run = last(&status);
    assert_eq!((run.retries, run.work.files_scanned, run.work.files_created), (1, 9, 9));
    let t = run.timings;
    assert_eq!((t.queue, t.pod_start, t.transfer, t.total), (600, 600, 800, 2000));
    assert_eq!((run.rates.bytes_per_second, run.notes.as_slice()), (200.0, ["a".to_string()].as_slice()));
    let columns = status.summary.as_ref().unwrap();
    assert_eq!((columns.files.as_str(), columns.duration.as_deref()), ("9/9", Some("800ms")));
    assert!(!ready_of(&status).1.contains("It broke"), "{}", ready_of(&status).1);
}

#[test]
fn the_time_that_a_run_waits_for_a_quota_is_not_its_duration() {
    let mut status = begun();
    finish(&mut status, &ran(RunResult::Succeeded, (600_000, 600_300), Work::default()), KEEP, at(600_400));
    assert_eq!((last(&status).timings.pod_start, last(&status).timings.total), (600_000, 600_300));
    assert_eq!(status.summary.unwrap().duration.as_deref(), Some("300ms"));
}

#[test]
fn a_try_that_ran_and_left_no_report_counts_as_run() {
    let mut status = begun();
    running(&mut status, at(1000));
    finish(&mut status, &Outcome::stopped(Fault::new(Reason::TimedOut, "Too late.")), KEEP, at(9000));
    let t = last(&status).timings;
    assert_eq!((t.queue, t.pod_start, t.running(), t.total), (0, 1000, 8000, 9000));
    let mut untold = begun();
    ran_since(&mut untold, at(1000));
    finish(&mut untold, &Outcome::stopped(Fault::new(Reason::TimedOut, "Too late.")), KEEP, at(9000));
    assert_eq!(last(&untold).timings, t);
}

#[test]
fn a_try_runs_since_its_start_by_a_slow_clock_and_since_it_was_seen_to_if_that_was_told() {
    let mut status = begun();
    ran_since(&mut status, at(-1000));
    ran_since(&mut status, at(1000));
    let run = status.active_run.unwrap();
    assert_eq!(run.pods_ready_time, run.try_time);
}

fn with_failures(count: u64) -> Outcome {
    let failure = Failure { path: "a/b".into(), operation: "read".into(), error: "gone".into() };
    let result = if count > 0 { RunResult::PartiallyFailed } else { RunResult::Succeeded };
    let mut outcome = ran(result, (0, 1), Work { files_failed: count, ..Work::default() });
    outcome.report.failures = if count > 0 { vec![failure] } else { Vec::new() };
    outcome
}

fn next_run(status: &mut SyncJobStatus, outcome: &Outcome) {
    begin(status, new_run("web", 2, 3, None, at(0)), at(0));
    finish(status, outcome, KEEP, at(2000));
}

#[test]
fn a_run_that_left_files_out_is_incomplete_and_not_ready_until_one_leaves_none_out() {
    let mut status = begun();
    finish(&mut status, &with_failures(12), KEEP, at(2000));
    assert!(is_true(&status.conditions, INCOMPLETE) && !is_true(&status.conditions, READY));
    let incomplete = conditions::find(&status.conditions, INCOMPLETE).unwrap();
    assert_eq!(incomplete.reason, "FilesLeftOut");
    let said = "Run web-1 left out 12 entries; missing or old in the copy: a/b (read: gone), …";
    assert_eq!(incomplete.message, said);
    next_run(&mut status, &failed("PeerLost"));
    assert!(
        is_true(&status.conditions, INCOMPLETE),
        "a run that did not get to its end changes nothing about that"
    );
    next_run(&mut status, &with_failures(0));
    assert!(conditions::find(&status.conditions, INCOMPLETE).is_none() && is_true(&status.conditions, READY));
}

#[test]
fn a_note_is_said_once_and_again_when_it_changes() {
    let mut status = begun();
    let noting = |notes: &[&str]| {
        let mut outcome = succeeded();
        outcome.report.notes = notes.iter().map(|&note| note.into()).collect();
        outcome
    };
    finish(&mut status, &noting(&["root", "6 owners"]), KEEP, at(2000));
    assert_eq!(last(&status).notes, ["root", "6 owners"]);
    next_run(&mut status, &noting(&["root", "7 owners"]));
    assert_eq!(
        (last(&status).notes.as_slice(), status.notes.len()),
        (["7 owners".to_string()].as_slice(), 2)
    );
    next_run(&mut status, &failed("PeerLost"));
    next_run(&mut status, &noting(&["root"]));
    assert!(last(&status).notes.is_empty() && status.notes == ["root"], "{:?}", status.notes);
    next_run(&mut status, &noting(&[]));
    next_run(&mut status, &noting(&["root"]));
    assert_eq!(last(&status).notes, ["root"], "it was not so in between");
}

#[test]
fn owners_that_differ_are_a_condition_as_long_as_they_do_and_no_part_of_other_messages() {
    let mut status = begun();
    let mut outcome = succeeded();
    outcome.report.work.owners_not_kept = 6;
    finish(&mut status, &outcome, KEEP, at(2000));
    let told = conditions::find(&status.conditions, conditions::OWNERS_NOT_KEPT).unwrap();
    assert!(told.message.starts_with("At least 6 entries do not have the owner"), "{}", told.message);
    assert!(told.message.contains("volferry.dev/privileged-syncers"), "{}", told.message);
    assert!(!ready_of(&status).1.contains("owner"), "{}", ready_of(&status).1);
    next_run(&mut status, &failed("PeerLost"));
    assert!(is_true(&status.conditions, conditions::OWNERS_NOT_KEPT), "the copy is as it was");
    next_run(&mut status, &succeeded());
    assert!(conditions::find(&status.conditions, conditions::OWNERS_NOT_KEPT).is_none());
}

#[test]
fn a_run_whose_pods_never_ran_spent_its_time_on_starting_them() {
    let mut status = begun();
    finish(&mut status, &Outcome::stopped(Fault::new(Reason::TimedOut, "Too late.")), KEEP, at(9000));
    let t = last(&status).timings;
    assert_eq!((t.pod_start, t.total), (9000, 9000));
}

#[test]
fn a_pods_clock_that_is_ahead_adds_nothing_to_times() {
    let mut status = begun();
    let (day, now) = (86_400_000, 1000);
    let late =
        Report { start_time: at(day).to_string(), completion_time: at(day + 500).to_string(), ..report() };
    let outcome = Outcome { report: late, may_retry: false, exit: contract::ExitCode::Done };
    finish(&mut status, &outcome, KEEP, at(now));
    assert!(last(&status).timings.total <= 1500, "{:?}", last(&status).timings);
    assert_eq!(last(&status).completion_time.as_ref().unwrap().0, at(now));
}

#[test]
fn a_pods_clock_that_is_behind_does_not_make_times_negative() {
    let mut status = begun();
    let early =
        Report { start_time: at(-700).to_string(), completion_time: at(-200).to_string(), ..report() };
    finish(
        &mut status,
        &Outcome { report: early, may_retry: false, exit: contract::ExitCode::Done },
        KEEP,
        at(1000),
    );
    assert_eq!((last(&status).timings.pod_start, last(&status).timings.total), (0, 500));
    assert!(last(&status).completion_time >= last(&status).start_time);
}

#[test]
fn the_history_is_newest_first_and_bounded() {
    let mut status = SyncJobStatus::default();
    for number in 1..=5 {
        begin(&mut status, new_run("web", number, 1, None, at(0)), at(0));
        finish(&mut status, &succeeded(), Some(KeptRuns { succeeded: 3, failed: 1 }), at(2000));
    }
    let ids: Vec<&str> = status.history.iter().map(|entry| entry.id.as_str()).collect();
    assert_eq!(ids, ["web-5", "web-4", "web-3"]);
    finish_with_limit_zero(&mut status);
    assert!(status.history.is_empty());
}

fn finish_with_limit_zero(status: &mut SyncJobStatus) {
    begin(status, new_run("web", 6, 1, None, at(0)), at(0));
    finish(status, &succeeded(), Some(KeptRuns { succeeded: 0, failed: 1 }), at(2000));
}

#[test]
fn what_a_pod_says_is_bounded() {
    let mut status = begun();
    let mut outcome = failed("9 not a\nreason! ");
    outcome.report.message = "x".repeat(100_000);
    outcome.report.failures =
        vec![Failure { path: "p".into(), operation: "read".into(), error: "e".into() }; 1000];
    outcome.report.notes = (0..1000).map(|n| format!("{n}{}", "x".repeat(10_000))).collect();
    finish(&mut status, &outcome, KEEP, at(3000));
    assert!(last(&status).notes.len() <= MAX_NOTES && last(&status).notes[0].len() <= MAX_NOTE_BYTES);
    assert_eq!(last(&status).reason.as_deref(), Some("notareason"));
    assert!(last(&status).message.as_ref().unwrap().len() <= MAX_MESSAGE_BYTES);
    assert_eq!(last(&status).failures.len(), contract::MAX_FAILURES);
}

/// The greatest numbers that the schema of a report lets pass, whose sums and quotients no status could hold.
#[test]
fn a_run_of_any_report_can_be_written() {
    let most = 9_200_000_000_000_000_000_u64;
    let work = json!({"filesCreated": most, "filesUpdated": most, "bytesChanged": 1, "bytesOnWire": most});
    let fast = json!({"work": {"bytesChanged": most}, "timings": {"total": 1}});
    for told in [json!({"work": work, "timings": {"total": most}}), fast] {
        let report = crate::api::reports::read(told).unwrap();
        let outcome = Outcome { report, may_retry: true, exit: contract::ExitCode::Failed };
        let mut status = begun();
        retry(&mut status, &outcome, at(3000), at(3000));
        finish(&mut status, &outcome, KEEP, at(9000));
        let written =
            crate::status::merge_patch::difference(&SyncJobStatus::default(), &status).unwrap().unwrap();
        let schema = crate::api::crd_schema::of::<SyncJobStatus>().unwrap();
        let schema = jsonschema::validator_for(&serde_json::to_value(schema).unwrap()).unwrap();
        let refused: Vec<String> = schema.iter_errors(&written).map(|error| error.to_string()).collect();
        assert_eq!(refused, Vec::<String>::new());
    }
}
