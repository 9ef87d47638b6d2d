//! Snapshots of a destination: the sink's arguments, and the answer that the status keeps.

use contract::{HistoryReport, Reason, RunResult, SnapshotEntry, SnapshotReport, VerifyReport};

use crate::plugin;
use crate::prelude::*;

fn entry(id: &str) -> SnapshotEntry {
    let taken = "2026-11-22T18:00:00Z".into();
    SnapshotEntry { id: id.into(), taken, reasons: vec!["last".into()], ..SnapshotEntry::default() }
}

fn args(pod: &Pod) -> Vec<String> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.flat_map(|container| container.args.iter().flatten().cloned()).collect()
}

#[tokio::test]
async fn the_sink_is_asked_for_snapshots_and_the_status_lists_them() {
    let (stage, _controller) = Stage::with_controller("snapshots").await.unwrap();
    let spec = json!({"snapshots": {"retain": {"last": 1, "maxBytes": "1Gi"}}, "limits": {"retries": 0}});
    stage.sync("web", spec).await.unwrap();
    let first = stage.kubelet.start_both("web", &[]).await.unwrap();
    let asked = args(&first[1]);
    let job = format!("--snapshot-job={}/web", stage.namespace);
    for arg in ["--snapshot", &job, "--snapshot-keep-last=1", "--snapshot-max-bytes=1073741824"] {
        assert!(asked.iter().any(|it| it == arg), "{asked:?}");
    }
    assert!(!args(&first[0]).iter().any(|arg| arg.starts_with("--snapshot")), "{:?}", args(&first[0]));
    let id = "00000000000000aa";
    let snapshot = SnapshotReport {
        made: Some(entry(id)),
        count: 1,
        bytes: 7,
        kept: vec![entry(id)],
        dropped_count: 1,
        dropped: vec!["00000000000000bb".into()],
        ..SnapshotReport::default()
    };
    let report = Report { snapshot: Some(snapshot.clone()), ..good_report("web-1") };
    stage.kubelet.succeed(&first[0], &first[1], &report).await.unwrap();
    let done = stage.until_is("web", "Ready").await.unwrap();
    assert_eq!(syncjob::part::<SnapshotReport>(&done, "/lastRun/snapshot").unwrap(), snapshot);
    let listed = json!({"count": 1, "latest": id, "bytes": 7,
        "items": [{"name": id, "time": "2026-11-22T18:00:00Z", "reasons": ["last"]}]});
    assert_eq!(*syncjob::status(&done, "/snapshots"), listed);

    let message = "the run succeeded, and its snapshot failed: no space left";
    let failed = SnapshotReport {
        reason: Some("SnapshotFailed".into()),
        message: message.into(),
        ..SnapshotReport::default()
    };
    let report = Report {
        result: RunResult::PartiallyFailed,
        reason: Some("SnapshotFailed".into()),
        message: message.into(),
        snapshot: Some(failed),
        ..good_report("web-2")
    };
    stage.patch("web", json!({"spec": {"trigger": "again"}})).await.unwrap();
    let second = stage.kubelet.start_both("web", &first.each_ref()).await.unwrap();
    let words = serde_json::to_string(&report).unwrap();
    stage.kubelet.end(&second[0], 3, &words).await.unwrap();
    stage.kubelet.end(&second[1], 3, &words).await.unwrap();
    let over = stage.until_is("web", "SnapshotFailed").await.unwrap();
    assert!(syncjob::has_reason(&over, "Stalled", "SnapshotFailed"), "{over:#?}");
    assert!(syncjob::message(&over, "SnapshotFailed").contains("no space left"), "{over:#?}");
    assert!(!syncjob::is(&over, "Incomplete"), "{over:#?}");
    assert_eq!(*syncjob::status(&over, "/snapshots"), listed);
}

