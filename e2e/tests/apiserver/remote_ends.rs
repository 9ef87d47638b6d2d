//! SyncJobs with an endpoint at one end: the one pod of a run makes the job's key and dials a real service; a key that
//! is not listed yet is waited for, and another key than the pinned one stalls the job.

use std::path::{Path, PathBuf};

use contract::{OwnKey, PublicKey};
use e2e::scripted::Controller;
use k8s_openapi::api::{core::v1::Secret, rbac::v1::Role};
use tempfile::TempDir;

use crate::endpoints_stage::{Serving, content};
use crate::prelude::*;

const LABEL: &str = "volferry.dev/syncjob=copy";

/// An endpoint that serves, and a SyncJob whose other end it is. The test takes the place of the kubelet: it runs the
/// program of the job's pod, with the pod's arguments and its account.
struct Remote {
    serving: Serving,
    /// The folders of the job's pod: its volume, its memory and its mounted Secret.
    dir: TempDir,
    address: String,
    key: PublicKey,
    /// The side of the job's pod.
    side: Side,
    _service: Controller,
    _controller: Controller,
}

impl Remote {
    /// Brings the endpoint up, with this access for peers.
    async fn new(test: &str, side: Side) -> Self {
        let (serving, controller) = Serving::new(test).await;
        let access = if side == Side::Source { "Write" } else { "Read" };
        serving.create(json!({"access": access})).await;
        let (service, address, key) = serving.up().await;
        let dir = tempfile::tempdir().unwrap();
        for folder in ["volume", "memory", "secret"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        Self { serving, dir, address, key, side, _service: service, _controller: controller }
    }

    fn volume(&self) -> PathBuf {
        self.dir.path().join("volume")
    }

    /// Creates the SyncJob with these fields in its endpoint and in its spec.
    async fn sync(&self, endpoint: Value, more: Value) {
        let mut remote = json!({"address": self.address, "publicKey": self.key.to_string()});
        syncjob::merge(&mut remote, endpoint);
        let remote = json!({ "endpoint": remote });
        let claim = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
        let mut spec = match self.side {
            Side::Source => json!({"source": claim("from"), "destination": remote}),
            Side::Sink => json!({"source": remote, "destination": claim("from")}),
        };
        syncjob::merge(&mut spec, more);
        let manifest = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob", "metadata": {"name": "copy"},
            "spec": spec});
        syncjob::create(&self.serving.stage.jobs, manifest).await.unwrap();
    }

    async fn pod(&self, known: &[&Pod]) -> Pod {
        self.serving.stage.kubelet.new_pod("copy", self.side, known).await.unwrap()
    }

    /// Runs the program of a pod until it has reported, ends the pod as it ended, and returns its exit status.
    async fn run(&self, pod: &Pod) -> i32 {
        let process = self.start(pod).await;
        self.end(pod, process).await
    }

    async fn start(&self, pod: &Pod) -> Controller {
        let stage = &self.serving.stage;
        stage.kubelet.start(pod).await.unwrap();
        let spec = pod.spec.clone().unwrap();
        let below = |name: &str| self.dir.path().join(name).display().to_string();
        let program = programs::of_workspace("volferry").unwrap();
        let ours = |argument: &String| match argument.split_once('=').map_or(&**argument, |(name, _)| name) {
            "--key" => format!("--key={}/identity.key", below("secret")),
            "--key-copy" => format!("--key-copy={}/identity.key", below("memory")),
            "--identity" => format!("--identity={}/identity.key", below("memory")),
            "--report" => format!("--report={}/report.json", below("memory")),
            "/source" | "/destination" => below("volume"),
            "/volferry" => program.display().to_string(),
            _ => argument.clone(),
        };
        let arguments: Vec<String> = spec.containers[0].args.iter().flatten().map(ours).collect();
        let log = format!("--termination-log={}", below("memory/termination"));
        let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        arguments.insert(1, &log);
        stage.service(&spec.service_account_name.unwrap(), &arguments).await.unwrap()
    }

    async fn end(&self, pod: &Pod, process: Controller) -> i32 {
        let exit = process.exit().await.unwrap();
        let message = std::fs::read_to_string(self.dir.path().join("memory/termination")).unwrap_or_default();
        self.serving.stage.kubelet.end(pod, exit, &message).await.unwrap();
        exit
    }

    /// Ends the memory of a pod, and mounts the job's Secret for the next one.
    async fn next_pod(&self) {
        self.next_memory();
        for secret in self.secrets().await {
            let key = secret.data.unwrap().remove("identity.key").unwrap();
            std::fs::write(self.dir.path().join("secret/identity.key"), key.0).unwrap();
        }
    }

    /// Ends the memory of a pod.
    fn next_memory(&self) {
        std::fs::remove_dir_all(self.dir.path().join("memory")).unwrap();
        std::fs::create_dir(self.dir.path().join("memory")).unwrap();
    }

    /// Returns the Secrets of the job.
    async fn secrets(&self) -> Vec<Secret> {
        self.serving.api::<Secret>().list(&ListParams::default().labels(LABEL)).await.unwrap().items
    }

    async fn until(&self, what: &str, holds: impl Fn(&DynamicObject) -> bool) -> DynamicObject {
        self.serving.stage.until("copy", what, holds).await.unwrap()
    }

    /// Returns the job's public key once the status has it.
    async fn public_key(&self) -> String {
        let told = |job: &DynamicObject| syncjob::text(job, "/identity/publicKey").len() == 44;
        let job = self.until("the key is told", told).await;
        syncjob::text(&job, "/identity/publicKey").to_string()
    }

    /// Has the endpoint list a key.
    async fn list(&self, key: &str) {
        self.serving.change(json!({"spec": {"peers": [{"name": "copy", "publicKey": key}]}})).await;
    }

    async fn until_ready(&self) -> DynamicObject {
        self.until("it is ready", |job| syncjob::is(job, "Ready")).await
    }
}

