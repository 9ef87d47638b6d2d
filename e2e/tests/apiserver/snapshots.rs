//! Snapshots of a destination: what the sink is asked for, and what the status keeps of its answer.

use contract::{Report, RunResult, SnapshotEntry, SnapshotReport};
use e2e::{report::good_report, scripted::Stage, syncjob};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

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
    let asked = args(&first.1);
    let job = format!("--snapshot-job={}/web", stage.namespace);
    for arg in ["--snapshot", &job, "--snapshot-keep-last=1", "--snapshot-max-bytes=1073741824"] {
        assert!(asked.iter().any(|it| it == arg), "{asked:?}");
    }
    assert!(!args(&first.0).iter().any(|arg| arg.starts_with("--snapshot")), "{:?}", args(&first.0));
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
    stage.kubelet.succeed(&first.0, &first.1, &report).await.unwrap();
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
    let second = stage.kubelet.start_both("web", &[&first.0, &first.1]).await.unwrap();
    let words = serde_json::to_string(&report).unwrap();
    stage.kubelet.end(&second.0, 3, &words).await.unwrap();
    stage.kubelet.end(&second.1, 3, &words).await.unwrap();
    let over = stage.until_is("web", "SnapshotFailed").await.unwrap();
    assert!(syncjob::has_reason(&over, "Stalled", "SnapshotFailed"), "{over:#?}");
    assert!(syncjob::message(&over, "SnapshotFailed").contains("no space left"), "{over:#?}");
    assert!(!syncjob::is(&over, "Incomplete"), "{over:#?}");
    assert_eq!(*syncjob::status(&over, "/snapshots"), listed);
}
