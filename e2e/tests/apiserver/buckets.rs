//! SyncJobs whose destination is object storage: the one pod of a run takes a snapshot of its claim into a real S3
//! server, with what a Secret has.

use std::{
    env,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::Instant,
};

use tempfile::TempDir;

use crate::prelude::*;
use crate::remote_stage::{Dialling, fill};

/// A server of object storage, with the bucket `backups`.
struct ObjectStorage {
    dir: TempDir,
    server: Child,
    address: SocketAddr,
}

impl ObjectStorage {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("root/backups")).unwrap();
        let address = testkit::ports::unused();
        let server = Command::new(server_program())
            .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
            .args(["--access-key", "tester", "--secret-key", "a secret of the tests"])
            .arg(dir.path().join("root"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("s3s-fs: {error}: run .ci/tools test"));
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < PATIENCE, "the S3 server does not listen");
            thread::yield_now();
        }
        Self { dir, server, address }
    }

    /// Puts the entries of a Secret into a folder, as it is mounted.
    fn mount_secret(&self, folder: &Path) {
        let key = Command::new(programs::of_workspace("volferry").unwrap())
            .args(["snapshot", "key"])
            .arg(folder.join("encryption.key"))
            .output()
            .unwrap();
        assert!(key.status.success(), "{key:?}");
        for (entry, value) in [
            ("AWS_ACCESS_KEY_ID", "tester"),
            ("AWS_SECRET_ACCESS_KEY", "a secret of the tests"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ENDPOINT_URL", &format!("http://{}", self.address)),
        ] {
            std::fs::write(folder.join(entry), value).unwrap();
        }
    }

    fn has(&self, path: &str) -> bool {
        self.dir.path().join("root/backups").join(path).exists()
    }
}

