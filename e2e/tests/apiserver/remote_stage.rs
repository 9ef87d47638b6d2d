//! SyncJobs with an endpoint at one end. The test takes the place of the kubelet: it runs the program of a job's pod,
//! with the pod's arguments and its account.

use std::{
    ops::Deref,
    path::{Path, PathBuf},
    sync::Arc,
};

use contract::{PublicKey, Side};
use e2e::{
    programs,
    scripted::{Controller, Stage},
    syncjob,
};
use k8s_openapi::api::core::v1::{EnvVar, Pod, Secret};
use kube::api::{DynamicObject, ListParams};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::endpoints_stage::Serving;

/// A SyncJob whose pod dials.
pub(super) struct Dialling {
    pub(super) stage: Arc<Stage>,
    pub(super) name: String,
    /// The side of the job's pod.
    pub(super) side: Side,
    /// The folders of the job's pod: its volume, its memory and its mounted Secret.
    pub(super) dir: TempDir,
    /// The syncer's program.
    pub(super) volferry: PathBuf,
}

impl Dialling {
    pub(super) fn new(stage: &Arc<Stage>, name: &str, side: Side) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["volume", "memory", "secret"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let volferry = programs::of_workspace("volferry").unwrap();
        Self { stage: Arc::clone(stage), name: name.into(), side, dir, volferry }
    }

    pub(super) fn volume(&self) -> PathBuf {
        self.dir.path().join("volume")
    }

    pub(super) async fn pod(&self, known: &[&Pod]) -> Pod {
        self.stage.kubelet.new_pod(&self.name, self.side, known).await.unwrap()
    }

    /// Runs the program of a pod until it has reported, ends the pod as it ended, and returns its exit status.
    pub(super) async fn run(&self, pod: &Pod) -> i32 {
        let process = self.start(pod).await;
        self.end(pod, process).await
    }

    pub(super) async fn start(&self, pod: &Pod) -> Controller {
        self.stage.kubelet.start(pod).await.unwrap();
        let spec = pod.spec.clone().unwrap();
        let below = |name: &str| self.dir.path().join(name).display().to_string();
        let ours = |argument: &String| match &**argument {
            "/source" | "/destination" => below("volume"),
            "/volferry" => self.volferry.display().to_string(),
            other => other
                .replace("=/etc/volferry/key/", &format!("={}/", below("secret")))
                .replace("=/run/volferry/", &format!("={}/", below("memory"))),
        };
        let arguments: Vec<String> = spec.containers[0].args.iter().flatten().map(ours).collect();
        let log = format!("--termination-log={}", below("memory/termination"));
        let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        arguments.insert(1, &log);
        let variables = self.variables(pod);
        let mut variables: Vec<(&str, &str)> =
            variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        variables.push(("POD_IPS", "127.0.0.1"));
        let account = spec.service_account_name.unwrap();
        self.stage.service(&account, &arguments, &variables).await.unwrap()
    }

    /// Returns the variables that a pod has from its Secret, of which each entry is a file.
    fn variables(&self, pod: &Pod) -> Vec<(String, String)> {
        let env = pod.spec.iter().flat_map(|spec| &spec.containers[0].env).flatten();
        let of_secret = |variable: &EnvVar| {
            let entry = &variable.value_from.as_ref()?.secret_key_ref.as_ref()?.key;
            let value = std::fs::read_to_string(self.dir.path().join("secret").join(entry)).ok()?;
            Some((variable.name.clone(), value))
        };
        env.filter_map(of_secret).collect()
    }

    pub(super) async fn end(&self, pod: &Pod, process: Controller) -> i32 {
        let exit = process.exit().await.unwrap();
        let message = std::fs::read_to_string(self.dir.path().join("memory/termination")).unwrap_or_default();
        self.stage.kubelet.end(pod, exit, &message).await.unwrap();
        exit
    }

    /// Runs pods as long as the endpoint refuses the job's key, and then the one that it takes. Returns all pods.
    pub(super) async fn run_until_accepted(&self, mut pods: Vec<Pod>) -> Vec<Pod> {
        loop {
            let known: Vec<&Pod> = pods.iter().collect();
            let pod = self.pod(&known).await;
            self.next_pod().await;
            let exit = self.run(&pod).await;
            pods.push(pod);
            if exit != 6 {
                assert_eq!(exit, 0);
                return pods;
            }
        }
    }

