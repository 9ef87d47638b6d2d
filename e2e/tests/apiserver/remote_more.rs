//! What a SyncJob with an endpoint has beside its runs: hooks, snapshots that travel along,
//! and a key that is lost.

use std::{fs::File, io::Read as _, os::unix::fs::MetadataExt as _, path::Path, process::Command};

use contract::{OwnKey, Side};
use e2e::{programs, scripted::PATIENCE, syncjob, wait};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject},
};
use serde_json::{Value, json};

use crate::{
    endpoints_stage::content,
    remote_stage::{Dialling, Remote, fill},
};

/// Gives a job a key of its own before its first pod, as a Secret that a person made, and returns the public half.
pub(super) fn own_key(dialling: &Dialling) -> String {
    let key = OwnKey::generate().unwrap();
    key.write(&dialling.dir.path().join("secret/identity.key")).unwrap();
    key.public().to_string()
}

/// Fills a file that takes long at the limits of these tests, and returns its content.
pub(super) fn fill_large(folder: &Path) -> Vec<u8> {
    let mut large = vec![0; 16 << 20];
    File::open("/dev/urandom").unwrap().read_exact(&mut large).unwrap();
    std::fs::write(folder.join("file"), &large).unwrap();
    large
}

/// Returns how much has arrived of files that are not whole.
fn staged_bytes(volume: &Path) -> u64 {
    let staged = std::fs::read_dir(volume.join(".volferry/staging")).into_iter().flatten().flatten();
    staged.filter_map(|it| Some(it.metadata().ok()?.blocks() * 512)).sum()
}

/// Runs pods after these ones until the endpoint takes the key of [`own_key`], and the run succeeds. Returns all pods.
pub(super) async fn run_until_taken(dialling: &Dialling, mut pods: Vec<Pod>) -> Vec<Pod> {
    loop {
        dialling.next_memory();
        let next = dialling.pod(&pods.iter().collect::<Vec<_>>()).await;
        let exit = dialling.run(&next).await;
        pods.push(next);
        if exit != 6 {
            assert_eq!(exit, 0);
            return pods;
        }
    }
}

