//! Claims that come up filled with the copy of a SyncJob: the populator, with a simulated storage and binder.

use e2e::kubelet::try_of;
use k8s_openapi::api::{core::v1::PersistentVolume, events::v1::Event};

use crate::prelude::*;

fn claims(stage: &Stage) -> Api<PersistentVolumeClaim> {
    stage.api()
}

/// Makes the claim `web`, which names the SyncJob `copies`.
async fn asks(stage: &Stage, annotations: serde_json::Value) -> PersistentVolumeClaim {
    let source = json!({"apiGroup": "volferry.dev", "kind": "SyncJob", "name": "copies"});
    let spec = json!({"storageClassName": "of-the-test", "accessModes": ["ReadWriteOnce"], "dataSourceRef": source,
        "resources": {"requests": {"storage": "1Gi"}}});
    let claim = json!({"metadata": {"name": "web", "annotations": annotations}, "spec": spec});
    claims(stage).create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap()
}

/// Makes a volume for a claim and binds both, as a provisioner and the binder do.
async fn provision(stage: &Stage, claim: &str) -> String {
    let (api, volumes) = (claims(stage), Api::<PersistentVolume>::all(stage.client.clone()));
    let there = wait::until(&api, claim, "the temporary claim is made", PATIENCE, |_| true).await.unwrap();
    let name = format!("pv-{}", there.uid().unwrap());
    let holder = json!({"namespace": stage.namespace, "name": claim, "uid": there.uid()});
    let volume = json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": "1Gi"}, "storageClassName": "of-the-test",
        "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}, "claimRef": holder}});
    volumes.create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap();
    bind(stage, claim, &name).await;
    name
}

async fn bind(stage: &Stage, claim: &str, volume: &str) {
    let api = claims(stage);
    let named = Patch::Merge(json!({"spec": {"volumeName": volume}}));
    api.patch(claim, &PatchParams::default(), &named).await.unwrap();
    let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    api.patch_status(claim, &PatchParams::default(), &bound).await.unwrap();
}

#[tokio::test]
async fn a_claim_comes_up_with_the_copy_of_the_syncjob_that_it_names_wherever_the_populator_is_killed() {
    let (stage, _controller) = Stage::with_controller("populated").await.unwrap();
    let populator = stage.populator().await.unwrap();
    let claim = asks(&stage, json!({})).await;
    let events = stage.api::<Event>();
    let says = |reason: &'static str| {
        move |event: &Event| {
            event.reason.as_deref() == Some(reason)
                && event.reporting_controller.as_deref() == Some("volferry-populator")
        }
    };
    wait::until_any(&events, "", "there is no such SyncJob", PATIENCE, says("JobNotFound")).await.unwrap();
    stage.sync("copies", json!({})).await.unwrap();
    let first = stage.kubelet.start_both("copies", &[]).await.unwrap();
    wait::until_any(&events, "", "it has no copy yet", PATIENCE, says("NoCopyYet")).await.unwrap();
    let temporary = format!("vf-populate-{}", claim.uid().unwrap());
    assert!(
        claims(&stage).get_opt(&temporary).await.unwrap().is_none(),
        "nothing is made before there is a copy"
    );
    stage.kubelet.succeed(&first[0], &first[1], &good_report(&try_of(&first[1]))).await.unwrap();
    stage.until_done("copies").await.unwrap();

    drop(populator);
    let populator = stage.populator().await.unwrap();
    let volume = provision(&stage, &temporary).await;
    let filler = stage.until(&temporary, "a SyncJob fills it", |_| true).await.unwrap();
    let ends = (&filler.data["spec"]["source"], &filler.data["spec"]["destination"]);
    assert_eq!(ends.0["persistentVolumeClaim"]["claimName"], "to");
    assert_eq!(ends.1["persistentVolumeClaim"]["claimName"], temporary.as_str());
    let [source, sink] = stage.kubelet.start_both(&temporary, &[]).await.unwrap();
    drop(populator);
    let volumes = Api::<PersistentVolume>::all(stage.client.clone());
    let holder =
        |volume: &PersistentVolume| volume.spec.as_ref().unwrap().claim_ref.as_ref().unwrap().uid.clone();
    assert_ne!(holder(&volumes.get(&volume).await.unwrap()), claim.uid(), "it is not filled yet");
    stage.kubelet.succeed(&source, &sink, &good_report(&try_of(&sink))).await.unwrap();
    let synced = |job: &DynamicObject| syncjob::is(job, "Synced");
    stage.until(&temporary, "it is filled", synced).await.unwrap();

    let _populator = stage.populator().await.unwrap();
    let is_given = |volume: &PersistentVolume| holder(volume) == claim.uid();
    tokio::select! {
        given = wait::until(&volumes, &volume, "it is given away", PATIENCE, is_given) => drop(given.unwrap()),
        error = stage.kubelet.release(&temporary) => panic!("{error:?}"),
    }
    bind(&stage, "web", &volume).await;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let is_going = |claim: &PersistentVolumeClaim| claim.metadata.deletion_timestamp.is_some();
    wait::until(&claims(&stage), &temporary, "it is deleted", PATIENCE, is_going).await.unwrap();
    drop(claims(&stage).patch(&temporary, &PatchParams::default(), &free).await);
    wait::until_gone(&claims(&stage), &temporary, PATIENCE).await.unwrap();
    wait::until_any(&events, "", "it is filled", PATIENCE, says("Populated")).await.unwrap();
}

#[tokio::test]
async fn a_claim_comes_up_empty_only_if_it_says_so() {
    let stage = Stage::new("empty").await.unwrap();
    let _populator = stage.populator().await.unwrap();
    stage.sync("copies", json!({"suspend": true})).await.unwrap();
    let claim = asks(&stage, json!({"volferry.dev/if-none": "Empty"})).await;
    let temporary = format!("vf-populate-{}", claim.uid().unwrap());
    let volume = provision(&stage, &temporary).await;
    let volumes = Api::<PersistentVolume>::all(stage.client.clone());
    let is_given = |volume: &PersistentVolume| {
        volume.spec.as_ref().unwrap().claim_ref.as_ref().unwrap().uid == claim.uid()
    };
    wait::until(&volumes, &volume, "it is given away", PATIENCE, is_given).await.unwrap();
}
