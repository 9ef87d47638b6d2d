//! A SyncEndpoint with a real pod: a tree is sent into a claim from outside of the cluster, through the NodePort, and
//! fetched from it; the key outlives the pod; a peer that is taken out is refused without a restart; nothing stays.

use std::{
    path::Path,
    process::{Command, Output},
};

use contract::{OwnKey, PublicKey};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};

use crate::prelude::*;

pub(super) const LABEL: &str = "volferry.dev/syncendpoint=web";

/// A machine outside of the cluster: the one that runs this test.
pub(super) struct Outside {
    pub(super) dir: tempfile::TempDir,
    key: PublicKey,
}

impl Outside {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = OwnKey::generate().unwrap();
        key.write(&dir.path().join("key")).unwrap();
        Self { dir, key: key.public() }
    }

    pub(super) fn peer(&self, name: &str) -> Value {
        json!({"name": name, "publicKey": self.key.to_string()})
    }

    pub(super) fn sync(&self, from: &str, to: &str, service: &str, more: &[&str]) -> Output {
        let mut command = Command::new(programs::of_workspace("volferry").unwrap());
        command
            .args(["sync", from, to, "--service-key", service, "--identity"])
            .arg(self.dir.path().join("key"));
        command.args(more).env("VOLFERRY_CONFIG", "none").output().unwrap()
    }
}

pub(super) fn endpoints(sandbox: &Sandbox) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("volferry.dev", "v1alpha1", "SyncEndpoint");
    let kind = ApiResource::from_gvk_with_plural(&kind, "syncendpoints");
    Api::namespaced_with(sandbox.client.clone(), &sandbox.namespace, &kind)
}

/// Returns the endpoint `web` once it serves.
pub(super) async fn serving(api: &Api<DynamicObject>) -> DynamicObject {
    named_serving(api, "web").await
}

async fn named_serving(api: &Api<DynamicObject>, name: &str) -> DynamicObject {
    let serves = |it: &DynamicObject| syncjob::has_reason(it, "Ready", "Serving");
    wait::until(api, name, "it serves", PATIENCE, serves).await.unwrap()
}

/// Makes a folder in which each file has its own content.
pub(super) fn made(folder: &Path) {
    let script = "mkdir -p a/b; for at in $(seq 1 50); do head -c $((at * 997)) /dev/urandom > a/b/$at; done; echo hi > hi";
    std::fs::create_dir_all(folder).unwrap();
    let done = Command::new("bash").args(["-ec", script]).current_dir(folder).status().unwrap();
    assert!(done.success());
}

/// Asserts that two folders have the same files.
fn assert_same_folders(one: &Path, other: &Path) {
    let compared =
        Command::new("diff").args(["-r", "--exclude=.volferry"]).args([one, other]).output().unwrap();
    assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stdout));
}

#[track_caller]
fn assert_refused(sync: &Output) {
    assert_eq!(sync.status.code(), Some(6), "{sync:?}");
}

