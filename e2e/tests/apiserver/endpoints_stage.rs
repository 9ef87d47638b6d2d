//! A namespace with a SyncEndpoint. The test takes the place of the Deployment's controller and of the kubelet: it runs
//! the program of the pod, with the pod's arguments and its account.

use std::{
    net::{TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use contract::{OwnKey, PublicKey};
use e2e::{scripted::Controller, supervised::wait_until};
use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::Deployment,
        core::v1::{Secret, Service},
        rbac::v1::Role,
    },
};
use kube::{
    Client,
    core::{ApiResource, GroupVersionKind},
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::prelude::*;

const LABEL: &str = "volferry.dev/syncendpoint=web";

/// The kinds of objects that an endpoint has.
const MADE: &str = "deployments,services,secrets,serviceaccounts,roles,rolebindings";

/// The ports of endpoints: below those that the system gives to connections.
const FIRST_PORT: u16 = 12_000;
const PORTS: u32 = 18_000;

/// A namespace with the claims `from` and `to`, and the endpoint `web` of the claim `to`.
pub(super) struct Serving {
    pub(super) stage: Arc<Stage>,
    pub(super) endpoints: Api<DynamicObject>,
    /// The folders of the pod: its volume, its memory and its mounted Secret.
    pub(super) dir: TempDir,
    /// The port at which the endpoint is reached.
    pub(super) port: u16,
    metrics_port: u16,
    /// The syncer's program.
    pub(super) volferry: PathBuf,
}

/// A machine outside of the cluster, with its key.
pub(super) struct Outside {
    dir: TempDir,
    pub(super) key: PublicKey,
}

impl Outside {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = OwnKey::generate().unwrap();
        key.write(&dir.path().join("key")).unwrap();
        Self { dir, key: key.public() }
    }

    /// Makes a folder with one file, and returns it.
    pub(super) fn folder(&self, name: &str, content: &str) -> PathBuf {
        let folder = self.dir.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("file"), content).unwrap();
        folder
    }

    /// Runs `volferry sync` there, which knows the key of the endpoint.
    pub(super) async fn sync(&self, from: &str, to: &str, service: PublicKey) -> Output {
        self.sync_over("auto", from, to, service).await
    }

    /// Runs `volferry sync` there, as [`Self::sync`] does, over that link.
    pub(super) async fn sync_over(&self, link: &str, from: &str, to: &str, service: PublicKey) -> Output {
        self.sync_with(&["--link", link], from, to, service).await
    }

    /// Runs `volferry sync` there, as [`Self::sync`] does, with more flags.
    pub(super) async fn sync_with(&self, more: &[&str], from: &str, to: &str, service: PublicKey) -> Output {
        let mut command = Command::new(programs::of_workspace("volferry").unwrap());
        command.args(["sync", from, to, "--service-key", &service.to_string()]).args(more).arg("--identity");
        command.arg(self.dir.path().join("key")).env("VOLFERRY_CONFIG", "none");
        tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
    }
}

impl Serving {
    /// Makes the namespace, with a controller.
    pub(super) async fn new(test: &str) -> (Self, Controller) {
        let (stage, controller) = Stage::with_controller(test).await.unwrap();
        (Self::on(stage), controller)
    }