#[tokio::test]
async fn snapshots_of_the_source_travel_with_a_run_and_the_status_counts_them() {
    let (stage, _controller) = Stage::with_controller("history").await.unwrap();
    let source = json!({"persistentVolumeClaim": {"claimName": "from"}, "history": "Kept"});
    let spec = json!({"source": source, "snapshots": {"retain": {"daily": 7}}});
    stage.sync("web", spec).await.unwrap();
    let first = stage.kubelet.start_both("web", &[]).await.unwrap();
    assert!(args(&first[0]).iter().any(|arg| arg == "--history=kept"), "{:?}", args(&first[0]));
    let sink = args(&first[1]);
    for arg in ["--history=kept", "--snapshot-keep-daily=7"] {
        assert!(sink.iter().any(|it| it == arg), "{arg}: {sink:?}");
    }
    let history = HistoryReport { copied: 3, present: 4, dropped: 1, bytes: 9, ..HistoryReport::default() };
    let report = Report { history: Some(history.clone()), ..good_report("web-1") };
    stage.kubelet.succeed(&first[0], &first[1], &report).await.unwrap();
    let done = stage.until_is("web", "Ready").await.unwrap();
    assert_eq!(syncjob::part::<HistoryReport>(&done, "/lastRun/history").unwrap(), history);

    let mut broken = good_report("web-2");
    let mut history = HistoryReport { failed: 1, ..HistoryReport::default() };
    history.name_first_failed("00000000000000aa", "it has a damaged large");
    broken.add_history(history);
    stage.patch("web", json!({"spec": {"trigger": "again"}})).await.unwrap();
    let second = stage.kubelet.start_both("web", &first.each_ref()).await.unwrap();
    let words = serde_json::to_string(&broken).unwrap();
    stage.kubelet.end(&second[0], 3, &words).await.unwrap();
    stage.kubelet.end(&second[1], 3, &words).await.unwrap();
    let is_over = |job: &DynamicObject| syncjob::text(job, "/lastRun/reason") == "HistoryNotWhole";
    let over = stage.until("web", "its snapshots are not all copied", is_over).await.unwrap();
    assert_eq!(*syncjob::status(&over, "/lastRun/retries"), json!(0), "no try follows: {over:#?}");
    assert!(!syncjob::is(&over, "Incomplete"), "{over:#?}");
}

#[tokio::test]
async fn history_is_refused_with_what_it_does_not_fit() {
    let stage = Stage::new("history-refused").await.unwrap();
    let source = |more: Value| {
        let mut source = json!({"persistentVolumeClaim": {"claimName": "from"}, "history": "All"});
        source.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        source
    };
    for (spec, why) in [
        (
            json!({"source": source(json!({"pointInTime": {"method": "Clone"}}))}),
            "pointInTime reads it as it was",
        ),
        (json!({"source": source(json!({"snapshot": "latest"}))}), "snapshot reads one of its snapshots"),
        (json!({"source": source(json!({"history": "Kept"}))}), "Kept keeps what snapshots.retain keeps"),
        (
            json!({"source": source(json!({})), "files": {"exclude": ["*.tmp"]}}),
            "copies snapshots as a whole",
        ),
        (json!({"source": source(json!({})), "parallelism": 2}), "by one run"),
    ] {
        let refused = stage.sync("web", spec.clone()).await.unwrap_err();
        assert!(format!("{refused:#}").contains(why), "{spec}: {refused:#}");
    }
}

/// Returns the report of a run whose check found `damaged` damaged objects.
fn checked(run: &str, damaged: u64) -> Report {
    let files = (damaged > 0).then(|| "large in 00000000000000aa".into()).into_iter().collect();
    let verify = VerifyReport { part: "2/3".into(), checked: 7, damaged, files, ..VerifyReport::default() };
    let mut report = good_report(run);
    let reason = (damaged > 0).then_some(Reason::SnapshotsDamaged);
    let (made, verify) = (Some(entry("00000000000000aa")), Some(verify));
    report.add_snapshot(SnapshotReport { made, verify, reason, ..SnapshotReport::default() });
    report
}

