//! Runs after which the storage takes a VolumeSnapshot of the destination. The test plays the snapshot controller.

use super::captures::{answer, claims, install_snapshots, snapshots, until_there};
use crate::prelude::*;

fn keeping(last: u32) -> Value {
    let images = json!({"retain": {"last": last}, "volumeSnapshotClassName": "fast", "timeout": "30s"});
    json!({"destination": {"persistentVolumeClaim": {"claimName": "to"}, "volumeSnapshots": images}})
}

/// Has a run of that number succeed, and returns the name of the VolumeSnapshot that it asks for.
async fn succeed(stage: &Stage, number: u32) -> String {
    let run = format!("web-{number}");
    stage.kubelet.complete("web", &[]).await.unwrap();
    let asks = |job: &DynamicObject| {
        syncjob::text(job, "/activeRun/id") == run && !syncjob::text(job, "/activeRun/image/name").is_empty()
    };
    let job = stage.until("web", "it asks for an image", asks).await.unwrap();
    syncjob::text(&job, "/activeRun/image/name").to_string()
}

async fn until_over(stage: &Stage, number: u32) -> DynamicObject {
    let run = format!("web-{number}");
    let is_over = |job: &DynamicObject| syncjob::text(job, "/lastRun/id") == run;
    stage.until("web", "the run is over", is_over).await.unwrap()
}

async fn run_again(stage: &Stage, trigger: &str) {
    stage.patch("web", json!({"spec": {"trigger": trigger}})).await.unwrap();
}

fn taken() -> Value {
    json!({"creationTime": "2026-11-25T10:00:00Z", "readyToUse": false})
}

#[tokio::test]
async fn after_each_success_the_storage_takes_an_image_and_only_the_newest_stay() {
    let stage = Stage::new("images").await.unwrap();
    install_snapshots(&stage).await.unwrap();
    let _controller = stage.controller(Cut::Never).await.unwrap();
    stage.sync("web", keeping(1)).await.unwrap();

    let first = succeed(&stage, 1).await;
    let image = until_there(&snapshots(&stage), &first).await;
    let spec = json!({"source": {"persistentVolumeClaimName": "to"}, "volumeSnapshotClassName": "fast"});
    assert_eq!(image.data["spec"], spec);
    assert_eq!(image.owner_references()[0].kind, "SyncJob");
    answer(&stage, &first, json!({"error": {"message": "the pool is full"}})).await.unwrap();
    let complains =
        |job: &DynamicObject| syncjob::text(job, "/activeRun/message").contains("the pool is full");
    stage.until("web", "it passes the complaint on", complains).await.unwrap();
    let mut done = taken();
    done["error"] = Value::Null;
    answer(&stage, &first, done).await.unwrap();
    let job = until_over(&stage, 1).await;
    let expected = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": first});
    assert_eq!(syncjob::status(&job, "/latestImage"), &expected);

    // A claim is being made from the first one, so that it stays although only one is kept.
    let origin = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": first});
    let copy = json!({"metadata": {"name": "copy"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}, "dataSource": origin}});
    claims(&stage).create(&PostParams::default(), &serde_json::from_value(copy).unwrap()).await.unwrap();
    run_again(&stage, "two").await;
    let second = succeed(&stage, 2).await;
    until_there(&snapshots(&stage), &second).await;
    answer(&stage, &second, taken()).await.unwrap();
    let job = until_over(&stage, 2).await;
    assert_eq!(syncjob::text(&job, "/latestImage/name"), second);
    assert_eq!(snapshots(&stage).list(&ListParams::default()).await.unwrap().items.len(), 2);

    let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    claims(&stage).patch_status("copy", &PatchParams::default(), &bound).await.unwrap();
    run_again(&stage, "three").await;
    let third = succeed(&stage, 3).await;
    until_there(&snapshots(&stage), &third).await;
    answer(&stage, &third, taken()).await.unwrap();
    until_over(&stage, 3).await;
    for gone in [&first, &second] {
        wait::until_gone(&snapshots(&stage), gone, PATIENCE).await.unwrap();
    }
    until_there(&snapshots(&stage), &third).await;
}

#[tokio::test]
async fn an_image_that_nobody_takes_leaves_the_files_in_step_and_the_run_says_so() {
    let stage = Stage::new("images-none").await.unwrap();
    let _controller = stage.controller(Cut::Never).await.unwrap();
    // The kind may be there, as other tests install it, or not: nobody takes a VolumeSnapshot either way.
    let mut spec = keeping(1);
    spec["destination"]["volumeSnapshots"]["timeout"] = json!("1s");
    stage.sync("web", spec).await.unwrap();
    succeed(&stage, 1).await;
    let job = until_over(&stage, 1).await;
    assert_eq!(syncjob::text(&job, "/lastRun/result"), "PartiallyFailed");
    assert_eq!(syncjob::text(&job, "/lastRun/reason"), "VolumeSnapshotFailed");
    assert!(syncjob::status(&job, "/latestImage").is_null());
}
