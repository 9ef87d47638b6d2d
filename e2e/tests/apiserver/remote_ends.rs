//! SyncJobs with an endpoint at one end: the one pod of a run makes the job's key and dials a real service; a key that
//! is not listed yet is waited for, and another key than the pinned one stalls the job.

use contract::{OwnKey, Side};
use e2e::{scripted::PATIENCE, syncjob, wait};
use k8s_openapi::api::{
    core::v1::{Pod, Secret},
    rbac::v1::Role,
};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    endpoints_stage::{Serving, content},
    remote_stage::{Remote, fill},
};

#[tokio::test]
async fn a_job_waits_until_its_key_is_listed_and_sends_into_the_endpoint() {
    let remote = Remote::new("remote-to", Side::Source).await;
    fill(&remote.volume(), "hello");
    remote.sync(json!({}), json!({})).await;

    // The key is made by the pod, in a Secret that it can never read, and the endpoint does not know it.
    let first = remote.pod(&[]).await;
    assert_stores_no_other_secret(&remote, &first).await;
    assert_eq!(remote.run(&first).await, 6);
    let key = remote.public_key().await;
    let secret = assert_waits_for_key(&remote, &first, &key).await;

    remote.list(&[&key]).await;
    remote.next_pod().await;
    let second = remote.pod(&[&first]).await;
    let may_not_store = |role: &Role| {
        role.rules.iter().flatten().flat_map(|it| it.resources.iter().flatten()).all(|it| it != "secrets")
    };
    wait::until_any(&remote.serving.api(), &remote.label(), "no key may be stored", PATIENCE, may_not_store)
        .await
        .unwrap();
    assert_eq!(remote.run(&second).await, 0);
    let done = remote.until_ready().await;
    assert_eq!(content(&remote.serving.volume()).as_deref(), Some("hello"));
    assert_eq!(syncjob::text(&done, "/lastRun/id"), "copy-1");
    assert_eq!(syncjob::status(&done, "/lastRun/work/filesCreated"), 1);
    assert!(
        syncjob::status(&done, "/lastRun/timings").as_object().is_some_and(|it| !it.is_empty()),
        "{done:#?}"
    );
    assert_eq!(syncjob::text(&done, "/identity/publicKey"), key);

    // The next run finds the key, and changes only what has changed.
    fill(&remote.volume(), "hello again");
    remote.serving.stage.patch("copy", json!({"spec": {"trigger": "again"}})).await.unwrap();
    remote.next_pod().await;
    let third = remote.pod(&[&first, &second]).await;
    assert_eq!(remote.run(&third).await, 0);
    remote.until("it has run again", |job| syncjob::text(job, "/lastRun/id") == "copy-2").await;
    assert_eq!(content(&remote.serving.volume()).as_deref(), Some("hello again"));
    let told = remote.serving.until("it is told", |it| syncjob::status(it, "/peers/0/runs") == 2).await;
    assert_eq!(syncjob::text(&told, "/lastRun/peer"), "copy-0");

    remote.serving.stage.jobs.delete("copy", &kube::api::DeleteParams::default()).await.unwrap();
    wait::until_gone(&remote.serving.api::<Secret>(), &secret, PATIENCE).await.unwrap();
}