/// Returns what `volferry` with these words says of a folder.
pub(super) fn volferry(words: &[&str], folder: &Path) -> String {
    let mut command = Command::new(programs::of_workspace("volferry").unwrap());
    let output = command.args(words).arg(folder).env("VOLFERRY_CONFIG", "none").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn hooks_run_around_a_run_into_an_endpoint() {
    let remote = Remote::new("remote-hooks", Side::Source).await;
    remote.serving.stage.may_run_hooks().await.unwrap();
    fill(&remote.volume(), "hello");
    let key = own_key(&remote);
    remote.list(&[&key]).await;
    let hook = json!({"target": {"matchLabels": {"app": "db"}}, "command": ["sync"], "timeout": "1s",
        "onFailure": "Continue"});
    remote
        .sync(json!({"identity": {"secretName": "mine"}}), json!({"hooks": {"before": hook, "after": hook}}))
        .await;
    run_until_taken(&remote, Vec::new()).await;
    assert_eq!(content(&remote.serving.volume()).as_deref(), Some("hello"));
    // No pod has the label, so both fail, and are told.
    let told = |job: &DynamicObject| {
        ["before", "after"].iter().all(|point| {
            syncjob::text(job, &format!("/lastRun/hooks/{point}/failure")).contains("found no pod to run in")
        })
    };
    remote.until("both hooks are told", told).await;
}

#[tokio::test]
async fn the_snapshots_of_the_source_travel_to_an_endpoint_that_takes_them() {
    let takes = json!({"demands": {"history": "All"}});
    let remote = Remote::with("remote-history", Side::Source, takes).await;
    for text in ["first", "second"] {
        fill(&remote.volume(), text);
        volferry(&["snapshot", "create"], &remote.volume());
    }
    remote.sync(json!({}), json!({"source": {"history": "All"}})).await;
    let first = remote.pod(&[]).await;
    assert_eq!(remote.run(&first).await, 6);
    remote.list(&[&remote.public_key().await]).await;
    remote.run_until_accepted(vec![first]).await;
    let done = remote.until_ready().await;
    assert_eq!(syncjob::status(&done, "/lastRun/history/copied"), 2, "{done:#?}");
    let ids = |folder: &Path| -> Vec<String> {
        let list = volferry(&["snapshot", "list"], folder);
        list.split_whitespace().filter(|word| word.len() == 16).map(Into::into).collect()
    };
    assert_eq!(ids(&remote.volume()), ids(&remote.serving.volume()));
    assert_eq!(ids(&remote.volume()).len(), 2);
}

#[tokio::test]
async fn a_key_that_is_lost_is_made_anew_and_has_to_be_listed_again() {
    let remote = Remote::new("remote-lost", Side::Source).await;
    fill(&remote.volume(), "hello");
    remote.sync(json!({}), json!({})).await;
    let first = remote.pod(&[]).await;
    assert_eq!(remote.run(&first).await, 6);
    let old = remote.public_key().await;
    remote.list(&[&old]).await;
    let mut pods = remote.run_until_accepted(vec![first]).await;
    remote.until_ready().await;

    for secret in remote.secrets().await {
        let secrets: Api<Secret> = remote.serving.api();
        secrets.delete(&secret.name_any(), &DeleteParams::default()).await.unwrap();
        wait::until_gone(&secrets, &secret.name_any(), PATIENCE).await.unwrap();
    }
    remote.serving.stage.patch("copy", json!({"spec": {"trigger": "again"}})).await.unwrap();
    let lost = remote.pod(&pods.iter().collect::<Vec<_>>()).await;
    remote.next_pod().await;
    assert_eq!(remote.run(&lost).await, 1, "it finds no key, and may make none");
    let forgotten = |job: &DynamicObject| {
        syncjob::status(job, "/identity").is_null() && syncjob::status(job, "/activeRun/retries") == 1
    };
    let told = remote.until("its public half is forgotten", forgotten).await;
    assert!(syncjob::message(&told, "Reconciling").contains("Secret"), "{told:#?}");

    pods.push(lost);
    let stranger = remote.pod(&pods.iter().collect::<Vec<_>>()).await;
    remote.next_pod().await;
    assert_eq!(remote.run(&stranger).await, 6);
    pods.push(stranger);
    let new = remote.public_key().await;
    assert_ne!(new, old);
    remote.list(&[&old, &new]).await;
    remote.run_until_accepted(pods).await;
    assert_eq!(syncjob::text(&remote.until_ready().await, "/lastRun/id"), "copy-2");
}

#[tokio::test]
async fn of_two_jobs_that_come_at_once_the_second_waits_for_the_endpoint_and_says_for_whom() {
    let limit = |limit: Value| json!({"demands": {"bandwidthLimit": limit}});
    let remote = Remote::with("remote-queue", Side::Source, limit("64Ki".into())).await;
    let second = Dialling::new(&remote.stage, "second", Side::Source);
    let keys = [own_key(&remote), own_key(&second)];
    remote.list(&keys.each_ref().map(String::as_str)).await;
    let large = fill_large(&remote.volume());
    fill(&second.volume(), "small");
    // Of one folder, the operator itself would let one job go after the other.
    let below = |folder: &str| json!({"identity": {"secretName": "mine"}, "address": format!("{}/{folder}", remote.address)});
    remote.sync(below("a"), json!({})).await;
    let pod = remote.pod(&[]).await;
    let process = remote.start(&pod).await;
    // What the source has sent may still be on the way, all of it.
    let sends = |run: &DynamicObject| syncjob::status(run, "/progress/bytes").as_u64() > Some(0);
    wait::until(&remote.stage.runs, "copy-1", "it sends", PATIENCE, sends).await.unwrap();
    remote.sync_as(&second, below("b"), json!({})).await;
    let waiting = second.pod(&[]).await;
    let waits = second.start(&waiting).await;
    let queued = |job: &DynamicObject| syncjob::has_reason(job, "Reconciling", "WaitingForEndpoint");
    let told = second.until("it waits", queued).await;
    assert!(syncjob::message(&told, "Reconciling").contains("copy-0"), "{told:#?}");

    // A key that is taken out ends its run, and the next one begins.
    let peer = json!({"name": "copy-1", "publicKey": keys[1]});
    remote.serving.change(json!({"spec": {"peers": [peer]}})).await;
    assert_ne!(remote.end(&pod, process).await, 0);
    assert_eq!(second.end(&waiting, waits).await, 0);
    second.until_ready().await;
    assert_eq!(content(&remote.serving.volume().join("b")).as_deref(), Some("small"));
    remote.serving.change(json!({ "spec": limit(Value::Null) })).await;
    remote.list(&keys.each_ref().map(String::as_str)).await;
    run_until_taken(&remote, vec![pod]).await;
    remote.until_ready().await;
    assert_eq!(std::fs::read(remote.serving.volume().join("a/file")).unwrap(), large, "it is whole");
}

#[tokio::test]
async fn a_run_whose_endpoint_gets_another_key_meanwhile_goes_on_with_the_one_that_it_knows() {
    let slow = json!({"demands": {"bandwidthLimit": "1Mi"}});
    let mut remote = Remote::with("remote-rotated", Side::Source, slow).await;
    remote.list(&[&own_key(&remote)]).await;
    let large = fill_large(&remote.volume());
    remote.sync(json!({"identity": {"secretName": "mine"}}), json!({})).await;
    let pod = remote.pod(&[]).await;
    let process = remote.start(&pod).await;
    let has_arrived = async || staged_bytes(&remote.serving.volume()) >= 2 << 20;
    wait::poll("a part of the file arrives", PATIENCE, has_arrived).await.unwrap();

    remote.serving.change(json!({"spec": {"keyVersion": 2, "demands": null}})).await;
    let service = remote.service.take().unwrap();
    remote.service = Some(remote.serving.with_next_key(service).await);
    assert_eq!(remote.end(&pod, process).await, 1, "its peer was told to stop");
    let again = |job: &DynamicObject| syncjob::has_reason(job, "Reconciling", "Retrying");
    let told = remote.until("it is tried again", again).await;
    let message = syncjob::message(&told, "Reconciling");
    assert!(
        message.contains(&format!("(PeerLost): The endpoint {} stopped the run", remote.address)),
        "{message}"
    );
    run_until_taken(&remote, vec![pod]).await;
    let done = remote.until_ready().await;
    assert!(syncjob::status(&done, "/lastRun/retries").as_u64() > Some(0), "{done:#?}");
    assert!(syncjob::status(&done, "/lastRun/work/bytesReused").as_u64() > Some(0), "{done:#?}");
    assert_eq!(std::fs::read(remote.serving.volume().join("file")).unwrap(), large);
    let another = |it: &DynamicObject| syncjob::text(it, "/publicKey") != remote.key.to_string();
    remote.serving.until("it shows another key", another).await;
}
