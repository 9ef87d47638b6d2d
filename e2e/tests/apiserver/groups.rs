//! SyncJobSets whose sources are captured together. The test plays the snapshot controller and the provisioner.

use std::pin::pin;

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use kube::{
    api::ApiResource,
    core::GroupVersionKind,
    runtime::watcher::{self, Event},
};

use super::{
    captures::{self, claims, made, snapshots},
    sets::Sets,
};
use crate::prelude::*;

fn group_type() -> ApiResource {
    let kind = GroupVersionKind::gvk("groupsnapshot.storage.k8s.io", "v1beta2", "VolumeGroupSnapshot");
    ApiResource::from_gvk(&kind)
}

fn groups(stage: &Stage) -> Api<DynamicObject> {
    Api::namespaced_with(stage.client.clone(), &stage.namespace, &group_type())
}

/// Makes a stage for sets, in a cluster that knows VolumeGroupSnapshots.
async fn sets(test: &str) -> Result<Sets> {
    let stage = Stage::new(test).await?;
    captures::install_snapshots(&stage).await?;
    captures::install(&stage, &group_type()).await?;
    Ok(Sets::of(stage))
}

/// Returns what makes the SyncJobs of a set read a group, captured within this time.
fn by_group(timeout: &str) -> Value {
    json!({"template": {"spec": {"source": {"pointInTime": {"method": "Group", "timeout": timeout}}}}})
}

async fn answer(stage: &Stage, group: &str, status: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"status": status}));
    groups(stage).patch_status(group, &PatchParams::default(), &patch).await.map(drop).context("a group")
}

/// Takes a group: makes a snapshot of each claim with its labels, as the snapshot controller does.
async fn take(stage: &Stage, group: &DynamicObject) -> Result<()> {
    let (name, uid) = (group.name_any(), group.uid().unwrap_or_default());
    let labels = group.data["spec"]["source"]["selector"]["matchLabels"].as_object().context("labels")?;
    let labels: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    let of = claims(stage).list(&ListParams::default().labels(&labels.join(","))).await?;
    let owner = json!({"apiVersion": "groupsnapshot.storage.k8s.io/v1beta2", "kind": "VolumeGroupSnapshot",
        "name": name, "uid": uid});
    for claim in of {
        let snapshot = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": {"name": member(&uid, &claim.name_any()), "ownerReferences": [owner]},
            "spec": {"source": {"persistentVolumeClaimName": claim.name_any()}}});
        let made =
            snapshots(stage).create(&PostParams::default(), &serde_json::from_value(snapshot)?).await?;
        let ready = json!({"readyToUse": true, "restoreSize": "2Gi"});
        captures::answer(stage, &made.name_any(), ready).await?;
    }
    answer(stage, &name, json!({"readyToUse": true, "error": null})).await
}

/// Returns the name of the snapshot of a claim in the group with that UID.
fn member(uid: &str, claim: &str) -> String {
    format!("snapshot-{uid}-{claim}")
}

/// Removes the snapshots of a group that is gone, as the snapshot controller does.
async fn forget(stage: &Stage, uid: &str) -> Result<()> {
    for snapshot in snapshots(stage).list(&ListParams::default()).await? {
        if snapshot.owner_references().iter().any(|owner| owner.uid == uid) {
            drop(snapshots(stage).delete(&snapshot.name_any(), &DeleteParams::default()).await);
        }
    }
    Ok(())
}

/// Has every group taken at once. Returns only with an error.
async fn play_groups(stage: &Stage) -> Result<()> {
    let mut changes = pin!(wait::unexpired(watcher::watcher(groups(stage), watcher::Config::default())));
    while let Some(event) = changes.next().await {
        match event.context("watching VolumeGroupSnapshots")? {
            Event::Apply(group) | Event::InitApply(group) if group.data["status"].is_null() => {
                take(stage, &group).await?;
            }
            Event::Delete(group) => forget(stage, &group.uid().unwrap_or_default()).await?,
            _ => {}
        }
    }
    bail!("the watch of VolumeGroupSnapshots ended")
}

fn has_no_group(set: &DynamicObject) -> bool {
    syncjob::status(set, "/groupCapture").is_null()
}

fn is_clean(job: &DynamicObject) -> bool {
    syncjob::is(job, "Synced") && syncjob::status(job, "/captures").is_null()
}