/// Asserts that a pod can make no Secret but that of its key.
async fn assert_stores_no_other_secret(remote: &Remote, pod: &Pod) {
    let as_pod = remote.serving.stage.kubelet.client_of(pod).await.unwrap();
    remote.serving.until_refused_as(as_pod.clone(), json!({"metadata": {"name": "other"}})).await;
    let others = json!({"metadata": {"name": "vf-copy-key-0123456789"}});
    remote.serving.until_refused_as(as_pod.clone(), others).await;
    let token = json!({"metadata": {"name": "vf-copy-key-0123456789",
        "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token"});
    remote.serving.until_refused_as(as_pod, token).await;
}

/// Asserts that a job waits for its key to be listed, and that the pod cannot read it. Returns the Secret's name.
async fn assert_waits_for_key(remote: &Remote, pod: &Pod, key: &str) -> String {
    let waiting =
        remote.until("it says so", |job| syncjob::has_reason(job, "Reconciling", "KeyNotAccepted")).await;
    let said = syncjob::message(&waiting, "Reconciling");
    assert!(said.contains(key) && said.contains(&remote.address), "{said}");
    assert_eq!(syncjob::status(&waiting, "/activeRun/retries"), 0, "it uses up no retry");
    let secrets = remote.secrets().await;
    assert_eq!((secrets.len(), secrets[0].immutable), (1, Some(true)));
    assert_eq!(secrets[0].owner_references()[0].kind, "SyncJob");
    let as_pod = remote.serving.stage.kubelet.client_of(pod).await.unwrap();
    let as_pod = Api::<Secret>::namespaced(as_pod, &remote.serving.stage.namespace);
    let refused = as_pod.get(&secrets[0].name_any()).await.unwrap_err().to_string();
    assert!(refused.contains("forbidden"), "{refused}");
    secrets[0].name_any()
}

#[tokio::test]
async fn a_job_gets_from_an_endpoint_with_the_key_of_a_secret_and_keeps_snapshots() {
    let remote = Remote::new("remote-from", Side::Sink).await;
    fill(&remote.serving.volume(), "theirs");
    let key = OwnKey::generate().unwrap();
    let file = remote.dir.path().join("secret/identity.key");
    key.write(&file).unwrap();
    remote.list(&[&key.public().to_string()]).await;
    let more = json!({"snapshots": {"retain": {"last": 2}}, "files": {"delete": true}});
    remote.sync(json!({"identity": {"secretName": "mine"}}), more).await;
    let pod = remote.pod(&[]).await;
    let secret =
        pod.spec.as_ref().unwrap().volumes.iter().flatten().find_map(|it| it.secret.clone()).unwrap();
    assert_eq!((secret.secret_name.as_deref(), secret.optional), (Some("mine"), Some(false)));
    // The endpoint may take a moment to know the key.
    let mut pods = vec![pod];
    while remote.run(pods.last().unwrap()).await == 6 {
        remote.next_memory();
        let known: Vec<&Pod> = pods.iter().collect();
        let next = remote.pod(&known).await;
        pods.push(next);
    }
    let done = remote.until_ready().await;
    assert_eq!(content(&remote.volume()).as_deref(), Some("theirs"));
    assert_eq!(syncjob::status(&done, "/snapshots/count"), 1);
    assert_eq!(syncjob::text(&done, "/identity/publicKey"), key.public().to_string());
    assert!(remote.secrets().await.is_empty(), "it makes none");
}

#[tokio::test]
async fn another_key_than_the_pinned_one_stalls_the_job_until_it_is_corrected() {
    let remote = Remote::new("remote-key", Side::Source).await;
    let wrong = OwnKey::generate().unwrap().public().to_string();
    remote.sync(json!({ "publicKey": wrong }), json!({})).await;
    let first = remote.pod(&[]).await;
    assert_eq!(remote.run(&first).await, 6);
    let stalled =
        remote.until("it stalls", |job| syncjob::has_reason(job, "Stalled", "IdentityRefused")).await;
    assert_eq!(syncjob::status(&stalled, "/lastRun/retries"), 0);
    let message = syncjob::message(&stalled, "Stalled");
    assert!(message.contains(&format!("expects the key {wrong} of {}", remote.address)), "{message}");
    remote.list(&[&remote.public_key().await]).await;
    let right = json!({"spec": {"destination": {"endpoint": {"publicKey": remote.key.to_string()}}}});
    remote.serving.stage.patch("copy", right).await.unwrap();
    remote.next_pod().await;
    let second = remote.pod(&[&first]).await;
    assert_eq!(remote.run(&second).await, 0);
    remote.until_ready().await;
}

/// Returns the manifest of the SyncJob `copy`.
fn copy_of(spec: &Value) -> Value {
    json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob", "metadata": {"name": "copy"}, "spec": spec})
}

#[tokio::test]
async fn what_an_endpoint_cannot_have_is_refused_with_what_to_write_instead() {
    let (serving, _controller) = Serving::new("remote-refused").await;
    let key = OwnKey::generate().unwrap().public().to_string();
    let endpoint = json!({"endpoint": {"address": "h:7400::web", "publicKey": key}});
    let claim = json!({"persistentVolumeClaim": {"claimName": "from"}});
    let with = |of: &Value, more: Value| {
        let mut of = of.clone();
        syncjob::merge(&mut of, more);
        of
    };
    let to = |more: Value| with(&json!({"source": claim, "destination": endpoint}), more);
    let from = |more: Value| with(&json!({"source": endpoint, "destination": claim}), more);
    let address = |address: &str| to(json!({"destination": {"endpoint": {"address": address}}}));
    let placed = json!({"destination": {"pods": {"nodeSelector": {"a": "b"}}}});
    let abroad = json!({"source": {"persistentVolumeClaim": {"namespace": "other"}}});
    let captured = json!({"source": {"pointInTime": {"method": "Snapshot"}}});
    let one_kind = "exactly one of persistentVolumeClaim and endpoint";
    for (spec, words) in [
        (json!({"source": endpoint, "destination": endpoint}), "name a claim at one of the two ends"),
        (json!({"source": {}, "destination": claim}), one_kind),
        (to(json!({"source": endpoint})), one_kind),
        (to(json!({"destination": {"path": "/x"}})), "destination.path is for a claim"),
        (from(json!({"source": {"path": "/x"}})), "source.path is for a claim"),
        (from(captured), "source.pointInTime is for a claim"),
        (to(json!({"destination": {"create": {}}})), "destination.create is for a claim"),
        (to(json!({"snapshots": {}})), "snapshots is for a destination that is a claim"),
        (to(json!({"parallelism": 2})), "parallelism above 1 is for two claims"),
        (from(json!({"transfer": {"placement": "Local"}})), "transfer.placement Local is one pod"),
        (to(placed), "destination.pods is for a claim"),
        (to(abroad), "source.persistentVolumeClaim.namespace is for two claims"),
        (address("h:7400/web"), "is no address of an endpoint"),
        (address("h::"), "is no address of an endpoint"),
        (address("me@h::web"), "is no address of an endpoint"),
        (address("-h::web"), "is no address of an endpoint"),
        (address("h::web/../x"), "is no address of an endpoint"),
    ] {
        let said = syncjob::create(&serving.stage.jobs, copy_of(&spec)).await.unwrap_err();
        assert!(format!("{said:#}").contains(words), "{words}: {said:#}");
    }

    // A claim stays a claim, since what was written there would be left behind; an address may change.
    syncjob::create(&serving.stage.jobs, copy_of(&to(json!({"suspend": true})))).await.unwrap();
    let moved = json!({"spec": {"destination": {"endpoint": {"address": "[fd00::7]:31000::web/below"}}}});
    serving.stage.patch("copy", moved).await.unwrap();
    let other =
        json!({"spec": {"destination": {"endpoint": null, "persistentVolumeClaim": {"claimName": "to"}}}});
    let patch = Patch::Merge(other);
    let said =
        serving.stage.jobs.patch("copy", &PatchParams::default(), &patch).await.unwrap_err().to_string();
    assert!(said.contains("cannot change"), "{said}");
}
