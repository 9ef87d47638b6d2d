//! Claims that are missing or cannot be mounted: the status names them, and the run continues once they are usable.

use contract::{ExitCode, VolumeId};

use crate::prelude::*;

#[tokio::test]
async fn a_destination_that_is_not_there_is_created_once_and_again_when_it_was_deleted() {
    let (stage, _controller) = Stage::with_controller("create").await.unwrap();
    let create = json!({"size": "7Gi", "accessModes": ["ReadWriteMany"]});
    let destination = json!({"persistentVolumeClaim": {"claimName": "made"}, "create": create});
    stage.sync("web", json!({"destination": destination})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    let claims = stage.api::<PersistentVolumeClaim>();
    let first = claims.get("made").await.unwrap();
    let spec = first.spec.clone().unwrap();
    assert_eq!(spec.access_modes.unwrap(), ["ReadWriteMany"]);
    assert_eq!(spec.resources.unwrap().requests.unwrap()["storage"].0, "7Gi");
    assert_eq!(first.metadata.owner_references, None);
    // A volume's id shows a run that the claim was deleted and made again.
    let report = Report { volume: Some(VolumeId::new([7; 16])), ..good_report("web-1") };
    stage.kubelet.succeed(&source, &sink, &report).await.unwrap();
    stage.until_is("web", "Ready").await.unwrap();

    stage.lose_claim("made").await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[&source, &sink]).await.unwrap();
    assert_ne!(claims.get("made").await.unwrap().metadata.uid, first.metadata.uid);
    stage.kubelet.succeed(&source, &sink, &good_report("web-2")).await.unwrap();
    let done = |job: &DynamicObject| syncjob::status(job, "/lastRun/cause") == "Destination";
    stage.until("web", "the new claim is filled", done).await.unwrap();
}

#[tokio::test]
async fn a_source_that_was_made_anew_stalls_the_job_until_a_person_accepts_it() {
    let (stage, _controller) = Stage::with_controller("source").await.unwrap();
    stage.claim("data", "Bound").await.unwrap();
    stage.sync("web", json!({"source": {"persistentVolumeClaim": {"claimName": "data"}}})).await.unwrap();
    let first = stage.kubelet.complete("web", &[]).await.unwrap();
    let done = stage.until_is("web", "Ready").await.unwrap();
    let claims = stage.api::<PersistentVolumeClaim>();
    let uid = claims.get("data").await.unwrap().metadata.uid.unwrap();
    assert_eq!(syncjob::text(&done, "/source/claimUid"), uid);

    stage.lose_claim("data").await.unwrap();
    stage.claim("data", "Bound").await.unwrap();
    stage.patch("web", json!({"spec": {"trigger": "again"}})).await.unwrap();
    let stalled = stage.until_reason("web", "Stalled", "OtherSource").await.unwrap();
    let uid = claims.get("data").await.unwrap().metadata.uid.unwrap();
    let cure = format!("volferry.dev/accept-source={uid}");
    assert!(syncjob::message(&stalled, "Stalled").contains(&cure), "{stalled:#?}");

    let accepted = json!({"metadata": {"annotations": {"volferry.dev/accept-source": uid}}});
    stage.patch("web", accepted).await.unwrap();
    stage.kubelet.complete("web", &first.each_ref()).await.unwrap();
    let is_known = |job: &DynamicObject| syncjob::text(job, "/source/claimUid") == uid;
    stage.until("web", "the new claim is known", is_known).await.unwrap();
}

#[tokio::test]
async fn another_volume_below_the_source_is_refused_by_the_destination_until_its_id_is_accepted() {
    let (stage, _controller) = Stage::with_controller("othersource").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let asked = |sink: &Pod| sink.spec.as_ref().unwrap().containers[0].args.clone().unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    assert!(asked(&sink).contains(&"--other-source=refuse".into()), "the SyncJob has no status yet");
    let refused = bad_report("web-1", "OtherSource", "the copy is of another source");
    let refused = serde_json::to_string(&refused).unwrap();
    stage.kubelet.end(&sink, ExitCode::Guard as i32, &refused).await.unwrap();
    stage.kubelet.end(&source, ExitCode::Guard as i32, &refused).await.unwrap();
    let stalled = stage.until_reason("web", "Stalled", "OtherSource").await.unwrap();
    let message = syncjob::message(&stalled, "Stalled");
    assert!(message.contains("volferry.dev/accept-source=ID"), "{message}");

    let id = "07".repeat(16);
    let accepted = json!({"metadata": {"annotations": {"volferry.dev/accept-source": id}}});
    stage.patch("web", accepted).await.unwrap();
    stage.patch("web", json!({"spec": {"trigger": "again"}})).await.unwrap();
    let [_, sink] = stage.kubelet.start_both("web", &[&source, &sink]).await.unwrap();
    assert!(asked(&sink).contains(&format!("--other-source={id}")), "{:?}", asked(&sink));
}

