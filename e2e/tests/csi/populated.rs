//! Claims that come up filled with the copy of a SyncJob, with a real scheduler, provisioner and binder.

use std::{env, path::Path};

use e2e::{
    cluster::{PATIENCE, Sandbox},
    csi::GROWS,
    syncjob,
    tutorial::Tutorial,
    volume::Volume,
    wait,
};
use k8s_openapi::api::{core::v1::PersistentVolumeClaim, events::v1::Event};
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};

/// Makes a source, and the volume that the SyncJob `copy` writes to.
async fn source(sandbox: &Sandbox) -> Volume {
    let from = sandbox.volume("from", 0).await.unwrap();
    sandbox.volume("to", 1).await.unwrap();
    from
}

/// Makes the claim `new`, which names the SyncJob `copy`. Returns it with the name of its temporary claim.
async fn asks(
    sandbox: &Sandbox,
    class: &str,
    size: &str,
    annotations: Value,
) -> (PersistentVolumeClaim, String) {
    let source = json!({"apiGroup": "volferry.dev", "kind": "SyncJob", "name": "copy"});
    let claim = json!({"metadata": {"name": "new", "annotations": annotations}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": class, "dataSourceRef": source, "resources": {"requests": {"storage": size}}}});
    let claims = sandbox.api::<PersistentVolumeClaim>();
    let claim = claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    let temporary = format!("vf-populate-{}", claim.uid().unwrap());
    (claim, temporary)
}

/// Waits until the populator has told this reason as an event. Returns its message.
async fn until_told(sandbox: &Sandbox, reason: &'static str) -> String {
    let says = |event: &Event| {
        event.reason.as_deref() == Some(reason)
            && event.reporting_controller.as_deref() == Some("volferry-populator")
    };
    let event = wait::until_any(&sandbox.api::<Event>(), "", reason, PATIENCE, says).await.unwrap();
    event.note.unwrap_or_default()
}

/// Waits until neither the temporary claim nor the SyncJob that fills it is there.
async fn until_alone(sandbox: &Sandbox, temporary: &str) {
    wait::until_gone(&sandbox.api::<PersistentVolumeClaim>(), temporary, PATIENCE).await.unwrap();
    wait::until_gone(&sandbox.jobs, temporary, PATIENCE).await.unwrap();
    let jobs = sandbox.jobs.list(&ListParams::default()).await.unwrap();
    assert_eq!(jobs.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["copy"]);
}

/// Deletes the claim `new`, and waits until the storage has nothing of a volume any more.
async fn delete(sandbox: &Sandbox, temporary: &str, volume: &str) {
    let claims = sandbox.api::<PersistentVolumeClaim>();
    claims.delete("new", &DeleteParams::default()).await.unwrap();
    wait::until_gone(&claims, "new", PATIENCE).await.unwrap();
    until_alone(sandbox, temporary).await;
    sandbox.until_freed(volume).await.unwrap();
}

fn volume_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref()
}

/// Returns the output of a script in the folder of a pod's volume.
fn in_pod(sandbox: &Sandbox, script: &str) -> String {
    let script = format!("cd /data && {script}");
    sandbox.kubectl.run(&["exec", "reader-0", "--", "sh", "-c", &script]).unwrap()
}

#[tokio::test]
async fn a_claim_waits_for_a_copy_and_comes_up_with_it_at_the_node_of_its_pod() {
    let sandbox = Sandbox::new("populated").await;
    sandbox.storage_class("memory-lazy", GROWS).await.unwrap();
    let from = source(&sandbox).await;
    from.shell_as_syncer("mkdir folder; head -c 3M /dev/urandom > folder/file; ln -s folder/file link")
        .unwrap();
    let (_, temporary) = asks(&sandbox, "memory-lazy", "64Mi", json!({})).await;
    let copies_at_last = async {
        until_told(&sandbox, "JobNotFound").await;
        let spec = json!({"suspend": true, "snapshots": {"retain": {"last": 2}}});
        sandbox.sync("copy", spec).await.unwrap();
        // The volume itself has said so.
        until_told(&sandbox, "NoCopyYet").await;
        sandbox.patch("copy", json!({"spec": {"suspend": false}})).await.unwrap();
        sandbox.until_is("copy", "Synced").await.unwrap();
    };
    let (pod, ()) = tokio::join!(sandbox.application("reader", "new"), copies_at_last);
    pod.unwrap();
    let hash = "sha256sum folder/file link";
    assert_eq!(in_pod(&sandbox, hash).as_bytes(), from.shell(hash).unwrap());
    until_alone(&sandbox, &temporary).await;
}

#[tokio::test]
async fn a_claim_of_an_immediate_class_comes_up_with_the_snapshot_that_it_names_and_without_a_pod() {
    let sandbox = Sandbox::new("immediate").await;
    let from = source(&sandbox).await;
    from.shell_as_syncer("echo old > file; echo only then > gone").unwrap();
    sandbox
        .sync("copy", json!({"files": {"delete": true}, "snapshots": {"retain": {"last": 2}}}))
        .await
        .unwrap();
    let first = sandbox.until_is("copy", "Synced").await.unwrap();
    let snapshot = syncjob::text(&first, "/snapshots/latest");
    assert_ne!(snapshot, "", "{first:#?}");
    from.shell_as_syncer("echo new > file; rm gone").unwrap();
    sandbox.run_again("copy", "once more").await.unwrap();

    let (_, temporary) = asks(&sandbox, GROWS, "16Mi", json!({"volferry.dev/snapshot": snapshot})).await;
    let is_bound = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Bound"))
    };
    let claims = sandbox.api::<PersistentVolumeClaim>();
    let claim = wait::until(&claims, "new", "it is bound", PATIENCE, is_bound).await.unwrap();
    until_told(&sandbox, "Populated").await;
    until_alone(&sandbox, &temporary).await;

    sandbox.application("reader", "new").await.unwrap();
    assert_eq!(in_pod(&sandbox, "cat file gone"), "old\nonly then\n");
    sandbox.kubectl.run(&["delete", "pod", "reader-0", "--grace-period=1"]).unwrap();
    delete(&sandbox, &temporary, volume_of(&claim).unwrap()).await;
}

