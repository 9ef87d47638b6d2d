//! `kubectl volferry pair`, `rotate` and `unpair` between two namespaces, which the kubeconfig has as two clusters. The
//! test runs the programs of the endpoint's pod and of the SyncJob's. Only a kubelet can start one in the pod that
//! tries the way, so what that finds is a test of the kind cluster.

use std::{path::PathBuf, process::Stdio, sync::Arc};

use contract::Side;
use e2e::{
    apiserver::{ApiServer, User},
    programs,
    scripted::{Controller, PATIENCE, Stage},
    syncjob, wait,
};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Pod, Secret},
};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams},
    config::Kubeconfig,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::{
    endpoints_stage::{Serving, content},
    prelude::output_of,
    remote_stage::{Dialling, fill},
};

/// A cluster that serves, one that dials, and a machine whose kubeconfig has both.
struct Clusters {
    serving: Serving,
    dialling: Dialling,
    dir: TempDir,
    _controllers: [Controller; 2],
}

impl Clusters {
    async fn new(test: &str) -> Self {
        let (serving, first) = Serving::new(test).await;
        let (stage, second) = Stage::with_controller(&format!("{test}-dials")).await.unwrap();
        let dialling = Dialling::new(&Arc::new(stage), "web", Side::Source);
        let dir = tempfile::tempdir().unwrap();
        let clusters = Self { serving, dialling, dir, _controllers: [first, second] };
        let mut config = Kubeconfig::read_from(ApiServer::shared().kubeconfig(User::Admin)).unwrap();
        for name in ["near", "the/far"] {
            let mut named = config.contexts[0].clone();
            name.clone_into(&mut named.name);
            config.contexts.push(named);
        }
        std::fs::write(clusters.kubeconfig(), serde_json::to_string(&config).unwrap()).unwrap();
        clusters
    }

    fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// Starts a command about the pair of the claims `from` and `to`.
    fn start(&self, command: &str, more: &[&str]) -> Child {
        self.start_of(["from", "to"], command, more)
    }

