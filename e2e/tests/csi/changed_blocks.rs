//! Devices of which a run reads only what the storage lists as changed, with a real sidecar that asks the API server
//! who may have the list.

use contract::{DeviceContent, Report};
use e2e::{
    cluster::{IDLE, PATIENCE, Sandbox},
    csi::FIXED,
    disk::DISK_GROUP,
    syncjob, wait,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
};
use serde_json::{Value, json};

use crate::groups::{kind, until_nothing_is_left, volume};

/// The length of the blocks that the driver lists, in bytes.
const BLOCK: u64 = 64 << 10;
/// The number of blocks of a device of 64Mi.
const BLOCKS: u64 = 1024;

/// Makes the claims `from` and `to` for devices, and a pod that has both and has filled the first. Returns the name of
/// that one's volume.
async fn devices(sandbox: &Sandbox) -> String {
    let claims = sandbox.api::<PersistentVolumeClaim>();
    for name in ["from", "to"] {
        let claim = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
            "storageClassName": FIXED, "resources": {"requests": {"storage": "64Mi"}}}});
        claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    }
    let security = json!({"runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
        "supplementalGroups": [DISK_GROUP], "seccompProfile": {"type": "RuntimeDefault"}});
    let device = |name: &str| json!({"name": name, "devicePath": format!("/dev/{name}")});
    let container = json!({"name": "disks", "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent",
        "command": IDLE,
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        "volumeDevices": [device("from"), device("to")]});
    let of = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let pod = json!({"metadata": {"name": "disks"}, "spec": {"terminationGracePeriodSeconds": 1,
        "securityContext": security, "containers": [container], "volumes": [of("from"), of("to")]}});
    let pods = sandbox.api::<Pod>();
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    wait::until(&pods, "disks", "it has the devices", PATIENCE, wait::is_ready).await.unwrap();
    in_pod(sandbox, "dd if=/dev/urandom of=/dev/from bs=64k count=1024 conv=notrunc,fsync");
    volume(sandbox, "from").await
}

/// Returns the output of a script in the pod that has both devices.
fn in_pod(sandbox: &Sandbox, script: &str) -> String {
    sandbox.kubectl.run(&["exec", "disks", "--", "sh", "-ec", script]).unwrap()
}

/// Overwrites a sector of each of these blocks.
fn overwrite(sandbox: &Sandbox, device: &str, blocks: &[u64]) {
    for block in blocks {
        let sector = block * (BLOCK / 512) + 3;
        let to = format!("of=/dev/{device} bs=512 count=1 seek={sector} conv=notrunc,fsync");
        in_pod(sandbox, &format!("dd if=/dev/urandom {to}"));
    }
}

/// Makes the SyncJob `copy`, which captures the source for each run.
async fn sync(sandbox: &Sandbox) -> Copied {
    let others = json!({
        "source": {"pointInTime": {"method": "Snapshot"}},
        "pods": {"securityContext": {"supplementalGroups": [DISK_GROUP]}},
        "trigger": "1",
    });
    sandbox.sync("copy", others).await.unwrap();
    Copied::by(sandbox, 1).await
}

/// Requests a run whose VolumeSnapshot is of a class.
async fn run(sandbox: &Sandbox, number: u32, class: &str) -> Copied {
    let source = json!({"pointInTime": {"volumeSnapshotClassName": class}});
    sandbox.patch("copy", json!({"spec": {"source": source, "trigger": number.to_string()}})).await.unwrap();
    Copied::by(sandbox, number).await
}

/// What a run has left.
struct Copied {
    /// The sum of the blocks that were listed, if the run read only those.
    bytes_listed: Option<u64>,
    notes: Value,
    /// The VolumeSnapshot that is kept for the next run.
    base: String,
}

