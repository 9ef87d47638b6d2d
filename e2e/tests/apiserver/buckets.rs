//! SyncJobs whose destination is object storage: the one pod of a run takes a snapshot of its claim into a real S3
//! server, with what a Secret has.

use std::{path::Path, process::Command, sync::Arc};

use testkit::s3_server::{ACCESS_KEY, S3Server, SECRET_KEY};

use crate::prelude::*;
use crate::remote_stage::{Dialling, fill};

/// Puts the entries of a Secret into a folder, as it is mounted.
fn mount_secret(store: &S3Server, folder: &Path) {
    let key = Command::new(programs::of_workspace("volferry").unwrap())
        .args(["snapshot", "key"])
        .arg(folder.join("encryption.key"))
        .output()
        .unwrap();
    assert!(key.status.success(), "{key:?}");
    for (entry, value) in [
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ENDPOINT_URL", &format!("http://{}", store.address())),
    ] {
        std::fs::write(folder.join(entry), value).unwrap();
    }
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
    let store = S3Server::start(tempfile::tempdir().unwrap(), "backups");
    let (stage, _controller) = Stage::with_controller("bucket").await.unwrap();
    let job = Dialling::new(&Arc::new(stage), "copy", Side::Source);
    mount_secret(&store, &job.dir.path().join("secret"));
    fill(&job.volume(), "hello");
    let snapshots = json!({"retain": {"last": 2}, "verify": {"parts": 2}});
    let more = json!({"snapshots": snapshots, "files": {"exclude": ["*.tmp"]}});
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
    assert_eq!((secret.secret_name.as_deref(), secret.optional), (Some("s3"), Some(true)));
    let files: Vec<_> = secret.items.iter().flatten().map(|item| item.key.as_str()).collect();
    assert_eq!(files, ["encryption.key", "ca.crt"], "credentials are in the environment alone");
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
        let part = format!("{}/2", nth % 2 + 1);
        assert_eq!(syncjob::text(&done, "/lastRun/snapshot/verify/part"), part);
    }
    let done = job.until_ready().await;
    assert_eq!(syncjob::status(&done, "/lastRun/snapshot/droppedCount"), 1);
    assert!(syncjob::status(&done, "/identity").is_null(), "{done:#?}");
    assert!(store.path("web/volferry").exists() && !job.volume().join(".volferry").exists());
}

#[tokio::test]
async fn a_secret_that_lacks_an_entry_and_a_store_that_refuses_are_named() {
    let store = S3Server::start(tempfile::tempdir().unwrap(), "backups");
    let (stage, _controller) = Stage::with_controller("bucket-refused").await.unwrap();
    let job = Dialling::new(&Arc::new(stage), "copy", Side::Source);
    let secret = job.dir.path().join("secret");
    fill(&job.volume(), "hello");
    syncjob::create(&job.stage.jobs, manifest(json!({"limits": {"retries": 3}}))).await.unwrap();
    let mut pods: Vec<Pod> = Vec::new();
    let cases = [
        ("", "the Secret of destination.objectStore is missing or has no entry encryption.key"),
        ("AWS_ACCESS_KEY_ID", "the environment has no credentials for s3://backups/web"),
        ("AWS_SECRET_ACCESS_KEY", "s3://backups/web"),
    ];
    for (nth, (entry, words)) in cases.iter().enumerate() {
        if !entry.is_empty() {
            if nth == 1 {
                mount_secret(&store, &secret);
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
    refused(json!({"snapshots": {"minKeep": 1}}), "snapshots has only retain").await;
    refused(json!({"parallelism": 2}), "parallelism above 1 is for two claims").await;
    refused(json!({"transfer": {"placement": "Local"}}), "transfer.placement Local is one pod").await;

    // What no rule judges stalls the job.
    syncjob::create(&stage.jobs, manifest(json!({"files": {"write": "InPlace"}}))).await.unwrap();
    let stalled = stage.until_reason("copy", "Stalled", "InvalidSpec").await.unwrap();
    assert!(syncjob::message(&stalled, "Stalled").contains("files.write"), "{stalled:#?}");
}
