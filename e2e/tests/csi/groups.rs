//! SyncJobSets whose sources are captured at one instant, with a real snapshot controller and sidecar.

use e2e::{
    cluster::{PATIENCE, Sandbox},
    csi::FIXED,
    syncjob, wait,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

const CLAIMS: [&str; 2] = ["data-0", "data-1"];

/// Returns a kind of objects.
pub(super) fn kind(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Returns the kinds that the snapshot controller makes or removes, with the field that has the namespace of what has
/// none itself.
fn kinds() -> [(ApiResource, &'static str); 4] {
    let of = |name| kind("snapshot.storage.k8s.io", "v1", name);
    let of_groups = |name| kind("groupsnapshot.storage.k8s.io", "v1beta2", name);
    [
        (of("VolumeSnapshot"), "/metadata/namespace"),
        (of_groups("VolumeGroupSnapshot"), "/metadata/namespace"),
        (of("VolumeSnapshotContent"), "/spec/volumeSnapshotRef/namespace"),
        (of_groups("VolumeGroupSnapshotContent"), "/spec/volumeGroupSnapshotRef/namespace"),
    ]
}

/// Makes the claims of the set, and returns the names of their volumes.
async fn claims(sandbox: &Sandbox) -> Vec<String> {
    let claims = sandbox.api::<PersistentVolumeClaim>();
    for name in CLAIMS {
        let claim = json!({"metadata": {"name": name, "labels": {"app": "shop"}}, "spec": {"accessModes": ["ReadWriteOnce"],
            "storageClassName": FIXED, "resources": {"requests": {"storage": "16Mi"}}}});
        claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    }
    let mut volumes = Vec::new();
    for name in CLAIMS {
        volumes.push(volume(sandbox, name).await);
    }
    volumes
}

/// Returns the name of the volume of a claim once it is bound.
pub(super) async fn volume(sandbox: &Sandbox, claim: &str) -> String {
    let is_bound = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Bound"))
    };
    let claim = wait::until(&sandbox.api(), claim, "it is bound", PATIENCE, is_bound).await.unwrap();
    claim.spec.unwrap().volume_name.unwrap()
}

/// Starts a pod that writes the same rising number to both claims, one after the other, and pauses: the tests' driver
/// copies one volume after the other, which is one instant as long as nothing is written meanwhile.
async fn write(sandbox: &Sandbox) {
    let script = "i=0; trap exit TERM; while :; do i=$((i+1)); echo $i >/a/n; echo $i >/b/n; sleep 0.3; done";
    let security = json!({"runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"}});
    let container = json!({"name": "shop", "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "readinessProbe": {"exec": {"command": ["test", "-s", "/b/n"]}, "periodSeconds": 1},
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/b"}]});
    let of = |name: &str, claim: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": claim}});
    let pod = json!({"metadata": {"name": "shop"}, "spec": {"terminationGracePeriodSeconds": 1,
        "securityContext": security, "containers": [container],
        "volumes": [of("a", CLAIMS[0]), of("b", CLAIMS[1])]}});
    let pods = sandbox.api::<Pod>();
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    wait::until(&pods, "shop", "it writes", PATIENCE, wait::is_ready).await.unwrap();
}

fn sets(sandbox: &Sandbox) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("volferry.dev", "v1alpha1", "SyncJobSet"),
        "syncjobsets",
    );
    Api::namespaced_with(sandbox.client.clone(), &sandbox.namespace, &kind)
}

/// Makes the set `shop`, which captures its sources like this.
async fn create(sandbox: &Sandbox, point_in_time: Value) {
    let end = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
    let mut spec = json!({"source": end("{{ .claim.name }}"), "destination": end("{{ .claim.name }}-copy")});
    spec["source"]["pointInTime"] = point_in_time;
    spec["destination"]["create"] = json!({"storageClassName": FIXED});
    let template = json!({"metadata": {"name": "{{ .claim.name }}"}, "spec": spec});
    let set = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJobSet", "metadata": {"name": "shop"},
        "spec": {"claimSelector": {"matchLabels": {"app": "shop"}}, "template": template}});
    sets(sandbox).create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
}