impl Drop for ObjectStorage {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Returns the server, which `.ci/tools test` builds into the cache if the machine has none.
fn server_program() -> PathBuf {
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let built = cache.map(|cache| cache.join("volferry/tools/bin/s3s-fs")).filter(|it| it.is_file());
    built.unwrap_or_else(|| "s3s-fs".into())
}

fn manifest(more: Value) -> Value {
    let mut spec = json!({
        "source": {"persistentVolumeClaim": {"claimName": "from"}},
        "destination": {"objectStore": {"url": "s3://backups/web", "secretRef": {"name": "s3"}}},
    });
    syncjob::merge(&mut spec, more);
    json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob", "metadata": {"name": "copy"}, "spec": spec})
}

#[tokio::test]
async fn each_run_takes_a_snapshot_into_the_bucket_and_the_rules_hold_there() {
    let store = ObjectStorage::new();
    let (stage, _controller) = Stage::with_controller("bucket").await.unwrap();
    let job = Dialling::new(&Arc::new(stage), "copy", Side::Source);
    store.mount_secret(&job.dir.path().join("secret"));
    fill(&job.volume(), "hello");
    let more = json!({"snapshots": {"retain": {"last": 2}}, "files": {"exclude": ["*.tmp"]}});
    syncjob::create(&job.stage.jobs, manifest(more)).await.unwrap();
    let mut pods = vec![job.pod(&[]).await];
    let spec = pods[0].spec.clone().unwrap();
    let container = &spec.containers[0];
    let words = container.args.clone().unwrap().join(" ");
    assert!(
        words.contains("sync /source s3://backups/web --key-file=/run/volferry/encryption.key"),
        "{words}"
    );
    assert!(!words.contains("AWS") && !words.contains("a secret"), "{words}");
    let env = container.env.clone().unwrap();
    assert!(
        env.iter().all(|it| it.value.is_none() && it.value_from.as_ref().unwrap().secret_key_ref.is_some())
    );
    let volumes = spec.volumes.unwrap();
    let claims: Vec<_> = volumes.iter().filter_map(|it| it.persistent_volume_claim.as_ref()).collect();
    assert_eq!((claims.len(), claims[0].claim_name.as_str(), claims[0].read_only), (1, "from", Some(true)));
    let secret = volumes.iter().find_map(|it| it.secret.as_ref()).unwrap();
    assert_eq!((secret.secret_name.as_deref(), secret.optional), (Some("s3"), Some(false)));
    assert!(
        volumes
            .iter()
            .any(|it| it.empty_dir.as_ref().is_some_and(|it| it.medium.as_deref() == Some("Memory")))
    );

    for (nth, text) in ["hello", "hello again", "and again"].iter().enumerate() {
        if nth > 0 {
            fill(&job.volume(), text);
            job.stage.patch("copy", json!({"spec": {"trigger": text}})).await.unwrap();
            let next = job.pod(&pods.iter().collect::<Vec<_>>()).await;
            pods.push(next);
        }
        assert_eq!(job.run(pods.last().unwrap()).await, 0);
        let id = format!("copy-{}", nth + 1);
        let done = job.until("it has run", |it| syncjob::text(it, "/lastRun/id") == id).await;
        assert_eq!(syncjob::text(&done, "/lastRun/result"), "Succeeded", "{done:#?}");
        assert_eq!(*syncjob::status(&done, "/snapshots/count"), json!((nth + 1).min(2)));
        assert_eq!(syncjob::text(&done, "/lastRun/snapshot/made/id").len(), 16);
    }
    let done = job.until_ready().await;
    assert_eq!(syncjob::status(&done, "/lastRun/snapshot/droppedCount"), 1);
    assert!(syncjob::status(&done, "/identity").is_null(), "{done:#?}");
    assert!(store.has("web/volferry") && !job.volume().join(".volferry").exists());
}

#[tokio::test]
async fn a_secret_that_lacks_an_entry_and_a_store_that_refuses_are_named() {
    let store = ObjectStorage::new();
    let (stage, _controller) = Stage::with_controller("bucket-refused").await.unwrap();
    let job = Dialling::new(&Arc::new(stage), "copy", Side::Source);
    let secret = job.dir.path().join("secret");
    fill(&job.volume(), "hello");
    syncjob::create(&job.stage.jobs, manifest(json!({"limits": {"retries": 3}}))).await.unwrap();
    let mut pods: Vec<Pod> = Vec::new();
    let cases = [
        ("", "the Secret of destination.objectStore has no entry encryption.key"),
        ("AWS_ACCESS_KEY_ID", "the environment has no credentials for s3://backups/web"),
        ("AWS_SECRET_ACCESS_KEY", "s3://backups/web"),
    ];
    for (nth, (entry, words)) in cases.iter().enumerate() {
        if !entry.is_empty() {
            if nth == 1 {
                store.mount_secret(&secret);
            }
            std::fs::remove_file(secret.join(entry)).unwrap();
            job.next_memory();
            job.stage.patch("copy", json!({"spec": {"trigger": entry}})).await.unwrap();
        }
        let next = job.pod(&pods.iter().collect::<Vec<_>>()).await;
        assert_eq!(job.run(&next).await, 1);
        pods.push(next);
        let id = format!("copy-{}", nth + 1);
        let failed = job.until("it has failed", |it| syncjob::text(it, "/lastRun/id") == id).await;
        assert_eq!(syncjob::text(&failed, "/lastRun/reason"), "ObjectStoreUnusable", "{failed:#?}");
        assert_eq!(syncjob::status(&failed, "/lastRun/retries"), 0, "a person has to act");
        let said = syncjob::text(&failed, "/lastRun/message");
        assert!(said.contains(words) && !said.contains("a secret of the tests"), "{said}");
        if nth == 1 {
            std::fs::write(secret.join("AWS_ACCESS_KEY_ID"), "tester").unwrap();
        }
    }
}

#[tokio::test]
async fn what_goes_with_a_claim_only_is_refused_with_what_to_write_instead() {
    let (stage, _controller) = Stage::with_controller("bucket-rules").await.unwrap();
    let refused = async |more: Value, words: &str| {
        let said = syncjob::create(&stage.jobs, manifest(more)).await.unwrap_err();
        assert!(format!("{said:#}").contains(words), "{words}: {said:#}");
    };
    for url in ["https://s3.example.org/b", "s3://", "s3://b//c", "s3://b/../c", "s3://b/c d", "b/c"] {
        let store = json!({"destination": {"objectStore": {"url": url}}});
        refused(store, "is no place in object storage: write s3://BUCKET/PREFIX").await;
    }
    refused(json!({"destination": {"objectStore": {"secretRef": null}}}), "secretRef").await;
    let both = json!({"destination": {"persistentVolumeClaim": {"claimName": "to"}}});
    refused(both, "exactly one of persistentVolumeClaim, endpoint and objectStore").await;
    refused(json!({"destination": {"path": "/x"}}), "write the prefix in destination.objectStore.url").await;
    refused(json!({"destination": {"create": {}}}), "create, volumeSnapshots and pods are for a claim").await;
    refused(json!({"source": {"snapshot": "latest"}}), "source.snapshot is a snapshot already").await;
    refused(json!({"source": {"history": "All"}}), "source.history is for volumes").await;
    let abroad = json!({"source": {"persistentVolumeClaim": {"namespace": "other"}}});
    refused(abroad, "does not go with destination.objectStore").await;
    refused(json!({"files": {"delete": true}}), "a snapshot has what the source has").await;
    refused(json!({"snapshots": {"verify": {}}}), "snapshots has only retain").await;
    refused(json!({"parallelism": 2}), "parallelism above 1 is for two claims").await;
    refused(json!({"transfer": {"placement": "Local"}}), "transfer.placement Local is one pod").await;

    // What no rule judges stalls the job.
    syncjob::create(&stage.jobs, manifest(json!({"files": {"write": "InPlace"}}))).await.unwrap();
    let stalled = stage
        .until("copy", "it stalls", |job| syncjob::has_reason(job, "Stalled", "InvalidSpec"))
        .await
        .unwrap();
    assert!(syncjob::message(&stalled, "Stalled").contains("files.write"), "{stalled:#?}");
}
