//! A destination's claim that is too small and may grow: it is told to, and the run waits for the volume. The test
//! plays the resizer.

use k8s_openapi::api::storage::v1::StorageClass;

use crate::prelude::*;

/// Makes a bound claim of 1Gi of a class of its own, which allows expansion if `expands`.
async fn claim(stage: &Stage, name: &str, expands: bool) {
    let class = format!("{}-{name}", stage.namespace);
    let object =
        json!({"metadata": {"name": class}, "provisioner": "of.the.test", "allowVolumeExpansion": expands});
    let classes = Api::<StorageClass>::all(stage.client.clone());
    classes.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    stage.claim_of(name, "Bound", json!({"storageClassName": class})).await.unwrap();
    resize(stage, name, json!({"capacity": {"storage": "1Gi"}})).await;
}

/// Writes into a claim's status what its resizer would.
async fn resize(stage: &Stage, name: &str, status: Value) {
    let claims = stage.api::<PersistentVolumeClaim>();
    let patch = Patch::Merge(json!({"status": status}));
    claims.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn requested(stage: &Stage, name: &str) -> String {
    let claims = stage.api::<PersistentVolumeClaim>();
    let spec = claims.get(name).await.unwrap().spec.unwrap();
    spec.resources.unwrap().requests.unwrap()["storage"].0.clone()
}

fn onto(claim: &str, create: &Value) -> Value {
    json!({"destination": {"persistentVolumeClaim": {"claimName": claim}, "create": create}})
}

fn grows(job: &DynamicObject) -> bool {
    syncjob::has_reason(job, "Reconciling", "ClaimGrows")
}

#[tokio::test]
async fn a_claim_grows_before_the_run_and_again_when_it_is_told_a_larger_size() {
    let (stage, _controller) = Stage::with_controller("grow").await.unwrap();
    claim(&stage, "small", true).await;
    stage.sync("web", onto("small", &json!({"grow": true, "size": "5Gi"}))).await.unwrap();
    let told =
        |job: &DynamicObject| grows(job) && syncjob::message(job, "Reconciling").contains("once the volume");
    stage.until("web", "it waits for the volume", told).await.unwrap();
    assert_eq!(requested(&stage, "small").await, "5Gi");
    assert_eq!(stage.children("web").unwrap(), [""; 0], "no pod uses the volume meanwhile");

    resize(&stage, "small", json!({"capacity": {"storage": "5Gi"}})).await;
    let [source, sink] = stage.kubelet.complete("web", &[]).await.unwrap();
    stage.until_is("web", "Ready").await.unwrap();
    let events = stage.kubectl.run(&["get", "events", "-o", "jsonpath={.items[*].reason}"]).unwrap();
    assert_eq!(events.split(' ').filter(|reason| *reason == "ClaimGrows").count(), 1, "{events}");

    let larger = json!({"spec": {"destination": {"create": {"size": "7Gi"}}, "trigger": "again"}});
    stage.patch("web", larger).await.unwrap();
    stage.until("web", "it grows once more", grows).await.unwrap();
    // What is left to do is done where a pod mounts the volume.
    let pending = json!([{"type": "FileSystemResizePending", "status": "True"}]);
    resize(&stage, "small", json!({"conditions": pending})).await;
    stage.kubelet.start_both("web", &[&source, &sink]).await.unwrap();
    assert_eq!(requested(&stage, "small").await, "7Gi");
}

#[tokio::test]
async fn a_claim_whose_class_does_not_expand_stalls_the_job_until_it_is_taken_as_it_is() {
    let (stage, _controller) = Stage::with_controller("rigid").await.unwrap();
    claim(&stage, "rigid", false).await;
    stage.sync("web", onto("rigid", &json!({"grow": true, "size": "5Gi"}))).await.unwrap();
    let stalled = stage.until_is("web", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&stalled, "Stalled", "ClaimTooSmall"), "{stalled:#?}");
    let message = syncjob::message(&stalled, "Stalled");
    let class = format!("{}-rigid", stage.namespace);
    for words in ["claim rigid asks for 1Gi", "grow to 5Gi", &class, "allowVolumeExpansion"] {
        assert!(message.contains(words), "{words}: {message}");
    }
    assert_eq!(requested(&stage, "rigid").await, "1Gi");
    let as_it_is = json!({"spec": {"destination": {"create": {"grow": false}}}});
    stage.patch("web", as_it_is).await.unwrap();
    stage.kubelet.start_both("web", &[]).await.unwrap();
}
