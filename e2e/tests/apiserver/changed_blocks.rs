//! Devices whose storage lists the blocks that changed between two VolumeSnapshots. The test plays the snapshot
//! controller; the agent's own tests have a service to ask.

use std::slice;

use contract::{ContentHash, DeviceContent, RunResult, Work};
use k8s_openapi::api::{rbac::v1::Role, storage::v1::StorageClass};
use kube::{api::ApiResource, core::GroupVersionKind};

use super::captures::{answer, install_as, install_snapshots, is_capturing, made, snapshots, until_there};
use crate::prelude::*;

fn content_type() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", "VolumeSnapshotContent"))
}

fn service_type() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("cbt.storage.k8s.io", "v1beta1", "SnapshotMetadataService"))
}

async fn create(stage: &Stage, of: &ApiResource, manifest: Value) {
    let api: Api<DynamicObject> = Api::all_with(stage.client.clone(), of);
    api.create(&PostParams::default(), &serde_json::from_value(manifest).unwrap()).await.unwrap();
}

/// Makes a stage with two claims of devices, whose driver has a service for changed blocks.
async fn stage_with_service(name: &str) -> Stage {
    let stage = Stage::new(name).await.unwrap();
    install_snapshots(&stage).await.unwrap();
    install_as(&stage, &content_type(), "Cluster").await.unwrap();
    install_as(&stage, &service_type(), "Cluster").await.unwrap();
    let class = json!({"metadata": {"name": stage.namespace}, "provisioner": stage.namespace});
    let classes: Api<StorageClass> = Api::all(stage.client.clone());
    classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    let service = json!({
        "apiVersion": "cbt.storage.k8s.io/v1beta1", "kind": "SnapshotMetadataService",
        "metadata": {"name": stage.namespace},
        "spec": {"address": "driver.storage:6443", "audience": "the-driver", "caCert": "Y2VydGlmaWNhdGU="},
    });
    create(&stage, &service_type(), service).await;
    for claim in ["raw", "raw-copy"] {
        let block = json!({"volumeMode": "Block", "storageClassName": stage.namespace});
        stage.claim_of(claim, "Bound", block).await.unwrap();
    }
    let spec = json!({
        "source": {"persistentVolumeClaim": {"claimName": "raw"}, "pointInTime": {"method": "Snapshot"}},
        "destination": {"persistentVolumeClaim": {"claimName": "raw-copy"}},
        "trigger": "1",
    });
    stage.sync("web", spec).await.unwrap();
    stage
}

/// A run whose pods have been started.
struct Started {
    number: u32,
    snapshot: String,
    snapshot_uid: String,
    source: Pod,
    sink: Pod,
}

impl Started {
    /// Has the storage take the VolumeSnapshot of a run from the same volume as before, and starts the pods.
    async fn of(stage: &Stage, number: u32) -> Self {
        Self::of_volume(stage, number, "volume").await
    }