    fn start_of(&self, [from, to]: [&str; 2], command: &str, more: &[&str]) -> Child {
        let from = format!("--from=near/{}/{from}", self.dialling.stage.namespace);
        let to = format!("--to=the/far/{}/{to}", self.serving.stage.namespace);
        Command::new(programs::of_workspace("kubectl-volferry").unwrap())
            .args([command, &from, &to, "--name=web"])
            .args(more)
            .env("KUBECONFIG", self.kubeconfig())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// Starts `pair --apply` with the address of the endpoint's program.
    fn start_pair(&self, more: &[&str]) -> Child {
        let port = format!("--port={}", self.serving.port);
        let usual = ["--apply", "--service=cluster-ip", "--host-name=127.0.0.1", &port];
        self.start("pair", &[&usual, more].concat())
    }

    fn jobs(&self) -> Api<Job> {
        self.dialling.stage.api()
    }

    /// Gives the SyncJob another key by commands that are stopped halfway, of which the first leaves a run with a key
    /// that nobody lists, and by one that goes on with that run. Returns all pods.
    async fn rotate_in_two_goes(&self, mut pods: Vec<Pod>) -> Vec<Pod> {
        let dialling = &self.dialling;
        let known = dialling.public_key().await;
        let mut stopped = self.start("rotate", &[]);
        wait::until_none(&secrets(&dialling.stage), &dialling.label(), PATIENCE).await.unwrap();
        for (at, exit) in [1, 6].into_iter().enumerate() {
            let pod = dialling.pod(&pods.iter().collect::<Vec<_>>()).await;
            if at == 0 {
                stopped.kill().await.unwrap();
            }
            dialling.next_pod().await;
            assert_eq!(dialling.run(&pod).await, exit);
            pods.push(pod);
        }
        let is_new =
            |job: &DynamicObject| ![known.as_str(), ""].contains(&syncjob::text(job, "/identity/publicKey"));
        dialling.until("it has another key", is_new).await;
        assert_eq!(self.listed().await, [known.as_str()]);
        let mut stopped = self.start("rotate", &[]);
        let are_both =
            |it: &DynamicObject| it.data["spec"]["peers"].as_array().is_some_and(|all| all.len() == 2);
        self.serving.until("both keys are listed", are_both).await;
        stopped.kill().await.unwrap();
        let rotating = self.start("rotate", &[]);
        let pods = dialling.run_until_accepted(pods).await;
        let said = ended(rotating, 0).await;
        assert!(said.contains("the old one is taken out"), "{said}");
        assert_eq!(self.listed().await, [dialling.public_key().await]);
        pods
    }

    /// Returns the keys that the endpoint lists.
    async fn listed(&self) -> Vec<String> {
        let endpoint = self.serving.endpoints.get("web").await.unwrap();
        let peers = endpoint.data["spec"]["peers"].as_array().cloned().unwrap_or_default();
        peers.iter().map(|peer| peer["publicKey"].as_str().unwrap().to_string()).collect()
    }
}

/// Returns what a command printed on standard error, once it has ended with this status.
async fn ended(child: Child, status: i32) -> String {
    let output = output_of(child).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{said}");
    said
}

#[tokio::test]
async fn two_clusters_are_paired_a_key_is_rotated_and_unpair_leaves_nothing_behind() {
    let clusters = Clusters::new("pairing").await;
    let Clusters { serving, dialling, .. } = &clusters;
    fill(&dialling.volume(), "hello");
    let pairing = clusters.start_pair(&["--no-trial"]);
    let (service, address, shown) = serving.up().await;
    let pods = dialling.run_until_accepted(Vec::new()).await;
    let said = ended(pairing, 0).await;
    assert!(said.contains(&address) && said.contains("the first run has succeeded"), "{said}");
    assert_eq!(content(&serving.volume()).as_deref(), Some("hello"));
    let first = dialling.public_key().await;
    assert_eq!(clusters.listed().await, [first.as_str()]);

    // During a run, no other one can begin with another key.
    dialling.stage.patch("web", json!({"spec": {"trigger": "busy"}})).await.unwrap();
    let pod = dialling.pod(&pods.iter().collect::<Vec<_>>()).await;
    let said = ended(clusters.start("rotate", &[]), 1).await;
    assert!(
        said.contains("is suspended or has a run") && said.contains("wait for the end of its run"),
        "{said}"
    );
    dialling.next_pod().await;
    assert_eq!(dialling.run(&pod).await, 0);
    let pods: Vec<Pod> = pods.into_iter().chain([pod]).collect();
    dialling.until_ready().await;

    // Both keys are listed until a run has succeeded with the new one.
    fill(&dialling.volume(), "hello again");
    let rotating = clusters.start("rotate", &[]);
    wait::until_none(&secrets(&dialling.stage), &dialling.label(), PATIENCE).await.unwrap();
    let pod = dialling.pod(&pods.iter().collect::<Vec<_>>()).await;
    dialling.next_pod().await;
    assert_eq!(dialling.run(&pod).await, 1, "it finds no key, and may make none");
    let pods = dialling.run_until_accepted(pods.into_iter().chain([pod]).collect()).await;
    let said = ended(rotating, 0).await;
    assert!(said.contains("both keys") && said.contains("the old one is taken out"), "{said}");
    let second = dialling.public_key().await;
    assert_ne!(first, second);
    assert_eq!(clusters.listed().await, [second.as_str()]);
    assert_eq!(content(&serving.volume()).as_deref(), Some("hello again"));
    let pods = clusters.rotate_in_two_goes(pods).await;
    let _service = rotate_after_a_stop(&clusters, service, pods).await;
    let job = dialling.stage.jobs.get("web").await.unwrap();
    assert_ne!(job.data["spec"]["destination"]["endpoint"]["publicKey"], shown.to_string());
    assert_eq!(content(&serving.volume()).as_deref(), Some("hello once more"));
    unpair(&clusters).await;
}

/// Changes the endpoint's key by a command that is stopped halfway, and by another one. Returns the process that serves
/// with the new key.
async fn rotate_after_a_stop(clusters: &Clusters, service: Controller, mut pods: Vec<Pod>) -> Controller {
    let Clusters { serving, dialling, .. } = clusters;
    // A command that is stopped halfway has counted, and the next one does not.
    let mut stopped = clusters.start("rotate", &["--endpoint"]);
    serving.until("it has counted", |it| it.data["spec"]["keyVersion"] == 2).await;
    stopped.kill().await.unwrap();
    fill(&dialling.volume(), "hello once more");
    let rotating = clusters.start("rotate", &["--endpoint"]);
    let service = serving.with_next_key(service).await;
    // The change of the SyncJob may ask for a run of its own.
    let running = async {
        loop {
            pods = dialling.run_until_accepted(std::mem::take(&mut pods)).await;
        }
    };
    let said = tokio::select! { said = ended(rotating, 0) => said, () = running => unreachable!() };
    assert!(said.contains("a run has met the endpoint with its new key"), "{said}");
    assert_eq!(serving.endpoints.get("web").await.unwrap().data["spec"]["keyVersion"], 2);
    service
}

/// Takes the pair apart, after commands that are refused; nothing of it is left.
async fn unpair(clusters: &Clusters) {
    let Clusters { serving, dialling, .. } = clusters;
    let said = ended(clusters.start("unpair", &["--serve=from"]), 1).await;
    assert!(said.contains("neither a SyncJob nor a SyncEndpoint"), "{said}");
    let said = ended(clusters.start_of(["to", "to"], "pair", &["--apply", "--no-trial"]), 1).await;
    assert!(said.contains("of other claims") && said.contains("another --name"), "{said}");
    let said = ended(clusters.start_of(["to", "to"], "unpair", &[]), 1).await;
    assert!(said.contains("no pair of these claims"), "{said}");
    let said = ended(clusters.start("unpair", &[]), 0).await;
    assert!(said.contains("deleted"), "{said}");
    serving.until_nothing_is_left().await;
    wait::until_gone(&dialling.stage.jobs, "web", PATIENCE).await.unwrap();
    wait::until_none(&secrets(&dialling.stage), &dialling.label(), PATIENCE).await.unwrap();
}

fn secrets(stage: &Stage) -> Api<Secret> {
    stage.api()
}

#[tokio::test]
async fn what_keeps_two_clusters_from_being_paired_is_named() {
    let clusters = Clusters::new("blocked").await;
    let Clusters { serving, dialling, .. } = &clusters;
    let printed = clusters.start("pair", &["--serve=from"]).wait_with_output().await.unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("kind: SyncEndpoint") && printed.contains("access: Read"), "{printed}");
    assert!(serving.endpoints.list(&ListParams::default()).await.unwrap().items.is_empty());
    let said = ended(clusters.start_of(["none", "to"], "pair", &["--apply"]), 1).await;
    assert!(said.contains("there is no PersistentVolumeClaim none"), "{said}");

