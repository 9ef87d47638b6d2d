use contract::{SnapshotEntry, SnapshotReport};

use super::*;
use crate::api::RemoteEndpoint;

fn report(result: RunResult, reason: Option<&str>) -> Option<Report> {
    Some(Report { result, reason: reason.map(Into::into), message: "m".into(), ..Report::default() })
}

fn end(exit: i32, report: Option<Report>) -> Ending {
    Ending { exit: Some(exit), report, ..Ending::default() }
}

fn reason_of(outcome: &Outcome) -> &str {
    outcome.report.reason.as_deref().unwrap_or("none")
}

#[test]
fn a_sink_that_committed_makes_the_run_a_success_whatever_became_of_the_source() {
    let sink = end(0, report(RunResult::Succeeded, None));
    for source in [end(0, None), end(5, None), Ending::of(Fault::new("Evicted", "e")), Ending::default()] {
        let outcome = judge(&source, &sink);
        assert_eq!((outcome.report.result, outcome.may_retry), (RunResult::Succeeded, false));
        assert_eq!(outcome.exit, ExitCode::Done);
    }
}

#[test]
fn a_run_that_was_stopped_on_request_says_so() {
    let stopped = end(1, report(RunResult::Canceled, Some("Stopped")));
    assert_eq!(judge(&stopped, &stopped).report.result, RunResult::Canceled);
}

#[test]
fn an_endpoint_that_stops_a_run_or_shows_another_key_fails_it_and_is_named() {
    let address = Some("h:7400::web".into());
    let folder = RunFolder { address, path: "/".into(), ..RunFolder::default() };
    let stopped = end(1, report(RunResult::Canceled, Some("Canceled")));
    let outcome = judge(&stopped, &Ending::default()).with_endpoint(&folder);
    assert_eq!((outcome.report.result, reason_of(&outcome)), (RunResult::Failed, "PeerLost"));
    assert!(outcome.may_retry && outcome.report.message.starts_with("The endpoint h:7400::web stopped"));
    let own = judge(&end(1, report(RunResult::Failed, Some("TreeUnreadable"))), &Ending::default());
    assert_eq!(own.clone().with_endpoint(&folder), own);

    let key = "2Ej8lyFbGXtk9sU3e3mYwA3HnJpKKeG1kcLEcQWvY1Q=";
    let endpoint = RemoteEndpoint { address: "h::web".into(), public_key: key.into(), identity: None };
    let endpoint = RemoteEnd::parse("destination", &endpoint).unwrap();
    let other = judge(&end(6, report(RunResult::Failed, Some("IdentityRefused"))), &Ending::default());
    let message = other.with_key(&endpoint).report.message;
    assert!(message.contains(&format!("expects the key {key} of h:7400::web")), "{message}");
    assert_eq!(own.clone().with_key(&endpoint), own);
}

#[test]
fn a_success_without_a_report_says_so() {
    let outcome = judge(&end(0, None), &end(0, None));
    assert_eq!(outcome.report.result, RunResult::Succeeded);
    assert!(outcome.report.message.contains("report was lost"));
}

#[test]
fn a_source_alone_cannot_declare_success() {
    let source = end(0, report(RunResult::Succeeded, None));
    let outcome = judge(&source, &end(1, report(RunResult::Failed, Some("NoSpace"))));
    assert_eq!((outcome.report.result, reason_of(&outcome)), (RunResult::Failed, "NoSpace"));
}

#[test]
fn an_end_that_failed_is_believed_before_one_that_has_not_begun() {
    for (exit, reason) in [(1, "NotReadable"), (5, "PeerLost")] {
        let failed = end(exit, report(RunResult::Failed, Some(reason)));
        for outcome in [judge(&failed, &Ending::default()), judge(&Ending::default(), &failed)] {
            assert_eq!((reason_of(&outcome), &*outcome.report.message), (reason, "m"));
        }
    }
}

#[test]
fn refusals_are_never_retried() {
    for (exit, reason) in [(4, "GuardRefused"), (6, "IdentityRefused"), (2, "SyncerUsage")] {
        for (source, sink) in [(exit, 5), (5, exit), (exit, exit)] {
            let outcome = judge(&end(source, None), &end(sink, None));
            assert_eq!((reason_of(&outcome), outcome.may_retry), (reason, false), "{source} {sink}");
        }
    }
}