    /// Ends the memory of a pod, and mounts the job's Secret for the next one.
    pub(super) async fn next_pod(&self) {
        self.next_memory();
        let mounted = self.dir.path().join("secret/identity.key");
        let _ = std::fs::remove_file(&mounted);
        for secret in self.secrets().await {
            let key = secret.data.unwrap().remove("identity.key").unwrap();
            std::fs::write(&mounted, key.0).unwrap();
        }
    }

    /// Ends the memory of a pod.
    pub(super) fn next_memory(&self) {
        std::fs::remove_dir_all(self.dir.path().join("memory")).unwrap();
        std::fs::create_dir(self.dir.path().join("memory")).unwrap();
    }

    /// Returns the label of the job's objects.
    pub(super) fn label(&self) -> String {
        format!("volferry.dev/syncjob={}", self.name)
    }

    /// Returns the Secrets of the job.
    pub(super) async fn secrets(&self) -> Vec<Secret> {
        let api = self.stage.api::<Secret>();
        api.list(&ListParams::default().labels(&self.label())).await.unwrap().items
    }

    pub(super) async fn until(&self, what: &str, holds: impl Fn(&DynamicObject) -> bool) -> DynamicObject {
        self.stage.until(&self.name, what, holds).await.unwrap()
    }

    /// Returns the job's public key once the status has it.
    pub(super) async fn public_key(&self) -> String {
        let told = |job: &DynamicObject| syncjob::text(job, "/identity/publicKey").len() == 44;
        let job = self.until("the key is told", told).await;
        syncjob::text(&job, "/identity/publicKey").to_string()
    }

    pub(super) async fn until_ready(&self) -> DynamicObject {
        self.until("it is ready", |job| syncjob::is(job, "Ready")).await
    }
}

/// An endpoint that serves, and the SyncJob `copy` whose other end it is.
pub(super) struct Remote {
    pub(super) serving: Serving,
    pub(super) own: Dialling,
    pub(super) address: String,
    pub(super) key: PublicKey,
    /// The endpoint's pod.
    pub(super) service: Option<Controller>,
    _controller: Controller,
}

impl Deref for Remote {
    type Target = Dialling;

    fn deref(&self) -> &Dialling {
        &self.own
    }
}

impl Remote {
    /// Brings the endpoint up, with this access for peers.
    pub(super) async fn new(test: &str, side: Side) -> Self {
        Self::with(test, side, json!({})).await
    }

    /// Brings the endpoint up, with these fields in its spec.
    pub(super) async fn with(test: &str, side: Side, more: Value) -> Self {
        let (serving, controller) = Serving::new(test).await;
        Self::of(serving, controller, side, more).await
    }

    /// Brings an endpoint up that is not there yet, with these fields in its spec.
    pub(super) async fn of(serving: Serving, controller: Controller, side: Side, more: Value) -> Self {
        let mut spec = json!({"access": if side == Side::Source { "Write" } else { "Read" }});
        syncjob::merge(&mut spec, more);
        serving.create(spec).await;
        let (service, address, key) = serving.up().await;
        let own = Dialling::new(&serving.stage, "copy", side);
        Self { serving, own, address, key, service: Some(service), _controller: controller }
    }

    /// Creates the SyncJob with these fields in its endpoint and in its spec.
    pub(super) async fn sync(&self, endpoint: Value, more: Value) {
        self.sync_as(&self.own, endpoint, more).await;
    }

    /// Creates another SyncJob with the same endpoint.
    pub(super) async fn sync_as(&self, dialling: &Dialling, endpoint: Value, more: Value) {
        let mut remote = json!({"address": self.address, "publicKey": self.key.to_string()});
        syncjob::merge(&mut remote, endpoint);
        let remote = json!({ "endpoint": remote });
        let claim = json!({"persistentVolumeClaim": {"claimName": "from"}});
        let mut spec = match dialling.side {
            Side::Source => json!({"source": claim, "destination": remote}),
            Side::Sink => json!({"source": remote, "destination": claim}),
        };
        syncjob::merge(&mut spec, more);
        let manifest = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob",
            "metadata": {"name": dialling.name}, "spec": spec});
        syncjob::create(&dialling.stage.jobs, manifest).await.unwrap();
    }

    /// Has the endpoint list keys.
    pub(super) async fn list(&self, keys: &[&str]) {
        let peer = |(at, key): (usize, &&str)| json!({"name": format!("copy-{at}"), "publicKey": key});
        let peers: Vec<Value> = keys.iter().enumerate().map(peer).collect();
        self.serving.change(json!({"spec": {"peers": peers}})).await;
    }
}

pub(super) fn fill(folder: &Path, text: &str) {
    std::fs::write(folder.join("file"), text).unwrap();
}