    // No load balancer gives the endpoint an address.
    let mut waiting = clusters.start("pair", &["--apply"]);
    let deployment = serving.until_replicas(1).await;
    let _service = serving.run_pod(&deployment).await;
    serving.set_available(&deployment, 1).await;
    let mut said = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let told = async {
        while let Some(line) = said.next_line().await.unwrap() {
            if line.contains("AddressPending") && line.contains("the cluster has no load balancer") {
                return;
            }
        }
        panic!("it ended");
    };
    tokio::time::timeout(PATIENCE, told).await.expect("it says that there is no load balancer");
    waiting.kill().await.unwrap();

    // The pod that tries the way has the labels of a syncer, and only reads.
    let tried = clusters.start_pair(&["--image=i:1"]);
    let jobs = clusters.jobs();
    let job = wait::until_any(&jobs, "volferry.dev/one-off=from", "there is a Job", PATIENCE, |_| true)
        .await
        .unwrap();
    let pods = dialling.stage.api::<Pod>();
    let pod =
        wait::until_any(&pods, "app.kubernetes.io/component=syncer", "its pod is there", PATIENCE, |_| true)
            .await
            .unwrap();
    let claim = json!(job)["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"].clone();
    assert_eq!((&claim["claimName"], &claim["readOnly"]), (&json!("from"), &json!(true)));
    assert_eq!(json!(pod)["spec"]["containers"][0]["env"], json!([{"name": "HOME", "value": "/tmp"}]));
    dialling.stage.kubelet.start(&pod).await.unwrap();
    let said = ended(tried, 1).await;
    assert!(said.contains("cannot start a process in pod"), "{said}");
    wait::until_gone(&jobs, &job.name_any(), PATIENCE).await.unwrap();
    assert!(dialling.stage.jobs.list(&ListParams::default()).await.unwrap().items.is_empty());
}