    async fn of_volume(stage: &Stage, number: u32, volume: &str) -> Self {
        let id = format!("web-{number}");
        stage.patch("web", json!({"spec": {"trigger": number.to_string()}})).await.unwrap();
        let captures = |job: &DynamicObject| syncjob::text(job, "/activeRun/id") == id && is_capturing(job);
        let job = stage.until("web", "it captures", captures).await.unwrap();
        let snapshot = syncjob::text(&job, "/activeRun/capture/name").to_string();
        let made = until_there(&snapshots(stage), &snapshot).await;
        assert_eq!(made.owner_references()[0].kind, "SyncJob");
        let snapshot_uid = made.uid().unwrap();
        let content = format!("{}-{number}", stage.namespace);
        let manifest = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": {"name": content},
            "spec": {
                "driver": stage.namespace, "source": {"volumeHandle": volume},
                "volumeSnapshotRef": {"uid": snapshot_uid},
            },
        });
        create(stage, &content_type(), manifest).await;
        let contents: Api<DynamicObject> = Api::all_with(stage.client.clone(), &content_type());
        let handle = Patch::Merge(json!({"status": {"snapshotHandle": format!("handle-{number}")}}));
        contents.patch_status(&content, &PatchParams::default(), &handle).await.unwrap();
        let taken =
            json!({"readyToUse": true, "restoreSize": "1Gi", "boundVolumeSnapshotContentName": content});
        answer(stage, &snapshot, taken).await.unwrap();
        let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
        Self { number, snapshot, snapshot_uid, source, sink }
    }

    /// Returns what the source's pod asks the storage for.
    fn asks(&self) -> Option<Value> {
        let args = self.source.spec.as_ref().unwrap().containers[0].args.clone().unwrap();
        assert!(args.contains(&"--content-hash".to_string()), "{args:?}");
        let asked = args.iter().find_map(|arg| arg.strip_prefix("--changed-blocks="))?;
        Some(serde_json::from_str(asked).unwrap())
    }

    /// Has the run succeed with the hash of its copy, and waits until its temporary claim is gone.
    async fn succeed(&self, stage: &Stage, byte: u8, notes: &[&str]) -> DynamicObject {
        let id = format!("web-{}", self.number);
        let content = Some(DeviceContent { hash: ContentHash([byte; 32]), bytes_listed: None });
        let report = Report { content, ..good_report(&id) };
        let source = Report { notes: notes.iter().map(ToString::to_string).collect(), ..report.clone() };
        stage.kubelet.succeed_one(Side::Source, &self.source, &source).await.unwrap();
        stage.kubelet.succeed_one(Side::Sink, &self.sink, &report).await.unwrap();
        let is_clean = |job: &DynamicObject| {
            syncjob::text(job, "/lastRun/id") == id && syncjob::status(job, "/captures").is_null()
        };
        tokio::select! {
            done = stage.until("web", "nothing but the base is left", is_clean) => done.unwrap(),
            error = stage.play_volumes() => panic!("{error:?}"),
        }
    }
}

#[tokio::test]
async fn the_last_snapshot_is_the_base_of_the_next_run_and_only_it_is_left() {
    let stage = stage_with_service("changed").await;
    let _controller = stage.controller(Cut::Never).await.unwrap();
    let first = Started::of(&stage, 1).await;
    assert_eq!(first.asks(), None, "there is no base");
    let job = first.succeed(&stage, 1, &[]).await;
    let base = |of: &Started, byte| json!({"snapshot": of.snapshot, "snapshotUid": of.snapshot_uid, "contentHash": ContentHash([byte; 32])});
    assert_eq!(syncjob::status(&job, "/changeBase"), &base(&first, 1));
    assert_eq!(made(&stage).await.unwrap(), slice::from_ref(&first.snapshot));

    let second = Started::of(&stage, 2).await;
    let asked = json!({
        "address": "driver.storage:6443", "audience": "the-driver", "caCert": "Y2VydGlmaWNhdGU=",
        "target": second.snapshot, "base": base(&first, 1), "baseId": "handle-1",
    });
    let mut asks = second.asks().unwrap();
    let patience = asks.as_object_mut().unwrap().remove("patienceSeconds").unwrap();
    assert_eq!((asks, patience.as_u64() > Some(0)), (asked, true));
    let volumes = second.source.spec.as_ref().unwrap().volumes.as_ref().unwrap();
    let projected = volumes
        .iter()
        .find_map(|volume| volume.projected.as_ref().filter(|_| volume.name == "changed-blocks"));
    let sources = projected.unwrap().sources.as_ref().unwrap();
    assert_eq!(sources[0].service_account_token.as_ref().unwrap().audience.as_deref(), Some("the-driver"));
    let roles = stage.api::<Role>();
    let rules = roles
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .flat_map(|role| role.rules.unwrap());
    let may_get =
        |rule: k8s_openapi::api::rbac::v1::PolicyRule| rule.resources == Some(vec!["volumesnapshots".into()]);
    assert!(rules.into_iter().any(may_get));
    let job = second.succeed(&stage, 2, &["the storage does not list what changed"]).await;
    assert_eq!(syncjob::status(&job, "/changeBase"), &base(&second, 2));
    assert_eq!(syncjob::status(&job, "/notes/0"), "the storage does not list what changed");
    assert_eq!(made(&stage).await.unwrap(), slice::from_ref(&second.snapshot), "the base before is gone");

    snapshots(&stage).delete(&second.snapshot, &DeleteParams::default()).await.unwrap();
    let third = Started::of(&stage, 3).await;
    assert_eq!(third.asks(), None, "the base is lost");
    third.succeed(&stage, 3, &[]).await;
    assert_eq!(made(&stage).await.unwrap(), slice::from_ref(&third.snapshot));
    let third = Started::of_volume(&stage, 4, "another").await;
    assert_eq!(third.asks(), None, "the claim has another volume than the base was taken of");
    third.succeed(&stage, 4, &[]).await;

    let plain = json!({"spec": {"source": {"pointInTime": null}, "suspend": true}});
    stage.patch("web", plain).await.unwrap();
    wait::until_gone(&snapshots(&stage), &third.snapshot, PATIENCE).await.unwrap();
    let gave_up = |job: &DynamicObject| syncjob::status(job, "/changeBase").is_null();
    stage.until("web", "it keeps no base", gave_up).await.unwrap();
}

