//! Claims that come up filled with the copy of a SyncJob, with a real scheduler, provisioner and binder.

use std::{env, path::Path};

use e2e::{
    cluster::{PATIENCE, Sandbox},
    csi::GROWS,
    tutorial::Tutorial,
    wait,
};
use k8s_openapi::api::{core::v1::PersistentVolumeClaim, events::v1::Event};
use kube::{
    ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::json;

/// Makes the claim `new`, which names the SyncJob `copy`.
async fn asks(sandbox: &Sandbox, class: &str) -> PersistentVolumeClaim {
    let source = json!({"apiGroup": "volferry.dev", "kind": "SyncJob", "name": "copy"});
    let claim = json!({"metadata": {"name": "new"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": class, "dataSourceRef": source, "resources": {"requests": {"storage": "64Mi"}}}});
    let claims = sandbox.api::<PersistentVolumeClaim>();
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap()
}

/// Waits until the populator has told this reason as an event.
async fn until_told(sandbox: &Sandbox, reason: &'static str) {
    let says = |event: &Event| {
        event.reason.as_deref() == Some(reason)
            && event.reporting_controller.as_deref() == Some("volferry-populator")
    };
    wait::until_any(&sandbox.api::<Event>(), "", reason, PATIENCE, says).await.unwrap();
}

#[tokio::test]
async fn a_claim_waits_for_a_copy_and_comes_up_with_it_at_the_node_of_its_pod() {
    let sandbox = Sandbox::new("populated").await;
    sandbox.storage_class("memory-lazy", GROWS).await.unwrap();
    let from = sandbox.volume("from", 0).await.unwrap();
    from.shell_as_syncer("mkdir folder; head -c 3M /dev/urandom > folder/file; ln -s folder/file link")
        .unwrap();
    sandbox.volume("to", 1).await.unwrap();
    let claim = asks(&sandbox, "memory-lazy").await;
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
    let found = sandbox.kubectl.run(&["exec", "reader-0", "--", "sh", "-c", &format!("cd /data && {hash}")]);
    assert_eq!(found.unwrap().as_bytes(), from.shell(hash).unwrap());

    let claims = sandbox.api::<PersistentVolumeClaim>();
    let temporary = format!("vf-populate-{}", claim.uid().unwrap());
    wait::until_gone(&claims, &temporary, PATIENCE).await.unwrap();
    let jobs = sandbox.jobs.list(&ListParams::default()).await.unwrap();
    assert_eq!(jobs.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["copy"]);
}

#[tokio::test]
async fn an_application_is_deployed_or_restored_by_one_manifest() {
    let sandbox = Sandbox::with("deploy-or-restore", json!({}), json!({})).await;
    sandbox.storage_class("fast", GROWS).await.unwrap();
    let (folder, kubeconfig) = (tempfile::tempdir().unwrap(), env::var_os("KUBECONFIG").unwrap());
    let page = Tutorial::open("deploy-or-restore", folder.path(), Path::new(&kubeconfig), &sandbox.namespace);
    page.await.unwrap().follow(0..=usize::MAX).await.unwrap();
}