/// Waits until the runs of both SyncJobs are over and what was made for them is gone.
async fn until_clean(sets: &Sets) -> Result<()> {
    for job in ["data-0", "data-1"] {
        sets.stage.until(job, "it is done, and nothing is left", is_clean).await?;
    }
    sets.until("its group is gone", has_no_group).await;
    let left = made(&sets.stage).await?;
    ensure!(left.is_empty(), "{left:?}");
    let left = groups(&sets.stage).list(&ListParams::default()).await?.items;
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

#[tokio::test]
async fn the_sources_of_a_set_are_captured_together_once_all_runs_are_ready_and_nothing_is_left() {
    let sets = sets("groups").await.unwrap();
    let stage = &sets.stage;
    let _controller = stage.controller(Cut::Never).await.unwrap();
    sets.claims(&["data-0", "data-1"]).await;
    sets.create(by_group("10m")).await;
    let set = sets.until("a group is asked for", |set| !has_no_group(set)).await;
    let name = syncjob::text(&set, "/groupCapture/name").to_string();
    let group = captures::until_there(&groups(stage), &name).await;
    let selector = json!({"source": {"selector": {"matchLabels": {"app": "web"}}}});
    assert_eq!((&group.data["spec"], &group.owner_references()[0].uid), (&selector, &set.uid().unwrap()));

    answer(stage, &name, json!({"readyToUse": false, "error": {"message": "the pool is full"}}))
        .await
        .unwrap();
    for job in ["data-0", "data-1"] {
        let complains =
            |job: &DynamicObject| syncjob::message(job, "Reconciling").contains("the pool is full");
        stage.until(job, "it passes the complaint on", complains).await.unwrap();
        assert_eq!(stage.children(job).unwrap(), [""; 0], "no pod starts before");
    }

    take(stage, &group).await.unwrap();
    let mut known = Vec::new();
    for _ in 0..2 {
        let (job, pods) = sets.run_any(&known).await;
        known.extend(pods);
        let read =
            claims(stage).list(&ListParams::default().labels(&format!("volferry.dev/run={job}-1"))).await;
        let read = read.unwrap().items.remove(0).spec.unwrap();
        assert_eq!(read.data_source.unwrap().name, member(&group.uid().unwrap(), &job), "its own source");
    }
    tokio::select! {
        done = until_clean(&sets) => done.unwrap(),
        error = stage.play_volumes() => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn a_run_whose_set_has_a_member_that_needs_a_person_holds_nothing_and_names_it() {
    let sets = sets("groups-late").await.unwrap();
    let _controller = sets.stage.controller(Cut::Never).await.unwrap();
    sets.claims(&["data-0", "data-1"]).await;
    sets.stage.lose_claim("data-1-copy").await.unwrap();
    sets.create(by_group("2s")).await;
    let names_it = |job: &DynamicObject| syncjob::message(job, "Stalled").starts_with("SyncJob data-1, ");
    let job = sets.stage.until("data-0", "it waits", names_it).await.unwrap();
    assert!(syncjob::status(&job, "/activeRun/capture").is_null(), "{job:#?}");
    let groups = groups(&sets.stage).list(&ListParams::default()).await.unwrap();
    assert!(groups.items.is_empty(), "{groups:?}");
}

#[tokio::test]
async fn what_can_never_be_captured_together_stalls_before_anything_is_made() {
    let sets = sets("groups-never").await.unwrap();
    let _controller = sets.stage.controller(Cut::Never).await.unwrap();
    sets.claims(&["data-0", "data-1"]).await;
    let mut spec = by_group("10m");
    spec["maxRuns"] = json!(1);
    sets.create(spec).await;
    sets.until_stalled("JobStalled", "spec.maxRuns of the SyncJobSet allows 1").await;
    let source = json!({"pointInTime": {"method": "Group"}});
    sets.stage.sync("alone", json!({"source": source})).await.unwrap();
    let alone = sets.stage.until_is("alone", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&alone, "Stalled", "CaptureFailed"), "{alone:#?}");
    assert!(syncjob::message(&alone, "Stalled").contains("this SyncJob is of none"), "{alone:#?}");
}

#[tokio::test]
async fn a_set_captures_once_and_leaves_nothing_wherever_the_controller_is_killed() {
    let writes = Box::pin(captured(Cut::Never)).await.unwrap();
    assert!(writes > 20, "of two captures with their group: more than {writes} writes");
    cut::each(cuts_before(writes), 4, |cut| Box::pin(captured(cut))).await.unwrap();
}

/// Carries out the runs of a set of two under a controller that is killed at the cut. Returns the number of its writes.
async fn captured(cut: Cut) -> Result<usize> {
    let sets = sets("grouped").await?;
    let stage = &sets.stage;
    // Each play is a large future of its own.
    let lived = Box::pin(async {
        sets.claims(&["data-0", "data-1"]).await;
        sets.create(by_group("10m")).await;
        let first = stage.controller(cut).await?;
        first.until_cut_or(until_clean(&sets)).await?;
        let writes = first.writes();
        drop(first);
        let _second = stage.controller(Cut::Never).await?;
        until_clean(&sets).await?;
        for job in ["data-0", "data-1"] {
            let job = stage.jobs.get(job).await?;
            ensure!(syncjob::text(&job, "/lastRun/id").ends_with("-1"), "{job:#?}");
        }
        anyhow::Ok(writes)
    });
    let lived = async {
        tokio::select! {
            writes = lived => writes,
            error = Box::pin(stage.kubelet.play("data-0", Play::Succeeds)) => bail!("{error:?}"),
            error = Box::pin(stage.kubelet.play("data-1", Play::Succeeds)) => bail!("{error:?}"),
            error = Box::pin(stage.play_volumes()) => bail!("{error:?}"),
            error = Box::pin(play_groups(stage)) => bail!("{error:?}"),
        }
    };
    Box::pin(lived).await.inspect_err(|_| stage.print_diagnosis())
}