#[test]
fn a_pod_that_a_person_deletes_cancels_nothing() {
    let stopped = report(RunResult::Canceled, Some("Stopped"));
    let deleted =
        Ending { exit: Some(1), report: stopped, ..Ending::of(Fault::new(Reason::PodDeleted, "d")) };
    let outcome = judge(&end(5, report(RunResult::Failed, Some("PeerLost"))), &deleted);
    assert_eq!((outcome.report.result, reason_of(&outcome)), (RunResult::Failed, "PodDeleted"));
    assert!(outcome.may_retry);
    // One that is deleted by force is gone at once, and its Job says no more than that; its peer was stopped by it.
    let stopped = || report(RunResult::Canceled, Some("Stopped"));
    let lost = Ending { report: stopped(), ..Ending::of(Fault::new(Reason::PodLost, "l")) };
    for peer in [end(1, stopped()), end(5, report(RunResult::Failed, Some("PeerLost"))), Ending::default()] {
        let outcome = judge(&peer, &lost);
        assert_eq!((outcome.report.result, reason_of(&outcome)), (RunResult::Failed, "PodLost"));
        assert!(outcome.may_retry);
    }
}

#[test]
fn advice_names_fields_and_no_flags() {
    let mut full = end(4, report(RunResult::Failed, Some("NotEnoughSpace")));
    full.report.as_mut().unwrap().message = "make room, or have deletes make it with --delete=before".into();
    let said = judge(&full, &full).report.message;
    assert_eq!(said, "make room, or have deletes make it with spec.files.deleteTiming: Before");
}

#[test]
fn a_run_that_took_its_snapshot_does_not_take_another_one() {
    let after = |reason: &str, made: Option<SnapshotEntry>| {
        let mut kept = end(3, report(RunResult::PartiallyFailed, Some(reason)));
        let snapshot = SnapshotReport { made, ..SnapshotReport::default() };
        kept.report.as_mut().unwrap().snapshot = Some(snapshot);
        judge(&kept, &kept).may_retry
    };
    for reason in ["RetentionFailed", "SnapshotInMotion", "SnapshotNotWhole"] {
        assert!(!after(reason, Some(SnapshotEntry::default())), "{reason}");
    }
    assert!(after("SnapshotFailed", None));
}

#[test]
fn a_snapshot_that_is_not_there_is_not_looked_for_again() {
    let missing = end(1, report(RunResult::Failed, Some("SnapshotNotFound")));
    let outcome = judge(&missing, &missing);
    assert_eq!((outcome.may_retry, outcome.needs_person()), (false, true));
    for reason in ["HistoryFailed", "HistoryNotWhole"] {
        let partial = end(3, report(RunResult::PartiallyFailed, Some(reason)));
        let outcome = judge(&partial, &partial);
        assert_eq!((outcome.may_retry, outcome.needs_person()), (false, false), "{reason}");
    }
}

#[test]
fn a_refusal_of_another_destination_says_how_to_accept_it() {
    let refused = end(4, report(RunResult::Failed, Some("OtherDestination")));
    let outcome = judge(&refused, &refused);
    assert_eq!((reason_of(&outcome), outcome.may_retry), ("OtherDestination", false));
    assert!(outcome.report.message.starts_with("m. The expected id"), "{}", outcome.report.message);
    assert!(outcome.report.message.contains("volferry.dev/accept-volume"), "{}", outcome.report.message);
}

#[test]
fn a_lost_peer_is_explained_by_what_became_of_the_peer() {
    let lost = end(5, report(RunResult::Failed, Some("PeerLost")));
    let killed = Ending { exit: Some(137), ..Ending::of(Fault::new("OOMKilled", "raise the limit")) };
    for outcome in [judge(&lost, &killed), judge(&killed, &lost)] {
        assert_eq!((reason_of(&outcome), outcome.may_retry), ("OOMKilled", true));
        assert_eq!(outcome.report.message, "raise the limit");
    }
    let full = end(1, report(RunResult::Failed, Some("NoSpace")));
    assert_eq!(reason_of(&judge(&lost, &full)), "NoSpace");
    assert_eq!(reason_of(&judge(&full, &lost)), "NoSpace");
}

#[test]
fn what_a_killed_end_no_longer_tells_of_its_work_the_other_does() {
    let work = Work { files_created: 7, ..Work::default() };
    let lost = report(RunResult::Failed, Some("PeerLost")).map(|report| Report { work, ..report });
    let killed = report(RunResult::Failed, Some("SyncerKilled"));
    let killed = Ending { report: killed, ..Ending::of(Fault::new(Reason::OutOfMemory, "raise the limit")) };
    let outcome = judge(&killed, &end(5, lost));
    assert_eq!((reason_of(&outcome), outcome.report.work), ("OutOfMemory", work));
    assert!(outcome.report.notes.is_empty(), "the sink told all");
}

