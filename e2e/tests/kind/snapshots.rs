//! Snapshots of a destination, and a restore of one into a new claim.

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
async fn each_run_takes_a_snapshot_and_an_older_one_is_restored_into_a_new_claim() {
    let sandbox = Sandbox::new("snapshots").await;
    let from = sandbox.volume("from", 0).await.unwrap();
    let to = sandbox.volume("to", 1).await.unwrap();
    from.shell_as_syncer(tree::VARIED).unwrap();
    let first = from.list().unwrap();
    let spec = json!({"trigger": "one", "files": {"delete": true}, "snapshots": {"retain": {"last": 2}}});
    sandbox.sync("copy", spec).await.unwrap();
    let one = listed(&sandbox.until_is("copy", "Ready").await.unwrap());
    from.shell_as_syncer("rm -r site/img; echo new > site/new.html").unwrap();
    let second = sandbox.run_again("copy", "two").await.unwrap();
    let two = listed(&second);
    assert_eq!((one.len(), two.len(), &two[1]), (1, 2, &one[0]), "{second:#?}");
    assert_eq!(syncjob::text(&second, "/snapshots/latest"), two[0]);
    assert_same(&from.list().unwrap(), &to.list().unwrap());

    let restored = sandbox.volume("restored", 1).await.unwrap();
    let source = json!({"persistentVolumeClaim": {"claimName": "to"}, "snapshot": one[0]});
    syncjob::create(&sandbox.jobs, restore(&source)).await.unwrap();
    let done = sandbox.until_is("restore", "Ready").await.unwrap();
    assert_same(&first, &restored.list().unwrap());
    let notes = syncjob::status(&done, "/notes").to_string();
    assert!(notes.contains(&format!("the source is snapshot {}", one[0])), "{notes}");

    let fewer = json!({"spec": {"trigger": "three", "snapshots": {"retain": {"last": 1}}}});
    sandbox.patch("copy", fewer).await.unwrap();
    let kept = sandbox.until_is("copy", "Ready").await.unwrap();
    let report: SnapshotReport = syncjob::part(&kept, "/lastRun/snapshot").unwrap();
    assert_eq!((report.count, listed(&kept).len()), (1, 1), "{kept:#?}");
    assert!(report.dropped_count >= 1 && report.reason.is_none(), "{report:?}");
}

fn restore(source: &Value) -> Value {
    syncjob::manifest("restore", "to", "restored", json!({"source": source}))
}
