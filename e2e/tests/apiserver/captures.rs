//! Runs whose source is captured at one instant. The test plays the snapshot controller and the provisioner.

use std::pin::pin;

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use k8s_openapi::{
    api::batch::v1::Job, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    api::ApiResource,
    core::GroupVersionKind,
    runtime::{WatchStreamExt as _, conditions, watcher},
};

use crate::prelude::*;

fn snapshot_type() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", "VolumeSnapshot"))
}

/// Makes the kind of VolumeSnapshots known to the API server, as the CRDs of the snapshot controller do.
pub(super) async fn install_snapshots(stage: &Stage) -> Result<()> {
    install(stage, &snapshot_type()).await
}

/// Makes a namespaced kind of the snapshot controller known to the API server.
pub(super) async fn install(stage: &Stage, of: &ApiResource) -> Result<()> {
    install_as(stage, of, "Namespaced").await
}

/// Makes a kind of that scope known to the API server.
pub(super) async fn install_as(stage: &Stage, of: &ApiResource, scope: &str) -> Result<()> {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": open, "status": open}});
    let version = json!({"name": of.version, "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema}});
    let manifest = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.{}", of.plural, of.group),
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-csi/external-snapshotter/pull/814"},
        },
        "spec": {"group": of.group, "scope": scope, "versions": [version],
            "names": {"kind": of.kind, "listKind": format!("{}List", of.kind), "plural": of.plural,
                "singular": of.kind.to_lowercase()}},
    });
    let crds = Api::<CustomResourceDefinition>::all(stage.client.clone());
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_string();
    crds.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(manifest)).await?;
    let known = kube::runtime::wait::await_condition(crds, &name, conditions::is_crd_established());
    known.await.context("the CRD is established").map(drop)
}

pub(super) fn snapshots(stage: &Stage) -> Api<DynamicObject> {
    Api::namespaced_with(stage.client.clone(), &stage.namespace, &snapshot_type())
}

pub(super) fn claims(stage: &Stage) -> Api<PersistentVolumeClaim> {
    stage.api()
}

/// Returns an object once it exists.
pub(super) async fn until_there<K: wait::Kind>(api: &Api<K>, name: &str) -> K {
    wait::until(api, name, "it is there", PATIENCE, |_| true).await.unwrap()
}

pub(super) async fn answer(stage: &Stage, name: &str, status: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"status": status}));
    snapshots(stage).patch_status(name, &PatchParams::default(), &patch).await.map(drop).context("a snapshot")
}

/// Has every VolumeSnapshot taken at once. Returns only with an error.
async fn play_snapshots(stage: &Stage) -> Result<()> {
    let changes = watcher(snapshots(stage), watcher::Config::default());
    let mut changes = pin!(wait::unexpired(changes.applied_objects()));
    while let Some(snapshot) = changes.next().await {
        let snapshot = snapshot.context("watching VolumeSnapshots")?;
        if snapshot.data["status"].is_null() {
            answer(stage, &snapshot.name_any(), json!({"readyToUse": true, "restoreSize": "2Gi"})).await?;
        }
    }
    bail!("the watch of VolumeSnapshots ended")
}

/// Returns the names of the claims and VolumeSnapshots that were made for runs.
pub(super) async fn made(stage: &Stage) -> Result<Vec<String>> {
    let all = ListParams::default().labels("volferry.dev/run");
    let claims = claims(stage).list(&all).await?.items;
    let snapshots = snapshots(stage).list(&all).await?.items;
    let left = |deleted: bool, name: String| (!deleted).then_some(name);
    let of_claims =
        claims.iter().filter_map(|it| left(it.metadata.deletion_timestamp.is_some(), it.name_any()));
    let of_snapshots = snapshots.iter().map(kube::ResourceExt::name_any);
    Ok(of_claims.chain(of_snapshots).collect())
}

fn by(method: &str) -> Value {
    let source = json!({"persistentVolumeClaim": {"claimName": "from"}, "pointInTime": {"method": method}});
    json!({"source": source})
}

pub(super) fn is_capturing(job: &DynamicObject) -> bool {
    syncjob::text(job, "/activeRun/stage") == "Capturing"
}

/// Returns the name of the claim that the source's pods mount.
fn read_claim(job: &Job) -> String {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let volumes = pod.and_then(|pod| pod.volumes.as_ref()).into_iter().flatten();
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.map(|claim| format!("{} {:?}", claim.claim_name, claim.read_only)).collect()
}