#[tokio::test]
async fn damage_that_a_check_finds_is_shown_until_a_check_finds_none() {
    let (stage, _controller) = Stage::with_controller("corrupt").await.unwrap();
    let spec = json!({"snapshots": {"verify": {"parts": 3, "bandwidthLimit": "1Mi"}}});
    stage.sync("web", spec).await.unwrap();
    let first = stage.kubelet.start_both("web", &[]).await.unwrap();
    let asked = args(&first[1]);
    for arg in ["--snapshot-verify=3", "--snapshot-verify-bandwidth-limit=1048576"] {
        assert!(asked.iter().any(|it| it == arg), "{asked:?}");
    }
    let words = serde_json::to_string(&checked("web-1", 2)).unwrap();
    stage.kubelet.end(&first[0], 3, &words).await.unwrap();
    stage.kubelet.end(&first[1], 3, &words).await.unwrap();
    let over = stage.until_is("web", "Corrupt").await.unwrap();
    let message = syncjob::message(&over, "Corrupt");
    assert!(message.contains("2 objects") && message.contains("large in 00000000000000aa"), "{message}");
    assert!(syncjob::has_reason(&over, "Stalled", "SnapshotsDamaged"), "no try follows: {over:#?}");
    assert!(!syncjob::is(&over, "SnapshotFailed"), "{over:#?}");
    assert!(!syncjob::status(&over, "/lastSuccessTime").is_null(), "the files are synced: {over:#?}");
    assert_eq!(*syncjob::status(&over, "/snapshots/damaged"), json!(2));
    assert_eq!(syncjob::text(&over, "/lastRun/snapshot/verify/part"), "2/3");

    stage.patch("web", json!({"spec": {"trigger": "again"}})).await.unwrap();
    let second = stage.kubelet.start_both("web", &first.each_ref()).await.unwrap();
    stage.kubelet.succeed(&second[0], &second[1], &checked("web-2", 0)).await.unwrap();
    let healed = stage.until_is("web", "Ready").await.unwrap();
    assert!(syncjob::condition(&healed, "Corrupt").is_none(), "{healed:#?}");
    assert_eq!(*syncjob::status(&healed, "/snapshots/damaged"), json!(0));
}