#[tokio::test]
async fn a_missing_claim_is_named_and_the_run_begins_when_it_is_there() {
    let (stage, _controller) = Stage::with_controller("missing").await.unwrap();
    let destination = json!({"destination": {"persistentVolumeClaim": {"claimName": "late"}}});
    stage.sync("web", destination).await.unwrap();
    let stalled = stage.until_is("web", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&stalled, "Stalled", "ClaimNotFound"));
    let message = syncjob::message(&stalled, "Stalled");
    assert!(message.contains(&format!("{}/late", stage.namespace)), "{message}");
    assert!(message.contains("spec.destination.persistentVolumeClaim.claimName"), "{message}");
    assert_eq!(stage.children("web").unwrap(), [""; 0]);

    stage.claim("late", "Bound").await.unwrap();
    tokio::select! {
        done = stage.until_is("web", "Ready") => drop(done.unwrap()),
        error = stage.kubelet.play("web", Play::Succeeds) => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn a_claim_whose_class_is_not_there_stalls_and_a_lost_one_too() {
    let (stage, _controller) = Stage::with_controller("unbound").await.unwrap();
    for (claim, phase, reason, word) in [
        ("unbound", "Pending", "ClaimNotBound", "of-the-test"),
        ("lost", "Lost", "ClaimLost", "lost its volume"),
    ] {
        stage.claim(claim, phase).await.unwrap();
        stage.sync(claim, json!({"source": {"persistentVolumeClaim": {"claimName": claim}}})).await.unwrap();
        let stalled = stage.until_is(claim, "Stalled").await.unwrap();
        assert!(syncjob::has_reason(&stalled, "Stalled", reason), "{stalled:#?}");
        let message = syncjob::message(&stalled, "Stalled");
        assert!(message.contains(word), "{message}");
    }
}

#[tokio::test]
async fn a_block_volume_goes_onto_another_and_not_onto_folders() {
    let (stage, _controller) = Stage::with_controller("block").await.unwrap();
    let claims = stage.api::<PersistentVolumeClaim>();
    for name in ["raw", "raw-copy"] {
        let block = json!({"metadata": {"name": name}, "spec": {"volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}});
        claims.create(&PostParams::default(), &serde_json::from_value(block).unwrap()).await.unwrap();
        let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
        claims.patch_status(name, &PatchParams::default(), &bound).await.unwrap();
    }
    let raw = json!({"persistentVolumeClaim": {"claimName": "raw"}});

    stage.sync("web", json!({"source": raw})).await.unwrap();
    let stalled = stage.until_is("web", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&stalled, "Stalled", "BlockVolume"));
    let message = syncjob::message(&stalled, "Stalled");
    assert!(message.contains("spec.destination.path"), "{message}");
    assert_eq!(stage.children("web").unwrap(), [""; 0]);

    let copy = json!({"persistentVolumeClaim": {"claimName": "raw-copy"}});
    stage.sync("disk", json!({"source": raw, "destination": copy})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("disk", &[]).await.unwrap();
    for (pod, path) in [(&source, "/dev/volferry-source"), (&sink, "/dev/volferry-destination")] {
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let devices = container.volume_devices.as_ref().unwrap();
        assert_eq!((devices[0].name.as_str(), devices[0].device_path.as_str()), ("data", path));
        assert!(container.args.as_ref().unwrap().contains(&path.to_string()), "{container:?}");
    }

    let image = json!({"persistentVolumeClaim": {"claimName": "to"}, "path": "/disk.img"});
    stage.sync("image", json!({"source": raw, "destination": image})).await.unwrap();
    let [_, sink] = stage.kubelet.start_both("image", &[]).await.unwrap();
    assert_eq!(sink.spec.unwrap().containers[0].volume_devices, None);
}

#[tokio::test]
async fn a_claim_that_is_being_deleted_is_no_place_for_a_run() {
    let (stage, _controller) = Stage::with_controller("terminating").await.unwrap();
    let claims = stage.api::<PersistentVolumeClaim>();
    // The API server's own finalizer, which protects claims in use, keeps the claim.
    claims.delete("to", &DeleteParams::default()).await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let stalled = stage.until_is("web", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&stalled, "Stalled", "ClaimTerminating"), "{stalled:#?}");
}

#[tokio::test]
async fn a_job_whose_claim_is_lost_is_not_ready_any_more_and_runs_onto_one_that_is_made_anew() {
    let (stage, _controller) = Stage::with_controller("lost").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    let volume = Some(contract::VolumeId::new([7; 16]));
    let report = contract::Report { volume, ..good_report("web-1") };
    stage.kubelet.succeed(&source, &sink, &report).await.unwrap();
    stage.until_is("web", "Ready").await.unwrap();

    stage.lose_claim("to").await.unwrap();
    let stalled = stage.until_reason("web", "Stalled", "ClaimNotFound").await.unwrap();
    assert!(!syncjob::is(&stalled, "Ready"));
    stage.claim("to", "Bound").await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[&source, &sink]).await.unwrap();
    let volume = Some(contract::VolumeId::new([8; 16]));
    let report = contract::Report { volume, ..good_report("web-2") };
    stage.kubelet.succeed(&source, &sink, &report).await.unwrap();
    let done = stage.until_is("web", "Ready").await.unwrap();
    assert_eq!(syncjob::text(&done, "/lastRun/id"), "web-2");

    stage.lose_claim("from").await.unwrap();
    stage.until_reason("web", "Stalled", "ClaimNotFound").await.unwrap();
}

#[tokio::test]
async fn a_destination_that_is_deleted_during_a_run_stops_it_and_stalls_the_job() {
    let (stage, _controller) = Stage::with_controller("doomed").await.unwrap();
    stage.sync("web", json!({"limits": {"retries": 0}})).await.unwrap();
    let pods = stage.kubelet.start_both("web", &[]).await.unwrap();
    stage.until("web", "it runs", |job| syncjob::text(job, "/phase") == "Running").await.unwrap();
    let claims = stage.api::<PersistentVolumeClaim>();
    claims.delete("to", &DeleteParams::default()).await.unwrap();
    let stalled = stage.until_is("web", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&stalled, "Stalled", "ClaimTerminating"), "{stalled:#?}");
    assert!(!syncjob::is(&stalled, "Ready"));
    for side in [Side::Source, Side::Sink] {
        stage.kubelet.deleted_pod("web", side).await.unwrap();
    }
    stage.kubelet.finish_deletions().await.unwrap();
    stage.lose_claim("to").await.unwrap();
    stage.until_reason("web", "Stalled", "ClaimNotFound").await.unwrap();

    stage.claim("to", "Bound").await.unwrap();
    stage.kubelet.complete("web", &pods.each_ref()).await.unwrap();
    stage.until_is("web", "Ready").await.unwrap();
}

#[tokio::test]
async fn a_source_that_is_deleted_during_a_run_stalls_the_job_when_the_run_has_ended() {
    let (stage, _controller) = Stage::with_controller("leaving").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    let claims = stage.api::<PersistentVolumeClaim>();
    claims.delete("from", &DeleteParams::default()).await.unwrap();
    stage.kubelet.succeed(&source, &sink, &good_report("web-1")).await.unwrap();
    let stalled = stage.until_is("web", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&stalled, "Stalled", "ClaimTerminating"), "{stalled:#?}");
    assert_eq!(syncjob::text(&stalled, "/lastRun/result"), "Succeeded");
}

/// Kubernetes protects a claim while any pod names it, even one that has ended.
#[tokio::test]
async fn a_claim_that_is_deleted_after_a_run_is_not_held_by_the_pods_of_that_run() {
    let (stage, _controller) = Stage::with_controller("released").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let [_, sink] = stage.kubelet.complete("web", &[]).await.unwrap();
    stage.until_done("web").await.unwrap();
    assert_eq!(stage.kept("web").await.unwrap(), ["web-1"; 2]);
    let claims = stage.api::<PersistentVolumeClaim>();
    let deleted = claims.delete("to", &DeleteParams::default()).await.unwrap();
    assert!(deleted.is_left(), "a claim that is protected");
    let pods = stage.api::<Pod>();
    wait::until_gone(&pods, &sink.name_any(), PATIENCE).await.unwrap();
    let run = stage.runs.get("web-1").await.unwrap();
    assert_eq!(syncjob::text(&run, "/stage"), "Done", "what has ended does not begin to end again");
}