    /// Makes the endpoint's folders and ports, in a namespace that is there.
    pub(super) fn on(stage: Stage) -> Self {
        let kind = GroupVersionKind::gvk("volferry.dev", "v1alpha1", "SyncEndpoint");
        let kind = ApiResource::from_gvk_with_plural(&kind, "syncendpoints");
        let endpoints = Api::namespaced_with(stage.client.clone(), &stage.namespace, &kind);
        let [port, metrics_port] = free_ports();
        let dir = tempfile::tempdir().unwrap();
        for folder in ["volume", "memory", "secret"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let volferry = programs::of_workspace("volferry").unwrap();
        Self { stage: Arc::new(stage), endpoints, dir, port, metrics_port, volferry }
    }

    /// Creates the endpoint, which peers write to, with these fields in its spec.
    pub(super) async fn create(&self, more: Value) -> DynamicObject {
        let mut spec = json!({"persistentVolumeClaim": {"claimName": "to"}, "access": "Write",
            "service": {"port": self.port, "hostName": "127.0.0.1"}});
        syncjob::merge(&mut spec, more);
        let manifest = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncEndpoint", "metadata": {"name": "web"},
            "spec": spec});
        let endpoint = serde_json::from_value(manifest).unwrap();
        self.endpoints.create(&PostParams::default(), &endpoint).await.unwrap()
    }

    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        self.stage.api()
    }

    /// Changes the endpoint.
    pub(super) async fn change(&self, patch: Value) {
        self.endpoints.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Returns the endpoint once `holds` is true of it.
    pub(super) async fn until(&self, what: &str, holds: impl Fn(&DynamicObject) -> bool) -> DynamicObject {
        wait::until(&self.endpoints, "web", what, PATIENCE, holds).await.unwrap()
    }

    /// Returns the endpoint once its condition `Ready` has that reason.
    pub(super) async fn until_reason(&self, reason: &str) -> DynamicObject {
        self.until(reason, |it| syncjob::has_reason(it, "Ready", reason)).await
    }

    /// Returns the Deployment once it asks for that number of pods.
    pub(super) async fn until_replicas(&self, count: i32) -> Deployment {
        let asks = |it: &Deployment| it.spec.as_ref().and_then(|spec| spec.replicas) == Some(count);
        wait::until_any(&self.api(), LABEL, &format!("{count} pods"), PATIENCE, asks).await.unwrap()
    }

    /// Sets the status of the Deployment as its controller does once that number of pods is ready.
    pub(super) async fn set_available(&self, deployment: &Deployment, count: i32) {
        let status = json!({"status": {"observedGeneration": deployment.metadata.generation, "replicas": count,
            "updatedReplicas": count, "readyReplicas": count, "availableReplicas": count}});
        let api = self.api::<Deployment>();
        let patch = Patch::Merge(status);
        api.patch_status(&deployment.name_any(), &PatchParams::default(), &patch).await.unwrap();
    }

    /// Gives the Service an address, as a load balancer's controller does.
    pub(super) async fn give_address(&self, ingress: &Value) {
        let service = wait::until_any(&self.api::<Service>(), LABEL, "a Service", PATIENCE, |_| true).await;
        let given = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": [ingress]}}}));
        let api = self.api::<Service>();
        api.patch_status(&service.unwrap().name_any(), &PatchParams::default(), &given).await.unwrap();
    }

    /// Runs the program of the pod, on the folders of this test. The pod has the address at which the endpoint is
    /// reached, if the spec has one.
    pub(super) async fn run_pod(&self, deployment: &Deployment) -> Controller {
        let pod = deployment.spec.clone().unwrap().template.spec.unwrap();
        let account = pod.service_account_name.unwrap();
        let below = |name: &str| self.dir.path().join(name).display().to_string();
        let arguments = pod.containers[0].args.clone().unwrap();
        let ours = |argument: String| match argument.split_once('=').map_or(&*argument, |(name, _)| name) {
            "--key" => format!("--key={}/service.key", below("secret")),
            "--former-key" => format!("--former-key={}/former.key", below("secret")),
            "--state" => format!("--state={}", below("memory")),
            "--volume" => format!("--volume={}", below("volume")),
            "--port" => format!("--port={}", self.port),
            "--metrics-port" => format!("--metrics-port={}", self.metrics_port),
            "/volferry" => self.volferry.display().to_string(),
            _ => argument,
        };
        let arguments: Vec<String> = arguments.into_iter().map(ours).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let endpoint = self.endpoints.get("web").await.unwrap();
        let address = endpoint.data["spec"]["service"]["hostName"].as_str().unwrap_or("127.0.0.1");
        self.stage.service(&account, &arguments, &[("POD_IPS", address)]).await.unwrap()
    }

    /// Brings the endpoint up, and returns its pod, its address and its key.
    pub(super) async fn up(&self) -> (Controller, String, PublicKey) {
        let deployment = self.until_replicas(1).await;
        let pod = self.run_pod(&deployment).await;
        self.until_probed().await;
        self.set_available(&deployment, 1).await;
        let ready = self.until_reason("Serving").await;
        let key = syncjob::text(&ready, "/publicKey").parse().unwrap();
        (pod, syncjob::text(&ready, "/address").to_string(), key)
    }

    /// Waits until the pod listens at the port of its probes, which is the last one that it opens.
    pub(super) async fn until_probed(&self) {
        let port = self.metrics_port;
        let probe = move || Ok(TcpStream::connect(("127.0.0.1", port)).map(drop)?);
        let probed = tokio::task::spawn_blocking(move || wait_until(PATIENCE, probe, || Ok(())));
        probed.await.unwrap().expect("the endpoint's pod listens");
    }

    /// Returns the value of a gauge of the endpoint's folder.
    pub(super) async fn gauge(&self, name: &str) -> usize {
        let mut probes = tokio::net::TcpStream::connect(("127.0.0.1", self.metrics_port)).await.unwrap();
        probes.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
        let mut page = String::new();
        probes.read_to_string(&mut page).await.unwrap();
        let gauge = format!("volferry_serve_{name}{{folder=\"web\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&gauge)?.parse().ok()).expect("the gauge is told")
    }

    /// Returns a client with the rights of the endpoint's pod.
    pub(super) async fn as_pod(&self) -> Client {
        let services = self.api::<Service>();
        let service = wait::until_any(&services, LABEL, "a Service", PATIENCE, |_| true).await.unwrap();
        self.stage.kubelet.client_as(&service.name_any()).await.unwrap()
    }

    /// Waits until the pod may create Secrets, or may not.
    pub(super) async fn until_may_store(&self, may: bool) {
        let stores = |role: &Role| {
            let rules = role.rules.iter().flatten();
            rules.flat_map(|it| it.resources.iter().flatten()).any(|resource| resource == "secrets") == may
        };
        let what = format!("the right to store a key is {may}");
        wait::until_any(&self.api(), LABEL, &what, PATIENCE, stores).await.unwrap();
    }

    /// Waits until the admission policy refuses this Secret of the pod, where KEY in its name is the name of its own.
    pub(super) async fn until_refused(&self, mut secret: Value) {
        let service = wait::until_any(&self.api::<Service>(), LABEL, "a Service", PATIENCE, |_| true).await;
        let own = format!("{}-key", service.unwrap().name_any());
        secret["metadata"]["name"] = json!(secret["metadata"]["name"].as_str().unwrap().replace("KEY", &own));
        self.until_refused_as(self.as_pod().await, secret).await;
    }

    /// Waits until the admission policy refuses this Secret of a client; nothing tells when the API server has heard of
    /// a policy.
    pub(super) async fn until_refused_as(&self, client: Client, secret: Value) {
        let secrets = Api::<Secret>::namespaced(client, &self.stage.namespace);
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let said = async || {
            let taken = secrets.create(&dry, &secret).await;
            taken.map_or_else(|error| error.to_string(), |_| "it is taken".to_string())
        };
        let is_refused = async || said().await.contains("with its own key, and no other");
        let refused = wait::poll("it is refused", PATIENCE, is_refused).await;
        assert!(refused.is_ok(), "{}", said().await);
    }

    /// Ends the pod after a change of `keyVersion`, and starts one that has the key of before mounted, too.
    pub(super) async fn with_next_key(&self, pod: Controller) -> Controller {
        let former = self.secret().await;
        let name = former.name_any();
        let mounts = |it: &Deployment| {
            let sources = json!(it)["spec"]["template"]["spec"]["volumes"][1]["projected"]["sources"].clone();
            sources[0]["secret"]["name"] == format!("{name}-2") && sources[1]["secret"]["name"] == name
        };
        let next = wait::until_any(&self.api(), LABEL, "it has both keys", PATIENCE, mounts).await.unwrap();
        pod.stop().await.unwrap();
        self.lose_memory();
        let ByteString(key) = &former.data.unwrap()["service.key"];
        std::fs::write(self.dir.path().join("secret/former.key"), key).unwrap();
        let pod = self.run_pod(&next).await;
        // Ready before it tells its key, the endpoint would seem to serve with the one before.
        self.until_probed().await;
        self.set_available(&next, 1).await;
        pod
    }

    /// Returns the Secret with the endpoint's key.
    pub(super) async fn secret(&self) -> Secret {
        let found = self.api::<Secret>().list(&ListParams::default().labels(LABEL)).await.unwrap().items;
        let [secret] = <[Secret; 1]>::try_from(found).unwrap();
        secret
    }

    /// Mounts the Secret with the key, as a kubelet does for the next pod.
    pub(super) fn mount(&self, secret: &Secret) {
        for (name, ByteString(content)) in secret.data.clone().unwrap() {
            std::fs::write(self.dir.path().join("secret").join(name), content).unwrap();
        }
    }

    /// Empties the pod's memory, as the end of a pod does.
    pub(super) fn lose_memory(&self) {
        std::fs::remove_dir_all(self.dir.path().join("memory")).unwrap();
        std::fs::create_dir(self.dir.path().join("memory")).unwrap();
    }

    pub(super) fn volume(&self) -> PathBuf {
        self.dir.path().join("volume")
    }

    /// Returns the names of the endpoint's objects.
    pub(super) fn made(&self) -> Vec<String> {
        let names = self.stage.kubectl.run(&["get", MADE, "-l", LABEL, "-o", "name"]).unwrap();
        names.lines().map(Into::into).collect()
    }

    /// Waits until nothing is left of the endpoint.
    pub(super) async fn until_nothing_is_left(&self) {
        // By watches first, because each question to kubectl starts a process.
        wait::until_none(&self.api::<Deployment>(), LABEL, PATIENCE).await.unwrap();
        wait::until_none(&self.api::<Secret>(), LABEL, PATIENCE).await.unwrap();
        wait::until_none(&self.api::<Role>(), LABEL, PATIENCE).await.unwrap();
        let emptied = wait::poll("nothing is left", PATIENCE, async || self.made().is_empty()).await;
        assert!(emptied.is_ok(), "left of the endpoint: {:?}", self.made());
    }
}

/// Returns the content of the file that [`Outside::folder`] makes.
pub(super) fn content(folder: &Path) -> Option<String> {
    std::fs::read_to_string(folder.join("file")).ok()
}

/// Returns two ports that are free for UDP and TCP. The pod opens them much later, so they are none of those that the
/// system gives to connections, and none that another test of this process has.
fn free_ports() -> [u16; 2] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Processes begin at different ports.
    let next = || FIRST_PORT + ((std::process::id() + NEXT.fetch_add(1, Relaxed)) % PORTS) as u16;
    let is_free = |port: &u16| {
        let any = ("0.0.0.0", *port);
        TcpListener::bind(any).is_ok() && UdpSocket::bind(any).is_ok()
    };
    [(); 2].map(|()| std::iter::repeat_with(next).find(is_free).unwrap())
}
