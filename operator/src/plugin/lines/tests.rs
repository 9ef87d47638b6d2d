use contract::{Phase, Progress, RunResult, Timings, Work};
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::api::{KeptSnapshot, Stage, SyncRunStatus};

fn read(value: serde_json::Value) -> SyncJob {
    serde_json::from_value(value).unwrap()
}

/// Returns a SyncJob of the second generation with that phase and reason, after one run.
fn job_in(phase: &str, reason: &str, suspend: bool) -> SyncJob {
    let status = if phase == "Succeeded" { "True" } else { "False" };
    let at = "2026-11-22T20:44:47Z";
    let condition = |kind, message| json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at});
    read(json!({
        "apiVersion": "volferry.dev/v1alpha1",
        "kind": "SyncJob",
        "metadata": {"name": "web", "namespace": "prod", "generation": 2},
        "spec": {
            "source": {"persistentVolumeClaim": {"claimName": "from"}},
            "destination": {"persistentVolumeClaim": {"claimName": "to"}},
            "schedule": {"interval": "1h"},
            "suspend": suspend,
        },
        "status": {
            "observedGeneration": 2,
            "phase": phase,
            "conditions": [condition("Ready", "What happened."), condition("Synced", "Run web-1 made the copy.")],
            "summary": {"files": "2/3", "transferred": "10", "duration": "10ms"},
            "lastSuccessTime": "2026-11-22T20:44:47Z",
            "nextRunTime": "2026-11-22T21:44:47Z",
            "lastRun": {
                "id": "web-1", "number": 1, "result": if phase == "Succeeded" { "Succeeded" } else { "Failed" },
                "completionTime": "2026-11-22T20:44:47Z",
                "timings": {"podStart": 24, "scan": 2, "transfer": 1200, "total": 1226},
                "work": {"filesScanned": 3, "filesCreated": 2, "bytesChanged": 10, "bytesOnWire": 2048},
            },
        },
    }))
}

#[test]
fn a_job_that_succeeded_has_its_last_and_its_next_run() {
    let lines = job(&job_in("Succeeded", "Succeeded", false), None, &Scope::default());
    assert_eq!(
        lines,
        [
            "SyncJob       prod/web",
            "State         Succeeded",
            "Reason        Succeeded",
            "Message       What happened.",
            "Synced        True: Run web-1 made the copy.",
            "Last run      web-1, Succeeded, ended 2026-11-22T20:44:47Z, took 1.2s",
            "Timings       podStart 24ms, scan 2ms, transfer 1.2s",
            "Work          2/3 entries changed, 10 bytes, 2.0Ki on the wire",
            "Last success  2026-11-22T20:44:47Z",
            "Next run      2026-11-22T21:44:47Z",
        ]
    );
}

#[test]
fn a_job_that_needs_somebody_has_a_hint_with_the_command() {
    let at = Scope { namespace: Some("dr".into()), context: Some("far".into()), ..Scope::default() };
    let last = |job: &SyncJob| super::job(job, None, &at).pop().unwrap();
    assert_eq!(
        last(&job_in("Failed", "NoSpace", false)),
        "hint: kubectl volferry logs -n prod --context=far web"
    );
    let suspended = job_in("Suspended", "Suspended", true);
    assert_eq!(last(&suspended), "hint: kubectl volferry resume -n prod --context=far web");
    assert!(job(&suspended, None, &at).contains(&"Next run      none while suspended".to_string()));
    let mut unseen = job_in("Succeeded", "Succeeded", false);
    unseen.metadata.generation = Some(3);
    assert!(last(&unseen).starts_with("hint: the operator has not seen this spec yet"), "{}", last(&unseen));
}

#[test]
fn a_run_in_progress_has_its_stage_and_progress_and_a_suspension_waits_for_its_end() {
    let mut running = job_in("Running", "Running", true);
    let at = k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(Timestamp::UNIX_EPOCH);
    running.status.as_mut().unwrap().active_run = Some(ActiveRun {
        id: "web-2".into(),
        stage: Stage::Running,
        retries: 1,
        start_time: Some(at),
        ..ActiveRun::default()
    });
    let progress =
        Progress { phase: Phase::Transfer, files: 1, files_total: 2, bytes: 5, bytes_total: 2048, rate: 5 };
    let of = |run: &str| RunProgress { run: run.into(), progress, ..RunProgress::default() };
    let lines = job(&running, Some(&of("web-2.retry1")), &Scope::default());
    assert_eq!(lines[1], "State         Running, suspended after this run");
    assert_eq!(lines[3], "Message       Run web-2 is under way.");
    assert_eq!(lines[5], "Run now       web-2, Running, retry 1, Transfer 1/2 files, 5 of 2.0Ki");
    let lines = job(&running, Some(&of("web-2")), &Scope::default());
    assert_eq!(lines[5], "Run now       web-2, Running, retry 1", "progress of an earlier try");
}