/// Creates an endpoint of the claim `data` for one peer.
async fn create(api: &Api<DynamicObject>, name: &str, access: &str, peer: Value) {
    let spec = json!({"persistentVolumeClaim": {"claimName": "data"}, "access": access, "peers": [peer],
        "service": {"type": "NodePort"}});
    let manifest = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncEndpoint", "metadata": {"name": name},
        "spec": spec});
    api.create(&PostParams::default(), &serde_json::from_value(manifest).unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_tree_goes_into_a_claim_and_back_from_outside_of_the_cluster() {
    let sandbox = Sandbox::new("endpoint").await;
    let volume = sandbox.volume("data", 0).await.unwrap();
    let (laptop, stranger) = (Outside::new(), Outside::new());
    let api = endpoints(&sandbox);
    create(&api, "web", "Write", laptop.peer("laptop")).await;
    // The stranger is the peer of another endpoint.
    create(&api, "other", "Read", stranger.peer("stranger")).await;
    let ready = serving(&api).await;
    let (address, key) = (syncjob::text(&ready, "/address"), syncjob::text(&ready, "/publicKey"));

    let from = laptop.dir.path().join("from");
    made(&from);
    let from = from.to_str().unwrap();
    for link in ["--link=udp", "--link=tcp"] {
        let sent = laptop.sync(from, address, key, &["--delete", "-c", link]);
        assert!(sent.status.success(), "{link}: {sent:?}");
    }
    let listing = volume.list().unwrap();
    volume.shell("test \"$(cat hi)\" = hi").unwrap();
    let other = named_serving(&api, "other").await;
    let (other, other_key) = (syncjob::text(&other, "/address"), syncjob::text(&other, "/publicKey"));
    let got = laptop.dir.path().join("got");
    assert_refused(&stranger.sync(from, address, key, &[]));
    assert_refused(&stranger.sync(from, address, other_key, &[]));
    assert_refused(&laptop.sync(other, got.to_str().unwrap(), other_key, &[]));
    let fetched = stranger.sync(other, got.to_str().unwrap(), other_key, &[]);
    assert!(fetched.status.success(), "{fetched:?}");
    let is_told = |it: &DynamicObject| syncjob::status(it, "/peers/0/runs").as_u64() == Some(2);
    let told = wait::until(&api, "web", "both runs are told", PATIENCE, is_told).await.unwrap();
    assert_eq!(syncjob::text(&told, "/lastRun/peer"), "laptop");

    // The next pod has the same key, with the other access.
    let address = read_by_next_pod(&sandbox, &api, key).await;
    let back = laptop.dir.path().join("back");
    let got = laptop.sync(&address, back.to_str().unwrap(), key, &[]);
    assert!(got.status.success(), "{got:?}");
    assert_same_folders(Path::new(from), &back);
    assert_same(&listing, &volume.list().unwrap());

    // A peer that is taken out is a stranger, and the pod stays.
    let pods = pods(&sandbox).await;
    let other = Patch::Merge(json!({"spec": {"peers": [stranger.peer("stranger")]}}));
    api.patch("web", &PatchParams::default(), &other).await.unwrap();
    let copy = stranger.dir.path().join("copy");
    let may_come = async || stranger.sync(&address, copy.to_str().unwrap(), key, &[]).status.success();
    wait::poll("the new peer may come", PATIENCE, may_come).await.unwrap();
    assert_refused(&laptop.sync(&address, back.to_str().unwrap(), key, &[]));
    assert_never_restarted(&sandbox, &pods).await;

    for name in ["web", "other"] {
        api.delete(name, &DeleteParams::default()).await.unwrap();
        wait::until_gone(&api, name, PATIENCE).await.unwrap();
    }
    sandbox.until_nothing_has("volferry.dev/syncendpoint").unwrap();
}

async fn assert_never_restarted(sandbox: &Sandbox, pods: &[Pod]) {
    for pod in pods {
        let now = sandbox.api::<Pod>().get(&pod.name_any()).await.unwrap();
        let restarts =
            |pod: &Pod| pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].restart_count;
        assert_eq!((now.uid(), restarts(&now)), (pod.uid(), 0));
    }
}

async fn pods(sandbox: &Sandbox) -> Vec<Pod> {
    sandbox.api::<Pod>().list(&ListParams::default().labels(LABEL)).await.unwrap().items
}

/// Changes the endpoint's access, and waits until another pod serves with the same key. Returns its address.
async fn read_by_next_pod(sandbox: &Sandbox, api: &Api<DynamicObject>, key: &str) -> String {
    let before: Vec<_> = pods(sandbox).await.iter().map(ResourceExt::name_any).collect();
    let read = Patch::Merge(json!({"spec": {"access": "Read"}}));
    api.patch("web", &PatchParams::default(), &read).await.unwrap();
    let is_new = |pod: &Pod| wait::is_ready(pod) && !before.contains(&pod.name_any());
    wait::until_any(&sandbox.api::<Pod>(), LABEL, "there is another pod", PATIENCE, is_new).await.unwrap();
    let again = serving(api).await;
    assert_eq!(syncjob::text(&again, "/publicKey"), key);
    syncjob::text(&again, "/address").to_owned()
}
