//! Snapshots of a destination, and restores of them: into a new claim and in place.

use contract::SnapshotReport;
use e2e::{cluster::Sandbox, syncjob, tree, tree::assert_same};
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// The names of the snapshots that the status lists, the newest first.
fn listed(job: &DynamicObject) -> Vec<String> {
    let items = syncjob::status(job, "/snapshots/items").as_array().cloned().unwrap_or_default();
    items.iter().filter_map(|item| item["name"].as_str().map(Into::into)).collect()
}

#[tokio::test]
async fn each_run_takes_a_snapshot_and_an_older_one_is_restored_into_a_new_claim_and_in_place() {
    let sandbox = Sandbox::new("snapshots").await;
    let from = sandbox.volume("from", 0).await.unwrap();
    let to = sandbox.volume("to", 1).await.unwrap();
    from.shell_as_syncer(tree::VARIED).unwrap();
    let first = from.list().unwrap();
    let spec = json!({"trigger": "one", "files": {"delete": true}, "snapshots": {"retain": {"last": 2}}});
    sandbox.sync("copy", spec).await.unwrap();
    let one = listed(&sandbox.until_is("copy", "Ready").await.unwrap());
    from.shell_as_syncer("rm -r site/img; echo new > site/new.html").unwrap();
    let changed = from.list().unwrap();
    let second = sandbox.run_again("copy", "two").await.unwrap();
    let two = listed(&second);
    assert_eq!((one.len(), two.len(), &two[1]), (1, 2, &one[0]), "{second:#?}");
    assert_eq!(syncjob::text(&second, "/snapshots/latest"), two[0]);
    assert_same(&changed, &to.list().unwrap());

    let restored = sandbox.volume("restored", 1).await.unwrap();
    let source = json!({"persistentVolumeClaim": {"claimName": "to"}, "snapshot": one[0]});
    syncjob::create(&sandbox.jobs, restore(&source)).await.unwrap();
    let done = sandbox.until_is("restore", "Ready").await.unwrap();
    assert_same(&first, &restored.list().unwrap());
    let notes = syncjob::status(&done, "/notes").to_string();
    assert!(notes.contains(&format!("the source is snapshot {}", one[0])), "{notes}");

    restore_in_place(&sandbox, &one[0]).await;
    assert_same(&first, &to.list().unwrap());
    resume(&sandbox).await;

    let fewer = json!({"spec": {"trigger": "three", "snapshots": {"retain": {"last": 1}}}});
    sandbox.patch("copy", fewer).await.unwrap();
    let is_over = |job: &DynamicObject| syncjob::text(job, "/lastRun/cause") == "Trigger";
    let kept = sandbox.until("copy", "the run is over", is_over).await.unwrap();
    let report: SnapshotReport = syncjob::part(&kept, "/lastRun/snapshot").unwrap();
    assert_eq!((report.count, listed(&kept).len()), (1, 1), "{kept:#?}");
    assert!(report.dropped_count >= 1 && report.reason.is_none(), "{report:?}");
    assert_same(&changed, &to.list().unwrap());

    let source = json!({"spec": {"source": {"snapshot": "before-back"}}});
    sandbox.patch("restore", source).await.unwrap();
    sandbox.until_is("restore", "Ready").await.unwrap();
    assert_same(&changed, &restored.list().unwrap());
}

/// Brings the destination back to a snapshot, and finds that no run follows for a change of the spec.
async fn restore_in_place(sandbox: &Sandbox, snapshot: &str) {
    let mut back = syncjob::run_now("back", "copy");
    back["spec"]["restore"] = json!({"snapshot": snapshot});
    syncjob::create(&sandbox.runs, back).await.unwrap();
    let is_over = |job: &DynamicObject| syncjob::text(job, "/lastRun/id") == "back";
    let held = sandbox.until("copy", "the restore is over", is_over).await.unwrap();
    assert!(syncjob::is(&held, "Restored") && syncjob::is(&held, "Ready"), "{held:#?}");
    let notes = syncjob::status(&held, "/notes").to_string();
    assert!(notes.contains("the state before is kept in snapshot"), "{notes}");
    sandbox.patch("copy", json!({"spec": {"schedule": {"interval": "1h"}}})).await.unwrap();
    let held = sandbox.until_is("copy", "Ready").await.unwrap();
    assert_eq!(syncjob::text(&held, "/lastRun/id"), "back", "{held:#?}");
    assert!(syncjob::status(&held, "/nextRunTime").is_null(), "{held:#?}");
}

/// Ends the hold of the restore, as a person would without the plugin, and finds that the schedule goes on.
async fn resume(sandbox: &Sandbox) {
    let after = "volferry.dev/resume-after=back";
    sandbox.kubectl.run(&["annotate", "syncjob", "copy", after]).unwrap();
    let goes_on = |job: &DynamicObject| syncjob::status(job, "/nextRunTime").is_string();
    let resumed = sandbox.until("copy", "the schedule goes on", goes_on).await.unwrap();
    assert!(!syncjob::status(&resumed, "/conditions").to_string().contains("Restored"), "{resumed:#?}");
}

fn restore(source: &Value) -> Value {
    let others = json!({"source": source, "files": {"delete": true}});
    syncjob::manifest("restore", "to", "restored", others)
}