#[test]
fn of_a_sink_that_was_killed_the_source_tells_what_it_knows_and_the_rest_is_said_to_be_unknown() {
    let work = Work { files_scanned: 7, bytes_on_wire: 9, ..Work::default() };
    let lost = report(RunResult::Failed, Some("PeerLost")).map(|report| Report { work, ..report });
    let killed = Ending::of(Fault::new(Reason::OutOfMemory, "raise the limit"));
    let outcome = judge(&end(5, lost.clone()), &killed);
    assert_eq!((reason_of(&outcome), outcome.report.work), ("OutOfMemory", work));
    assert_eq!(outcome.report.notes, [SINK_IS_SILENT]);
    let did = Work { files_created: 3, ..Work::default() };
    let sink = report(RunResult::Failed, Some("PeerLost")).map(|report| Report { work: did, ..report });
    let outcome = judge(&end(1, lost), &end(5, sink));
    assert_eq!((outcome.report.work, outcome.report.notes.len()), (did, 0), "the sink knows best");
}

#[test]
fn a_sink_that_failed_before_it_did_anything_has_left_its_figures() {
    let work = Work { files_scanned: 7, ..Work::default() };
    let source = report(RunResult::Failed, Some("Refused")).map(|report| Report { work, ..report });
    let busy = report(RunResult::Failed, Some("DestinationBusy"));
    let busy = busy.map(|report| Report { start_time: "2026-01-01T00:00:00Z".into(), ..report });
    let outcome = judge(&end(5, source), &end(1, busy));
    assert_eq!((reason_of(&outcome), outcome.report.work), ("DestinationBusy", work));
    assert!(outcome.report.notes.is_empty(), "{:?}", outcome.report.notes);
}

#[test]
fn some_failed_files_make_the_run_partial_and_worth_another_try() {
    let outcome = judge(&end(3, None), &end(3, report(RunResult::PartiallyFailed, Some("SomeFilesFailed"))));
    assert_eq!((outcome.report.result, outcome.may_retry), (RunResult::PartiallyFailed, true));
    assert_eq!(reason_of(&outcome), "SomeFilesFailed");
}

fn shard(result: RunResult, reason: Option<&str>, exit: ExitCode) -> Outcome {
    let report = report(result, reason).unwrap();
    Outcome { report, may_retry: exit.may_retry() && exit != ExitCode::Done, exit }
}

fn failed_shard(reason: &str, exit: ExitCode) -> Outcome {
    shard(RunResult::Failed, Some(reason), exit)
}

#[test]
fn of_shards_that_failed_the_one_that_explains_most_is_believed() {
    let lost = failed_shard("ShardLost", ExitCode::PeerLost);
    let peer = failed_shard("PeerLost", ExitCode::PeerLost);
    let full = failed_shard("NoSpace", ExitCode::Failed);
    let guard = failed_shard("SourceEmpty", ExitCode::Guard);
    let cases = [
        (vec![&lost, &peer, &full], "NoSpace", true),
        (vec![&lost, &lost, &peer], "PeerLost", true),
        (vec![&full, &guard, &lost], "SourceEmpty", false),
        (vec![&lost, &lost], "ShardLost", true),
    ];
    for (shards, reason, may_retry) in cases {
        let count = shards.len();
        let outcome = of_shards((0..).zip(shards.into_iter().cloned()).collect(), count);
        assert_eq!((reason_of(&outcome), outcome.may_retry), (reason, may_retry));
    }
}

#[test]
fn one_partial_shard_makes_the_run_partial() {
    let done = shard(RunResult::Succeeded, None, ExitCode::Done);
    let partial = shard(RunResult::PartiallyFailed, Some("FilesFailed"), ExitCode::Partial);
    let outcome = of_shards(vec![(0, done), (1, partial)], 2);
    assert_eq!((outcome.report.result, outcome.exit), (RunResult::PartiallyFailed, ExitCode::Partial));
    assert!(outcome.may_retry && outcome.report.message.starts_with("Shard 1 of 2: "));
}

#[test]
fn failed_files_of_several_shards_are_counted_together_and_not_put_on_one_shard() {
    let done = shard(RunResult::Succeeded, None, ExitCode::Done);
    let mut partial = shard(RunResult::PartiallyFailed, Some("FilesFailed"), ExitCode::Partial);
    partial.report.work.files_failed = 1;
    let said = |shards| of_shards(shards, 3).report.message;
    let one = said(vec![(0, done.clone()), (1, done.clone()), (2, partial.clone())]);
    assert_eq!(one, "Shard 2 of 3: 1 file failed");
    assert_eq!(said(vec![(0, done), (1, partial.clone()), (2, partial)]), "2 files failed");
}

#[test]
fn what_all_shards_say_is_said_once() {
    let guard = failed_shard("SourceEmpty", ExitCode::Guard);
    let outcome = of_shards(vec![(0, guard.clone()), (1, guard)], 2);
    assert_eq!(outcome.report.message, "m");
}

#[test]
fn last_words_stand_in_for_a_report() {
    let sink = Ending { last_words: Some("panicked at x\n".into()), ..end(134, None) };
    let outcome = judge(&end(5, None), &sink);
    assert_eq!(outcome.report.message, "The sink ended with status 134: panicked at x");
    assert!(outcome.may_retry);
}