#[tokio::test]
async fn a_run_that_fails_leaves_the_base_and_its_own_snapshot_is_gone() {
    let stage = stage_with_service("changed-fails").await;
    let _controller = stage.controller(Cut::Never).await.unwrap();
    let first = Started::of(&stage, 1).await;
    first.succeed(&stage, 1, &[]).await;
    let second = Started::of(&stage, 2).await;
    // It is not tried again.
    let report = bad_report("web-2", "GuardRefused", "too many deletions");
    let message = serde_json::to_string(&report).unwrap();
    stage.kubelet.end(&second.source, 4, &message).await.unwrap();
    stage.kubelet.end(&second.sink, 4, &message).await.unwrap();
    let is_over = |job: &DynamicObject| {
        syncjob::text(job, "/lastRun/id") == "web-2" && syncjob::status(job, "/captures").is_null()
    };
    tokio::select! {
        done = stage.until("web", "it is over", is_over) => drop(done.unwrap()),
        error = stage.play_volumes() => panic!("{error:?}"),
    }
    wait::until_gone(&snapshots(&stage), &second.snapshot, PATIENCE).await.unwrap();
    let job = stage.jobs.get("web").await.unwrap();
    assert_eq!(syncjob::text(&job, "/changeBase/snapshot"), first.snapshot);
    assert_eq!(made(&stage).await.unwrap(), slice::from_ref(&first.snapshot));
}

#[tokio::test]
async fn a_run_that_found_a_difference_leaves_no_base() {
    let stage = stage_with_service("changed-differs").await;
    let _controller = stage.controller(Cut::Never).await.unwrap();
    stage.patch("web", json!({"spec": {"limits": {"retries": 0}}})).await.unwrap();
    Started::of(&stage, 1).await.succeed(&stage, 1, &[]).await;
    let second = Started::of(&stage, 2).await;
    assert!(second.asks().is_some());
    let work = Work { files_failed: 1, ..Work::default() };
    let reason = Some("FilesFailed".into());
    let report = Report { result: RunResult::PartiallyFailed, reason, work, ..good_report("web-2") };
    let message = serde_json::to_string(&report).unwrap();
    stage.kubelet.end(&second.source, 3, &message).await.unwrap();
    stage.kubelet.end(&second.sink, 3, &message).await.unwrap();
    let gave_up = |job: &DynamicObject| {
        syncjob::status(job, "/changeBase").is_null() && syncjob::status(job, "/captures").is_null()
    };
    tokio::select! {
        done = stage.until("web", "it keeps no base", gave_up) => drop(done.unwrap()),
        error = stage.play_volumes() => panic!("{error:?}"),
    }
    assert!(made(&stage).await.unwrap().is_empty());
}