/// Waits until the cluster has no snapshots of the namespace, and fails if the storage still has one of a volume.
pub(super) async fn until_nothing_is_left(sandbox: &Sandbox, volumes: &[String]) {
    for (kind, namespace) in kinds() {
        let all = Api::<DynamicObject>::all_with(sandbox.client.clone(), &kind);
        for left in all.list(&ListParams::default()).await.unwrap() {
            let json = serde_json::to_value(&left).unwrap();
            if json.pointer(namespace) != Some(&json!(sandbox.namespace)) {
                continue;
            }
            let api = match left.namespace() {
                Some(own) => Api::namespaced_with(sandbox.client.clone(), &own, &kind),
                None => all.clone(),
            };
            wait::until_gone(&api, &left.name_any(), PATIENCE).await.unwrap();
        }
    }
    for volume in volumes {
        assert_eq!(sandbox.snapshots_in_storage(volume).await.unwrap(), "");
    }
}

/// Waits until the group of a set is being deleted, and lets go of it and its content, as its controller does not while
/// the driver refuses to take it.
async fn release(sandbox: &Sandbox) {
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let [_, (groups, _), _, (contents, _)] = kinds();
    let api = Api::<DynamicObject>::namespaced_with(sandbox.client.clone(), &sandbox.namespace, &groups);
    let is_going = |group: &DynamicObject| group.metadata.deletion_timestamp.is_some();
    for group in api.list(&ListParams::default()).await.unwrap() {
        let name = group.name_any();
        let going = wait::until(&api, &name, "it is being deleted", PATIENCE, is_going).await.unwrap();
        api.patch(&name, &PatchParams::default(), &free).await.unwrap();
        let content = going.data["status"]["boundVolumeGroupSnapshotContentName"].as_str().unwrap();
        let contents = Api::<DynamicObject>::all_with(sandbox.client.clone(), &contents);
        contents.delete(content, &DeleteParams::default()).await.unwrap();
        contents.patch(content, &PatchParams::default(), &free).await.unwrap();
    }
}

#[tokio::test]
async fn copies_of_all_claims_of_a_set_are_of_one_instant_and_no_snapshot_is_left() {
    let sandbox = Sandbox::new("groups").await;
    let volumes = claims(&sandbox).await;
    write(&sandbox).await;
    create(&sandbox, json!({"method": "Group"})).await;
    let sets = sets(&sandbox);
    let are_copied = |set: &DynamicObject| {
        syncjob::has_reason(set, "Ready", "JobsReady") && syncjob::status(set, "/synced") == 2
    };
    wait::until(&sets, "shop", "both are copied", PATIENCE, are_copied).await.unwrap();
    let is_clean = |set: &DynamicObject| syncjob::status(set, "/groupCapture").is_null();
    wait::until(&sets, "shop", "its group is gone", PATIENCE, is_clean).await.unwrap();
    let mut written = Vec::new();
    for claim in CLAIMS {
        let copy = volume(&sandbox, &format!("{claim}-copy")).await;
        let text = sandbox.read_in_storage(&copy, "n").await.unwrap();
        written.push(text.trim().parse::<i64>().unwrap());
    }
    assert!([0, 1].contains(&(written[0] - written[1])), "the first is written first: {written:?}");
    until_nothing_is_left(&sandbox, &volumes).await;
}

#[tokio::test]
async fn a_storage_that_takes_no_group_is_told_and_a_set_that_is_deleted_meanwhile_leaves_nothing() {
    let sandbox = Sandbox::new("groups-full").await;
    let volumes = claims(&sandbox).await;
    create(&sandbox, json!({"method": "Group", "volumeGroupSnapshotClassName": "memory-full"})).await;
    for job in CLAIMS {
        let complains = |job: &DynamicObject| {
            syncjob::message(job, "Reconciling").contains("the pool of snapshots is full")
        };
        sandbox.until(job, "it passes the complaint on", complains).await.unwrap();
    }
    sets(&sandbox).delete("shop", &DeleteParams::default()).await.unwrap();
    for job in CLAIMS {
        wait::until_gone(&sandbox.jobs, job, PATIENCE).await.unwrap();
    }
    release(&sandbox).await;
    until_nothing_is_left(&sandbox, &volumes).await;
}