/// Two claims that only one node each can mount may be on different nodes.
#[tokio::test]
async fn a_snapshot_of_another_claim_is_sent_by_a_pod_of_its_own() {
    let (stage, _controller) = Stage::with_controller("restore-far").await.unwrap();
    let source = json!({"snapshot": "as-of:2026-11-22T18:00:00Z"});
    stage.sync("web", json!({"source": source, "files": {"delete": true}})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    let asked = args(&source);
    for arg in ["send", "--source-snapshot=as-of:2026-11-22T18:00:00Z", "--delete"] {
        assert!(asked.iter().any(|it| it == arg), "{arg}: {asked:?}");
    }
    let asked = args(&sink);
    assert!(!asked.iter().any(|arg| arg.contains("snapshot")), "{asked:?}");
    stage.kubelet.succeed(&source, &sink, &good_report("web-1")).await.unwrap();
    stage.until_is("web", "Ready").await.unwrap();
}

/// Returns the condition of a restore in place, of any generation of the spec.
fn restored(job: &DynamicObject) -> Option<&Value> {
    syncjob::status(job, "/conditions").as_array()?.iter().find(|condition| condition["type"] == "Restored")
}

/// The job's source is gone, its schedule is due all the time, and the job is suspended.
#[tokio::test]
async fn a_restore_in_place_needs_no_source_and_holds_back_the_schedule_until_a_person_resumes() {
    let (stage, _controller) = Stage::with_controller("restore").await.unwrap();
    let claim = json!({"persistentVolumeClaim": {"claimName": "gone"}});
    let spec = json!({"source": claim, "schedule": {"interval": "1s"}, "suspend": true, "snapshots": {}});
    stage.sync("web", spec).await.unwrap();
    stage.until("web", "it is suspended", |job| syncjob::text(job, "/phase") == "Suspended").await.unwrap();
    ask_for_restore(&stage).await;
    let pod = stage.kubelet.new_pod("web", Side::Sink, &[]).await.unwrap();
    assert_restores(&pod);
    stage.kubelet.start(&pod).await.unwrap();
    // A spec that changes while pods start makes them anew.
    stage.until("web", "it runs", |job| syncjob::text(job, "/phase") == "Running").await.unwrap();
    stage.patch("web", json!({"spec": {"suspend": false}})).await.unwrap();
    stage.kubelet.succeed_one(Side::Sink, &pod, &good_report("back")).await.unwrap();
    let held = stage
        .until("web", "the restore is over", |job| syncjob::text(job, "/lastRun/id") == "back")
        .await
        .unwrap();
    assert_eq!(syncjob::text(&held, "/lastRun/cause"), "Restore");
    let told = restored(&held).unwrap();
    assert_eq!((&told["status"], &told["reason"]), (&json!("True"), &json!("RestoredInPlace")));
    let after = "volferry.dev/resume-after=UID, the UID of SyncRun back";
    assert!(told["message"].as_str().unwrap().contains(after), "{told}");
    assert!(syncjob::status(&held, "/nextRunTime").is_null(), "{held:#?}");
    assert!(syncjob::status(&held, "/lastSuccessTime").is_null(), "{held:#?}");

    let resumed = plugin::told(&stage, &["resume", "web"]).await;
    assert_eq!(resumed, "syncjob.volferry.dev/web resumed\n");
    stage.until("web", "the hold ended", |job| restored(job).is_none()).await.unwrap();
    let due = |job: &DynamicObject| {
        syncjob::has_reason(job, "Stalled", "ClaimNotFound")
            || syncjob::has_reason(job, "Reconciling", "ClaimNotFound")
    };
    stage.until("web", "a run is due again", due).await.unwrap();
}

/// Asks for a restore of two paths, after restores that are refused.
async fn ask_for_restore(stage: &Stage) {
    let mut back = syncjob::run_now("back", "web");
    back["spec"]["restore"] = json!({"snapshot": "as-of:yesterday"});
    let refused = syncjob::create(&stage.runs, back.clone()).await.unwrap_err();
    assert!(format!("{refused:#}").contains("is not a time"), "{refused:#}");
    for (paths, word) in
        [(json!(["../x"]), "is not a file or folder inside the volume"), (json!([]), "paths")]
    {
        back["spec"]["restore"] = json!({"snapshot": "gold", "paths": paths});
        let refused = syncjob::create(&stage.runs, back.clone()).await.unwrap_err();
        assert!(format!("{refused:#}").contains(word), "{refused:#}");
    }
    back["spec"]["restore"] = json!({"snapshot": "gold", "paths": ["/accounts/2026.csv", "/mail"]});
    syncjob::create(&stage.runs, back).await.unwrap();
}

/// Asserts that the pod of that restore mounts the destination alone.
fn assert_restores(pod: &Pod) {
    let asked = args(pod);
    for arg in [
        "/source",
        "--delete",
        "--adopt",
        "--source-snapshot=gold",
        "--snapshot-before=before-back",
        "--restore-path=/accounts/2026.csv",
        "--restore-path=/mail",
        "--run=back",
    ] {
        assert!(asked.iter().any(|it| it == arg), "{arg}: {asked:?}");
    }
    assert!(!asked.iter().any(|arg| arg == "--snapshot"), "{asked:?}");
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims: Vec<_> =
        volumes.filter_map(|it| Some(&it.persistent_volume_claim.as_ref()?.claim_name)).collect();
    assert!(claims.len() == 1 && claims[0] != "gone", "{claims:?}");
}

#[tokio::test]
async fn a_restore_stops_the_run_in_progress_and_fails_at_once_without_its_snapshot() {
    let (stage, _controller) = Stage::with_controller("restore-first").await.unwrap();
    stage.sync("web", json!({"snapshots": {}})).await.unwrap();
    let [_, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    let mut back = syncjob::run_now("back", "web");
    back["spec"]["restore"] = json!({"snapshot": "gold"});
    syncjob::create(&stage.runs, back).await.unwrap();
    let stopped = |job: &DynamicObject| {
        syncjob::text(job, "/lastRun/reason") == "Replaced" && syncjob::text(job, "/activeRun/id") == "back"
    };
    let restoring = stage.until("web", "the restore takes its place", stopped).await.unwrap();
    assert!(
        syncjob::text(&restoring, "/lastRun/message").contains("a restore was asked for"),
        "{restoring:#?}"
    );
    for side in [Side::Source, Side::Sink] {
        stage.kubelet.deleted_pod("web", side).await.unwrap();
    }
    stage.kubelet.finish_deletions().await.unwrap();
    let pod = stage.kubelet.new_pod("web", Side::Sink, &[&sink]).await.unwrap();
    assert!(args(&pod).iter().any(|arg| arg == "--source-snapshot=gold"), "{:?}", args(&pod));
    stage.kubelet.start(&pod).await.unwrap();
    let missing = bad_report("back", "SnapshotNotFound", "there is no snapshot gold");
    stage.kubelet.end(&pod, 1, &serde_json::to_string(&missing).unwrap()).await.unwrap();
    let failed = stage.until_is("web", "Stalled").await.unwrap();
    assert_eq!(syncjob::status(&failed, "/lastRun/retries"), 0, "{failed:#?}");
    let advice = syncjob::message(&failed, "Stalled");
    assert!(advice.contains("kubectl volferry restore") && !advice.contains("spec.trigger"), "{advice}");
}