#[tokio::test]
async fn a_run_reads_the_snapshot_that_is_ready_and_leaves_nothing() {
    let stage = Stage::new("captures").await.unwrap();
    install_snapshots(&stage).await.unwrap();
    let _controller = stage.controller(Cut::Never).await.unwrap();
    stage.sync("web", by("Snapshot")).await.unwrap();
    let job = stage.until("web", "it captures", is_capturing).await.unwrap();
    let name = syncjob::text(&job, "/activeRun/capture/name").to_string();
    let snapshot = until_there(&snapshots(&stage), &name).await;
    assert_eq!(snapshot.data["spec"]["source"]["persistentVolumeClaimName"], "from");
    let owner = &snapshot.owner_references()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("SyncRun", "web-1"));

    answer(&stage, &name, json!({"readyToUse": false, "error": {"message": "the pool is full"}}))
        .await
        .unwrap();
    let complains = |job: &DynamicObject| syncjob::message(job, "Reconciling").contains("the pool is full");
    stage.until("web", "it passes the complaint on", complains).await.unwrap();
    assert_eq!(stage.children("web").unwrap(), [""; 0], "no pod starts before");

    answer(&stage, &name, json!({"readyToUse": true, "restoreSize": "2Gi", "error": null})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    let claim = claims(&stage).get(&name).await.unwrap();
    let spec = serde_json::to_value(claim.spec.unwrap()).unwrap();
    assert_eq!(
        (&spec["dataSource"]["name"], &spec["resources"]["requests"]["storage"]),
        (&json!(name), &json!("2Gi"))
    );
    let jobs = stage.api::<Job>();
    let jobs = jobs
        .list(&ListParams::default().labels(&format!("volferry.dev/side={}", Side::Source)))
        .await
        .unwrap();
    assert_eq!(read_claim(&jobs.items[0]), format!("{name} Some(true)"));

    stage.kubelet.succeed(&source, &sink, &good_report("web-1")).await.unwrap();
    let is_clean = |job: &DynamicObject| syncjob::status(job, "/captures").is_null();
    tokio::select! {
        done = stage.until("web", "nothing is left", is_clean) => drop(done.unwrap()),
        error = stage.play_volumes() => panic!("{error:?}"),
    }
    assert_eq!(made(&stage).await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_clone_is_read_once_it_is_bound() {
    let stage = Stage::new("clones").await.unwrap();
    let _controller = stage.controller(Cut::Never).await.unwrap();
    stage.sync("web", by("Clone")).await.unwrap();
    let job = stage.until("web", "it captures", is_capturing).await.unwrap();
    let name = syncjob::text(&job, "/activeRun/capture/name").to_string();
    let there = wait::until(&claims(&stage), &name, "it is there", PATIENCE, |_| true).await.unwrap();
    assert_eq!(there.spec.unwrap().data_source.unwrap().name, "from");
    assert_eq!(stage.children("web").unwrap(), [""; 0]);
    tokio::select! {
        both = stage.kubelet.start_both("web", &[]) => drop(both.unwrap()),
        error = stage.play_volumes() => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn what_a_job_is_deleted_with_or_suspended_before_is_removed() {
    let stage = Stage::new("captures-left").await.unwrap();
    install_snapshots(&stage).await.unwrap();
    let _controller = stage.controller(Cut::Never).await.unwrap();
    stage.sync("web", by("Snapshot")).await.unwrap();
    let job = stage.until("web", "it captures", is_capturing).await.unwrap();
    let name = syncjob::text(&job, "/activeRun/capture/name").to_string();
    until_there(&snapshots(&stage), &name).await;
    let cancel = json!({"metadata": {"annotations": {"volferry.dev/cancel": "web-1"}}});
    stage.patch("web", cancel).await.unwrap();
    wait::until_gone(&snapshots(&stage), &name, PATIENCE).await.unwrap();
    let is_clean = |job: &DynamicObject| syncjob::status(job, "/captures").is_null();
    stage.until("web", "it knows that", is_clean).await.unwrap();
}

#[tokio::test]
async fn a_run_captures_once_and_leaves_nothing_wherever_the_controller_is_killed() {
    let writes = captured(Cut::Never).await.unwrap();
    assert!(writes > 11, "the capture's beginning, its objects and its end: more than {writes} writes");
    cut::each(cuts_before(writes), 4, captured).await.unwrap();
}

/// Carries out a run under a controller that is killed at the cut. Returns the number of its writes.
async fn captured(cut: Cut) -> Result<usize> {
    let stage = Stage::new("captured").await?;
    install_snapshots(&stage).await?;
    let is_clean =
        |job: &DynamicObject| syncjob::is(job, "Synced") && syncjob::status(job, "/captures").is_null();
    let lived = async {
        stage.sync("web", by("Snapshot")).await?;
        let first = stage.controller(cut).await?;
        first.until_cut_or(async { stage.until("web", "it is done", is_clean).await.map(drop) }).await?;
        let writes = first.writes();
        drop(first);
        let _second = stage.controller(Cut::Never).await?;
        let job = stage.until("web", "it is done", is_clean).await?;
        ensure!(syncjob::text(&job, "/lastRun/id") == "web-1", "{job:#?}");
        ensure!(made(&stage).await?.is_empty(), "{:?}", made(&stage).await?);
        anyhow::Ok(writes)
    };
    let lived = async {
        tokio::select! {
            writes = lived => writes,
            error = stage.kubelet.play("web", Play::Succeeds) => bail!("{error:?}"),
            error = stage.play_volumes() => bail!("{error:?}"),
            error = play_snapshots(&stage) => bail!("{error:?}"),
        }
    };
    lived.await.inspect_err(|_| stage.print_diagnosis())
}