#[test]
fn conditions_beside_ready_have_lines_of_their_own() {
    let mut incomplete = job_in("Failed", "FilesLeftOut", false);
    let status = incomplete.status.as_mut().unwrap();
    let mut condition = status.conditions[0].clone();
    (condition.type_, condition.status) = ("Incomplete".into(), "True".into());
    status.conditions.push(condition.clone());
    condition.type_ = "PerformanceRegressed".into();
    condition.status = "False".into();
    status.conditions.push(condition);
    let lines = job(&incomplete, None, &Scope::default());
    assert!(lines.contains(&"Incomplete: What happened.".to_string()), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.starts_with("PerformanceRegressed")), "{lines:#?}");
}

#[test]
fn a_table_has_a_line_for_each_job_new_ones_too() {
    let new = read(json!({
        "apiVersion": "volferry.dev/v1alpha1",
        "kind": "SyncJob",
        "metadata": {"name": "new", "namespace": "dev"},
        "spec": {
            "source": {"persistentVolumeClaim": {"claimName": "a"}},
            "destination": {"persistentVolumeClaim": {"claimName": "b"}},
        },
    }));
    let listed = [new, job_in("Succeeded", "Succeeded", false)];
    let words = |line: &String| line.split_whitespace().map(String::from).collect::<Vec<_>>();
    let lines = jobs(&listed, true);
    assert_eq!(words(&lines[1]), ["dev", "new", "-", "-", "Pending", "-", "-", "-", "-"]);
    let times = ["2026-11-22T20:44:47Z", "2026-11-22T21:44:47Z"];
    assert_eq!(
        words(&lines[2]),
        ["prod", "web", "True", "True", "Succeeded", "Succeeded", times[0], times[1], "10ms"]
    );
    assert!(lines[0].starts_with("NAMESPACE   NAME   READY   SYNCED   STATE"), "{}", lines[0]);
    assert!(jobs(&listed, false)[0].starts_with("NAME   READY"));
}

#[test]
fn a_run_has_its_cause_and_its_end() {
    let mut run: SyncRun = serde_json::from_value(json!({
        "apiVersion": "volferry.dev/v1alpha1",
        "kind": "SyncRun",
        "metadata": {"name": "web-1", "creationTimestamp": "2026-11-22T20:44:47Z"},
        "spec": {"syncJob": {"name": "web"}, "cause": "Manual"},
    }))
    .unwrap();
    let report = Run { result: RunResult::Failed, reason: Some("NoSpace".into()), ..Run::default() };
    run.status =
        Some(SyncRunStatus { stage: Some(Stage::Done), report: Some(report), ..SyncRunStatus::default() });
    let lines = runs(&[run]);
    let words: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(
        words,
        ["web-1", "Manual", "Done", "Failed", "NoSpace", "-", "-", "-", "2026-11-22T20:44:47Z"]
    );
}

#[test]
fn snapshots_say_what_keeps_them() {
    let item = KeptSnapshot {
        name: "s1".into(),
        reasons: vec!["daily".into(), "last".into()],
        ..KeptSnapshot::default()
    };
    let status = SnapshotStatus { count: 12, bytes: 2048, items: vec![item], ..SnapshotStatus::default() };
    let damaged = snapshots(&status, Some("Run web-1 found 2 objects damaged."));
    assert_eq!(damaged[0], "Corrupt: Run web-1 found 2 objects damaged.");
    let lines = snapshots(&status, None);
    assert_eq!(lines, damaged[1..]);
    assert_eq!(lines[0], "12 kept, 2.0Ki added; the newest 1:");
    assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["s1", "-", "-", "daily,last"]);
}

#[test]
fn a_report_is_what_the_program_would_have_written() {
    let job = job_in("Succeeded", "Succeeded", false);
    let run = job.status.unwrap().last_run.unwrap();
    let report = report(&run, None);
    assert_eq!((report.run.as_str(), report.completion_time.as_str()), ("web-1", "2026-11-22T20:44:47Z"));
    let timings = Timings { pod_start: 24, scan: 2, transfer: 1200, total: 1226, ..Timings::default() };
    let work = Work {
        files_scanned: 3,
        files_created: 2,
        bytes_changed: 10,
        bytes_on_wire: 2048,
        ..Work::default()
    };
    assert_eq!((report.timings, report.work), (timings, work));
}