fn fill(folder: &Path, text: &str) {
    std::fs::write(folder.join("file"), text).unwrap();
}

#[tokio::test]
async fn a_job_waits_until_its_key_is_listed_and_sends_into_the_endpoint() {
    let remote = Remote::new("remote-to", Side::Source).await;
    fill(&remote.volume(), "hello");
    remote.sync(json!({}), json!({})).await;

    // The key is made by the pod, in a Secret that it can never read, and the endpoint does not know it.
    let first = remote.pod(&[]).await;
    assert_eq!(remote.run(&first).await, 6);
    let key = remote.public_key().await;
    let waiting =
        remote.until("it says so", |job| syncjob::has_reason(job, "Reconciling", "KeyNotAccepted")).await;
    let said = syncjob::message(&waiting, "Reconciling");
    assert!(said.contains(&key) && said.contains(&remote.address), "{said}");
    assert_eq!(syncjob::status(&waiting, "/activeRun/retries"), 0, "it uses up no retry");
    let secrets = remote.secrets().await;
    assert_eq!((secrets.len(), secrets[0].immutable), (1, Some(true)));
    assert_eq!(secrets[0].owner_references()[0].kind, "SyncJob");
    let as_pod = remote.serving.stage.kubelet.client_of(&first).await.unwrap();
    let as_pod = Api::<Secret>::namespaced(as_pod, &remote.serving.stage.namespace);
    let refused = as_pod.get(&secrets[0].name_any()).await.unwrap_err().to_string();
    assert!(refused.contains("forbidden"), "{refused}");

    remote.list(&key).await;
    remote.next_pod().await;
    let second = remote.pod(&[&first]).await;
    let may_not_store = |role: &Role| {
        role.rules.iter().flatten().flat_map(|it| it.resources.iter().flatten()).all(|it| it != "secrets")
    };
    wait::until_any(&remote.serving.api(), LABEL, "no key may be stored", PATIENCE, may_not_store)
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
    assert_eq!(syncjob::text(&told, "/lastRun/peer"), "copy");

    remote.serving.stage.jobs.delete("copy", &kube::api::DeleteParams::default()).await.unwrap();
    wait::until_gone(&remote.serving.api::<Secret>(), &secrets[0].name_any(), PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_job_gets_from_an_endpoint_with_the_key_of_a_secret_and_keeps_snapshots() {
    let remote = Remote::new("remote-from", Side::Sink).await;
    fill(&remote.serving.volume(), "theirs");
    let key = OwnKey::generate().unwrap();
    let file = remote.dir.path().join("secret/identity.key");
    key.write(&file).unwrap();
    remote.list(&key.public().to_string()).await;
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
    remote.sync(json!({"publicKey": wrong}), json!({})).await;
    let first = remote.pod(&[]).await;
    assert_eq!(remote.run(&first).await, 6);
    let stalled =
        remote.until("it stalls", |job| syncjob::has_reason(job, "Stalled", "IdentityRefused")).await;
    assert_eq!(syncjob::status(&stalled, "/lastRun/retries"), 0);
    remote.list(&remote.public_key().await).await;
    let right = json!({"spec": {"destination": {"endpoint": {"publicKey": remote.key.to_string()}}}});
    remote.serving.stage.patch("copy", right).await.unwrap();
    remote.next_pod().await;
    let second = remote.pod(&[&first]).await;
    assert_eq!(remote.run(&second).await, 0);
    remote.until_ready().await;
}

#[tokio::test]
async fn what_an_endpoint_cannot_have_is_refused_with_what_to_write_instead() {
    let (serving, _controller) = Serving::new("remote-refused").await;
    let refused = async |spec: Value, words: &str| {
        let manifest = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob", "metadata": {"name": "copy"},
            "spec": spec});
        let said = syncjob::create(&serving.stage.jobs, manifest).await.unwrap_err();
        assert!(format!("{said:#}").contains(words), "{words}: {said:#}");
    };
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
    let both = json!({"source": endpoint, "destination": endpoint});
    refused(both, "name a claim at one of the two ends").await;
    refused(json!({"source": {}, "destination": claim}), "exactly one of persistentVolumeClaim and endpoint")
        .await;
    refused(to(json!({"source": endpoint.clone()})), "exactly one of persistentVolumeClaim and endpoint")
        .await;
    refused(to(json!({"destination": {"path": "/x"}})), "destination.path is for a claim").await;
    refused(from(json!({"source": {"path": "/x"}})), "source.path is for a claim").await;
    refused(
        from(json!({"source": {"pointInTime": {"method": "Snapshot"}}})),
        "source.pointInTime is for a claim",
    )
    .await;
    refused(to(json!({"destination": {"create": {}}})), "destination.create is for a claim").await;
    refused(to(json!({"snapshots": {}})), "snapshots is for a destination that is a claim").await;
    refused(to(json!({"parallelism": 2})), "parallelism above 1 is for two claims").await;
    refused(from(json!({"transfer": {"placement": "Local"}})), "transfer.placement Local is one pod").await;
    refused(
        to(json!({"destination": {"pods": {"nodeSelector": {"a": "b"}}}})),
        "destination.pods is for a claim",
    )
    .await;
    let abroad = json!({"source": {"persistentVolumeClaim": {"namespace": "other"}}});
    refused(to(abroad), "source.persistentVolumeClaim.namespace is for two claims").await;
    for address in ["h:7400/web", "h::", "me@h::web", "-h::web", "h::web/../x"] {
        refused(
            to(json!({"destination": {"endpoint": {"address": address}}})),
            "is no address of an endpoint",
        )
        .await;
    }

    // A claim stays a claim, since what was written there would be left behind; an address may change.
    syncjob::create(
        &serving.stage.jobs,
        json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob",
        "metadata": {"name": "copy"}, "spec": to(json!({"suspend": true}))}),
    )
    .await
    .unwrap();
    let moved = json!({"spec": {"destination": {"endpoint": {"address": "[fd00::7]:31000::web/below"}}}});
    serving.stage.patch("copy", moved).await.unwrap();
    let other =
        json!({"spec": {"destination": {"endpoint": null, "persistentVolumeClaim": {"claimName": "to"}}}});
    let patch = Patch::Merge(other);
    let said =
        serving.stage.jobs.patch("copy", &PatchParams::default(), &patch).await.unwrap_err().to_string();
    assert!(said.contains("cannot change"), "{said}");
}
