//! The kind cluster that `e2e/run` brings up, and a namespace of it for each test.

use std::{
    any::Any,
    path::PathBuf,
    sync::{Arc, LazyLock},
    time::Duration,
};

use anyhow::{Context as _, Result};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Namespace, Node, Pod},
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DynamicObject, ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::sync::RwLock;

use crate::{diagnosis, kubectl::Kubectl, syncjob, tree, wait};

/// Where `e2e/run` installs the operator.
pub const SYSTEM_NAMESPACE: &str = "volferry-system";
/// Selects the operator's pods there.
pub const OPERATOR_PODS: &str = "app.kubernetes.io/name=volferry,app.kubernetes.io/component=controller";
/// Long enough for a busy machine; a wait that succeeds takes none of it.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Shares the operator among the tests of one program. Those that stop or change it hold it alone.
static OPERATOR: LazyLock<Arc<RwLock<()>>> = LazyLock::new(Arc::default);

/// A namespace for one test. When the test panics, what went on in it is printed before it is deleted.
pub struct Sandbox {
    /// A client with all rights.
    pub client: Client,
    /// kubectl in the namespace.
    pub kubectl: Kubectl,
    /// The namespace's SyncJobs.
    pub jobs: Api<DynamicObject>,
    /// The namespace's SyncRuns.
    pub runs: Api<DynamicObject>,
    /// Its name.
    pub namespace: String,
    /// kubectl in the operator's namespace.
    pub system: Kubectl,
    _operator: Box<dyn Any + Send + Sync>,
}

impl Sandbox {
    /// A new namespace under the restricted PodSecurity standard. Panics, saying what to run, where there is no
    /// cluster.
    pub async fn new(test: &str) -> Self {
        Self::with(test, json!({"pod-security.kubernetes.io/enforce": "restricted"}), json!({})).await
    }

    /// The same for a test that stops or changes the operator: no other test of this program has a namespace meanwhile.
    pub async fn alone(test: &str) -> Self {
        let operator = Box::new(OPERATOR.clone().write_owned().await);
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        Self::holding(operator, test, labels, json!({})).await
    }

    /// A new namespace with other labels and annotations.
    pub async fn with(test: &str, labels: Value, annotations: Value) -> Self {
        let operator = Box::new(OPERATOR.clone().read_owned().await);
        Self::holding(operator, test, labels, annotations).await
    }

    async fn holding(
        operator: Box<dyn Any + Send + Sync>,
        test: &str,
        labels: Value,
        annotations: Value,
    ) -> Self {
        match Self::create(operator, test, &labels, &annotations).await {
            Ok(sandbox) => sandbox,
            Err(error) => panic!("no cluster to test in; `e2e/run` brings one up: {error:#}"),
        }
    }

    async fn create(
        operator: Box<dyn Any + Send + Sync>,
        test: &str,
        labels: &Value,
        annotations: &Value,
    ) -> Result<Self> {
        let kubeconfig: PathBuf = std::env::var_os("KUBECONFIG").context("KUBECONFIG is not set")?.into();
        let config = Kubeconfig::read_from(&kubeconfig)?;
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        let metadata =
            json!({"generateName": format!("e2e-{test}-"), "labels": labels, "annotations": annotations});
        let namespace = serde_json::from_value(json!({"metadata": metadata}))?;
        let namespace = Api::all(client.clone()).create(&PostParams::default(), &namespace).await;
        let namespace = Namespace::name_any(&namespace.context("the cluster does not answer")?);
        Ok(Self {
            kubectl: Kubectl::new(&kubeconfig, &namespace)?,
            system: Kubectl::new(&kubeconfig, SYSTEM_NAMESPACE)?,
            jobs: syncjob::api(&client, &namespace),
            runs: syncjob::runs(&client, &namespace),
            client,
            namespace,
            _operator: operator,
        })
    }

    /// An API of the namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The names of the nodes, in order.
    pub async fn nodes(&self) -> Result<Vec<String>> {
        let nodes = Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await?;
        let mut names: Vec<_> = nodes.items.iter().map(ResourceExt::name_any).collect();
        names.sort();
        Ok(names)
    }

    /// Creates a SyncJob from claim `from` to claim `to`.
    pub async fn sync(&self, name: &str, others: Value) -> Result<DynamicObject> {
        syncjob::create(&self.jobs, syncjob::manifest(name, "from", "to", others)).await
    }

    /// The SyncJob once its condition of that kind is true.
    pub async fn until_is(&self, name: &str, kind: &str) -> Result<DynamicObject> {
        syncjob::until_is(&self.jobs, name, kind, PATIENCE).await
    }

    /// The SyncJob once `holds` is true of it.
    pub async fn until(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&DynamicObject) -> bool,
    ) -> Result<DynamicObject> {
        wait::until(&self.jobs, name, what, PATIENCE, holds).await
    }

    /// Waits until a SyncRun has moved some of its data, and not all. Returns its SyncJob.
    pub async fn until_data_moves(&self, job: &str, run: &str) -> Result<DynamicObject> {
        wait::until(&self.runs, run, "data moves", PATIENCE, tree::data_moves).await?;
        self.jobs.get(job).await.context("reading a SyncJob")
    }

    /// Asks for one more run of a SyncJob, and returns it when that run has succeeded.
    pub async fn run_again(&self, name: &str, trigger: &str) -> Result<DynamicObject> {
        self.patch(name, json!({"spec": {"trigger": trigger}})).await?;
        self.until_is(name, "Ready").await
    }

    /// Patches a SyncJob.
    pub async fn patch(&self, name: &str, patch: Value) -> Result<DynamicObject> {
        let patch = kube::api::Patch::Merge(patch);
        self.jobs.patch(name, &kube::api::PatchParams::default(), &patch).await.context("patching a SyncJob")
    }

    /// The pod of one end of a SyncJob's run once its container runs.
    pub async fn running_pod(&self, syncjob: &str, side: &str) -> Result<Pod> {
        let labels = format!("volferry.dev/syncjob={syncjob},volferry.dev/side={side}");
        wait::until_any(&self.api::<Pod>(), &labels, "a syncer pod runs", PATIENCE, is_running).await
    }

    /// The Kubernetes Jobs of a SyncJob.
    pub async fn children(&self, syncjob: &str) -> Result<Vec<Job>> {
        let selected = ListParams::default().labels(&format!("volferry.dev/syncjob={syncjob}"));
        Ok(self.api::<Job>().list(&selected).await?.items)
    }

    /// The operator's pods.
    pub fn operator_pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), SYSTEM_NAMESPACE)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if std::thread::panicking() {
            diagnosis::print(&self.kubectl, &self.namespace);
            diagnosis::print_output(&self.system, &["get", "pods", "-o", "wide"]);
            let logs = ["logs", "--selector", OPERATOR_PODS, "--prefix", "--tail=200"];
            diagnosis::print_output(&self.system, &logs);
        }
        print_error(&self.kubectl, &["delete", "syncjobs", "--all", "--wait=false"]);
        print_error(&self.kubectl, &["delete", "namespace", &self.namespace, "--wait=false"]);
    }
}

fn print_error(kubectl: &Kubectl, args: &[&str]) {
    if let Err(error) = kubectl.run(args) {
        eprintln!("{error:#}");
    }
}

fn is_running(pod: &Pod) -> bool {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let mut states = containers.filter_map(|container| container.state.as_ref());
    pod.metadata.deletion_timestamp.is_none() && states.any(|state| state.running.is_some())
}