impl Copied {
    /// Waits until a run has succeeded, and no more of it is left than what the next one needs. Checks the copy.
    async fn by(sandbox: &Sandbox, number: u32) -> Self {
        let id = format!("copy-{number}");
        let is_over = |job: &DynamicObject| {
            syncjob::text(job, "/lastRun/id") == id
                && syncjob::is(job, "Ready")
                && syncjob::status(job, "/captures").is_null()
        };
        let job = sandbox.until("copy", "nothing but a base is left", is_over).await.unwrap();
        let hashes = in_pod(sandbox, "sha256sum </dev/from; sha256sum </dev/to");
        let hashes: Vec<&str> = hashes.lines().collect();
        assert_eq!(hashes[0], hashes[1], "{id}");

        let base = syncjob::text(&job, "/changeBase/snapshot").to_owned();
        assert_eq!(snapshots(sandbox).await, [base.as_str()]);
        let content = content(sandbox, &id).await;
        assert_eq!(syncjob::status(&job, "/changeBase/contentHash"), &json!(content.hash));
        let notes = syncjob::status(&job, "/notes").clone();
        Self { bytes_listed: content.bytes_listed, notes, base }
    }

    /// Returns whether the run read everything, and said why in these words.
    fn compared_everything(&self, because: &[&str]) -> bool {
        let said = self.notes.to_string();
        self.bytes_listed.is_none()
            && said.contains("so everything was compared")
            && because.iter().all(|words| said.contains(words))
    }
}

/// Returns the names of the namespace's VolumeSnapshots.
async fn snapshots(sandbox: &Sandbox) -> Vec<String> {
    let kind = kind("snapshot.storage.k8s.io", "v1", "VolumeSnapshot");
    let api = Api::<DynamicObject>::namespaced_with(sandbox.client.clone(), &sandbox.namespace, &kind);
    api.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect()
}

/// Returns what the sink of a run reported of the copy. Its pod stays until the next run.
async fn content(sandbox: &Sandbox, run: &str) -> DeviceContent {
    let labels = format!("volferry.dev/run={run},volferry.dev/side=sink");
    let has_ended = |pod: &Pod| last_words(pod).is_some();
    let pods = sandbox.api::<Pod>();
    let sink = wait::until_any(&pods, &labels, "its sink has reported", PATIENCE, has_ended).await.unwrap();
    let report: Report = serde_json::from_str(last_words(&sink).unwrap()).unwrap();
    report.content.unwrap()
}

/// Returns the termination message of a pod.
fn last_words(pod: &Pod) -> Option<&str> {
    let container = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    container.state.as_ref()?.terminated.as_ref()?.message.as_deref()
}

#[tokio::test]
async fn a_run_reads_the_blocks_that_changed_and_one_snapshot_is_left() {
    let sandbox = Sandbox::new("changed-blocks").await;
    let volume = devices(&sandbox).await;
    let first = sync(&sandbox).await;
    assert_eq!((first.bytes_listed, first.notes), (None, Value::Null), "nothing to count from");

    // More than the driver tells at once.
    let changed = [0, 5, 6, 100, 500, 700, BLOCKS - 1];
    overwrite(&sandbox, "from", &changed);
    let second = run(&sandbox, 2, "memory").await;
    assert_eq!(
        (second.bytes_listed, second.notes),
        (Some(changed.len() as u64 * BLOCK), Value::Null),
        "only those blocks"
    );
    assert_ne!(second.base, first.base);
    let third = run(&sandbox, 3, "memory").await;
    assert_eq!((third.bytes_listed, third.notes), (Some(0), Value::Null), "nothing changed");

    sandbox.jobs.delete("copy", &DeleteParams::default()).await.unwrap();
    until_nothing_is_left(&sandbox, &[volume]).await;
}

#[tokio::test]
async fn a_copy_that_was_written_to_and_one_whose_list_breaks_off_come_right() {
    let sandbox = Sandbox::new("changed-anyway").await;
    devices(&sandbox).await;
    sync(&sandbox).await;

    overwrite(&sandbox, "from", &[1]);
    overwrite(&sandbox, "to", &[300]);
    let mended = run(&sandbox, 2, "memory").await;
    assert!(mended.compared_everything(&["the destination has other content"]), "{}", mended.notes);

    overwrite(&sandbox, "from", &[2, 3, 4, 5, 900]);
    let told_half = run(&sandbox, 3, "memory-cut").await;
    let why = ["the storage does not list what changed", "the list of blocks breaks off"];
    assert!(told_half.compared_everything(&why), "{}", told_half.notes);

    overwrite(&sandbox, "from", &[8]);
    let listed = run(&sandbox, 4, "memory").await;
    assert_eq!(
        (listed.bytes_listed, listed.notes),
        (Some(BLOCK), Value::Null),
        "its snapshot is a good base"
    );
}