#[tokio::test]
async fn a_claim_that_the_driver_makes_no_volume_for_says_so_and_leaves_nothing() {
    let sandbox = Sandbox::new("driver-fails").await;
    let from = source(&sandbox).await;
    from.shell_as_syncer("echo kept > file").unwrap();
    sandbox.sync("copy", json!({})).await.unwrap();
    sandbox.until_is("copy", "Synced").await.unwrap();
    let (_, temporary) = asks(&sandbox, GROWS, "2Gi", json!({})).await;
    let message = until_told(&sandbox, "ClaimNotBound").await;
    assert!(message.contains("a volume has at most 1073741824 bytes"), "{message}");
    let claims = sandbox.api::<PersistentVolumeClaim>();
    let made = claims.get(&temporary).await.unwrap();
    assert_eq!(volume_of(&claims.get("new").await.unwrap()), None, "it does not come up empty");
    delete(&sandbox, &temporary, &format!("pvc-{}", made.uid().unwrap())).await;
}

#[tokio::test]
async fn a_claim_that_the_copy_does_not_fit_into_does_not_come_up_and_leaves_nothing() {
    let sandbox = Sandbox::new("overfull").await;
    let from = source(&sandbox).await;
    from.shell_as_syncer("head -c 8M /dev/urandom > large").unwrap();
    sandbox.sync("copy", json!({})).await.unwrap();
    sandbox.until_is("copy", "Synced").await.unwrap();
    let (_, temporary) = asks(&sandbox, GROWS, "4Mi", json!({})).await;
    let message = until_told(&sandbox, "NotEnoughSpace").await;
    assert!(message.contains(&format!("The SyncJob {temporary} fills it")), "{message}");
    let claims = sandbox.api::<PersistentVolumeClaim>();
    let made = claims.get(&temporary).await.unwrap();
    assert_eq!(volume_of(&claims.get("new").await.unwrap()), None, "it does not come up in part");
    delete(&sandbox, &temporary, volume_of(&made).unwrap()).await;
}

#[tokio::test]
async fn an_application_is_deployed_or_restored_by_one_manifest() {
    let sandbox = Sandbox::with("deploy-or-restore", json!({}), json!({})).await;
    sandbox.storage_class("fast", GROWS).await.unwrap();
    let (folder, kubeconfig) = (tempfile::tempdir().unwrap(), env::var_os("KUBECONFIG").unwrap());
    let page = Tutorial::open("deploy-or-restore", folder.path(), Path::new(&kubeconfig), &sandbox.namespace);
    page.await.unwrap().follow(0..=usize::MAX).await.unwrap();
}
