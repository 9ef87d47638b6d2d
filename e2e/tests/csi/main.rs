//! Claims that are too small for a source, clones and group snapshots of sources, changed blocks of devices, and claims
//! that come up filled, on a storage with a real provisioner, resizer and snapshot controller, which `make test-csi`
//! installs.
#![allow(clippy::unwrap_used)] // clippy does not take the helpers of tests for tests

mod changed_blocks;
mod groups;
mod populated;

use e2e::{
    cluster::{PATIENCE, Sandbox},
    csi::{FIXED, GROWS},
    syncjob,
    volume::Volume,
    wait,
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams},
};
use serde_json::json;

/// Makes a source of 8 MiB, and a SyncJob that has copied it to a claim of 32Mi of a storage class.
async fn copied(sandbox: &Sandbox, class: &str) -> Volume {
    let from = sandbox.volume("from", 1).await.unwrap();
    from.shell_as_syncer("head -c 8M /dev/urandom > small").unwrap();
    let create = json!({"storageClassName": class, "size": "32Mi", "grow": true});
    sandbox.sync("copy", json!({"destination": {"create": create}})).await.unwrap();
    sandbox.until_is("copy", "Ready").await.unwrap();
    sandbox.until_capacity("to", "32Mi").await.unwrap();
    from
}

/// Patches the SyncJob with a larger size, and requests a run.
async fn run_with(sandbox: &Sandbox, size: &str) {
    let create = json!({"create": {"size": size}});
    sandbox.patch("copy", json!({"spec": {"destination": create, "trigger": size}})).await.unwrap();
}

#[tokio::test]
async fn a_claim_grows_and_then_holds_what_did_not_fit() {
    let sandbox = Sandbox::new("grows").await;
    let from = copied(&sandbox, GROWS).await;
    from.shell_as_syncer("head -c 64M /dev/urandom > large").unwrap();
    sandbox.patch("copy", json!({"spec": {"trigger": "too small"}})).await.unwrap();
    let full = sandbox.until_is("copy", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&full, "Stalled", "NotEnoughSpace"), "{full:#?}");

    run_with(&sandbox, "128Mi").await;
    sandbox.until_is("copy", "Ready").await.unwrap();
    let claim = sandbox.until_capacity("to", "128Mi").await.unwrap();
    assert_eq!(sandbox.volume_capacity(&claim).await.unwrap(), "128Mi");
    for (object, reason) in [("copy", "ClaimGrows"), ("to", "Resizing")] {
        let events = sandbox.events_of(object).unwrap();
        assert!(events.iter().any(|event| event == reason), "{reason} of {object}: {events:?}");
    }

    sandbox.application("reader", "to").await.unwrap();
    let hashes = "cd /data && sha256sum small large";
    let copied = sandbox.kubectl.run(&["exec", "reader-0", "--", "sh", "-c", hashes]).unwrap();
    assert_eq!(copied.as_bytes(), from.shell("sha256sum small large").unwrap());
    assert_eq!(sandbox.file_system_mib("reader-0").unwrap(), 128);
}

#[tokio::test]
async fn a_size_that_the_driver_does_not_have_is_explained() {
    let sandbox = Sandbox::new("infeasible").await;
    copied(&sandbox, GROWS).await;
    run_with(&sandbox, "2Gi").await;
    let stalled = sandbox.until_is("copy", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&stalled, "Stalled", "ClaimTooSmall"), "{stalled:#?}");
    let message = syncjob::message(&stalled, "Stalled");
    for words in ["cannot grow to 2Gi", "infeasible", "a volume has at most 1073741824 bytes"] {
        assert!(message.contains(words), "{words}: {message}");
    }
    sandbox.until_capacity("to", "32Mi").await.unwrap();
}

/// Makes a SyncJob from the claim `to`, of which the driver makes a clone for each run, to the claim `moment`.
async fn sync_by_clone(sandbox: &Sandbox) {
    let others = json!({
        "source": {"persistentVolumeClaim": {"claimName": "to"}, "pointInTime": {"method": "Clone"}},
        "destination": {"persistentVolumeClaim": {"claimName": "moment"}, "create": {}},
    });
    sandbox.sync("moment", others).await.unwrap();
}

#[tokio::test]
async fn a_run_reads_a_clone_of_its_source_and_leaves_none() {
    let sandbox = Sandbox::new("clone").await;
    let from = copied(&sandbox, FIXED).await;
    let of_source = sandbox.until_capacity("to", "32Mi").await.unwrap();
    sync_by_clone(&sandbox).await;
    sandbox.until_is("moment", "Synced").await.unwrap();
    let is_clean = |job: &DynamicObject| syncjob::status(job, "/captures").is_null();
    sandbox.until("moment", "its clone is gone", is_clean).await.unwrap();

    let claims = sandbox.api::<PersistentVolumeClaim>().list(&ListParams::default()).await.unwrap();
    let mut names: Vec<String> = claims.iter().map(ResourceExt::name_any).collect();
    names.sort();
    assert_eq!(names, ["from", "moment", "to"]);
    let own = of_source.spec.unwrap().volume_name.unwrap();
    let volumes = Api::<PersistentVolume>::all(sandbox.client.clone());
    for volume in volumes.list(&ListParams::default()).await.unwrap() {
        let (name, spec) = (volume.name_any(), volume.spec.unwrap_or_default());
        let is_here =
            spec.claim_ref.is_some_and(|claim| claim.namespace.as_deref() == Some(&sandbox.namespace));
        if is_here && spec.storage_class_name.as_deref() == Some(FIXED) && name != own {
            wait::until_gone(&volumes, &name, PATIENCE).await.unwrap();
        }
    }
    sandbox.application("reader", "moment").await.unwrap();
    let copied = sandbox.kubectl.run(&["exec", "reader-0", "--", "sha256sum", "/data/small"]).unwrap();
    let hash = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let original = String::from_utf8(from.shell("sha256sum small").unwrap()).unwrap();
    assert_eq!(hash(&copied), hash(&original));
}
