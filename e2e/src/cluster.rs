//! The kind clusters that `e2e/run` brings up, and a namespace of one for each test.

use std::{
    any::Any,
    ops::Deref,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::Duration,
};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::sync::RwLock;

use crate::{diagnosis, kubectl::Kubectl, own_namespace::OwnNamespace, tree, wait};

/// The namespace in which `e2e/run` installs the operator.
pub const SYSTEM_NAMESPACE: &str = "volferry-system";
/// Selects the operator's pods in [`SYSTEM_NAMESPACE`].
pub const OPERATOR_PODS: &str = "app.kubernetes.io/name=volferry,app.kubernetes.io/component=controller";
/// The variable with the kubeconfig of the cluster that most tests use.
const KUBECONFIG: &str = "KUBECONFIG";
/// The variable with that of a second cluster, of one node.
const FAR_KUBECONFIG: &str = "VOLFERRY_FAR_KUBECONFIG";
/// The command of a container that does nothing until it is told to stop.
pub const IDLE: [&str; 3] = ["sh", "-c", "trap exit TERM; tail -f /dev/null & wait"];
/// The limit of waits. It suits a busy machine; a wait that succeeds ends earlier.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Shares the operator among the tests of one program. A test that stops or changes it holds it exclusively.
static OPERATOR: LazyLock<Arc<RwLock<()>>> = LazyLock::new(Arc::default);

/// A namespace for one test. When the test panics, the namespace's state is printed before it is deleted.
pub struct Sandbox {
    /// kubectl in the operator's namespace.
    pub system: Kubectl,
    own: OwnNamespace,
    _operator: Box<dyn Any + Send + Sync>,
}

impl Deref for Sandbox {
    type Target = OwnNamespace;

    fn deref(&self) -> &OwnNamespace {
        &self.own
    }
}

impl Sandbox {
    /// Makes a new namespace under the restricted PodSecurity standard.
    ///
    /// # Panics
    /// There is no cluster; the message names the command that makes one.
    pub async fn new(test: &str) -> Self {
        Self::with(test, restricted(), json!({})).await
    }

    /// Makes a namespace as [`Sandbox::new`] does, for a test that stops or changes the operator: no other test of this
    /// program has a namespace meanwhile.
    pub async fn alone(test: &str) -> Self {
        let operator = Box::new(OPERATOR.clone().write_owned().await);
        Self::holding(operator, KUBECONFIG, test, restricted(), json!({})).await
    }

    /// Makes a namespace of the second cluster as [`Sandbox::new`] does. It is there for tests that `e2e/run` knows.
    pub async fn far(test: &str) -> Self {
        Self::holding(Box::new(()), FAR_KUBECONFIG, test, restricted(), json!({})).await
    }

    /// Makes a new namespace with these labels and annotations.
    pub async fn with(test: &str, labels: Value, annotations: Value) -> Self {
        let operator = Box::new(OPERATOR.clone().read_owned().await);
        Self::holding(operator, KUBECONFIG, test, labels, annotations).await
    }

    /// Makes one more namespace for the test that has this one.
    pub async fn beside(&self, test: &str) -> Self {
        Self::holding(Box::new(()), KUBECONFIG, test, restricted(), json!({})).await
    }

    async fn holding(
        operator: Box<dyn Any + Send + Sync>,
        variable: &str,
        test: &str,
        labels: Value,
        annotations: Value,
    ) -> Self {
        let kubeconfig: PathBuf = std::env::var_os(variable)
            .unwrap_or_else(|| panic!("{variable} is not set; `e2e/run` does that"))
            .into();
        match Self::create(operator, &kubeconfig, test, &labels, &annotations).await {
            Ok(sandbox) => sandbox,
            Err(error) => panic!("no cluster to test in; `e2e/run` brings one up: {error:#}"),
        }
    }

    async fn create(
        operator: Box<dyn Any + Send + Sync>,
        kubeconfig: &Path,
        test: &str,
        labels: &Value,
        annotations: &Value,
    ) -> Result<Self> {
        let config = Kubeconfig::read_from(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        let metadata =
            json!({"generateName": format!("e2e-{test}-"), "labels": labels, "annotations": annotations});
        let namespace = serde_json::from_value(json!({"metadata": metadata}))?;
        let namespace = Api::all(client.clone()).create(&PostParams::default(), &namespace).await;
        let namespace = Namespace::name_any(&namespace.context("the cluster does not answer")?);
        Ok(Self {
            system: Kubectl::new(kubeconfig, SYSTEM_NAMESPACE)?,
            own: OwnNamespace::new(client, Kubectl::new(kubeconfig, &namespace)?, namespace, PATIENCE),
            _operator: operator,
        })
    }

    /// Returns the names of the nodes, sorted.
    pub async fn nodes(&self) -> Result<Vec<String>> {
        let nodes = Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await?;
        let mut names: Vec<_> = nodes.items.iter().map(ResourceExt::name_any).collect();
        names.sort();
        Ok(names)
    }

    /// Waits until a SyncRun has moved some of its data, but not all. Returns its SyncJob.
    pub async fn until_data_moves(&self, job: &str, run: &str) -> Result<DynamicObject> {
        self.run(run, "data moves", tree::data_moves).await?;
        self.jobs.get(job).await.context("reading a SyncJob")
    }

    /// Requests one more run of a SyncJob, and returns the SyncJob once that run has succeeded.
    pub async fn run_again(&self, name: &str, trigger: &str) -> Result<DynamicObject> {
        self.patch(name, json!({"spec": {"trigger": trigger}})).await?;
        self.until_is(name, "Ready").await
    }

    /// Returns the pod of one end of a SyncJob's run once its container runs.
    pub async fn running_pod(&self, syncjob: &str, side: &str) -> Result<Pod> {
        let labels = format!("volferry.dev/syncjob={syncjob},volferry.dev/side={side}");
        wait::until_any(&self.api::<Pod>(), &labels, "a syncer pod runs", PATIENCE, is_running).await
    }

    /// Makes a pod `NAME-0` of an application, labelled `app: NAME`, with a claim at `/data`, and waits until it is
    /// ready.
    pub async fn application(&self, name: &str, claim: &str) -> Result<Pod> {
        let security = json!({"runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"}});
        let container = json!({"name": name, "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent",
            "command": IDLE,
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}});
        let pod = json!({"metadata": {"name": format!("{name}-0"), "labels": {"app": name}},
            "spec": {"securityContext": security, "containers": [container], "volumes": [volume]}});
        let made = self.api::<Pod>().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        wait::until(&self.api(), &made.name_any(), "the application is ready", PATIENCE, wait::is_ready).await
    }

    /// Kills the operator of this cluster, and waits until there is another one.
    pub async fn kill_operator(&self) -> Result<()> {
        let operators = Api::<Pod>::namespaced(self.client.clone(), SYSTEM_NAMESPACE);
        let pods = operators.list(&ListParams::default().labels(OPERATOR_PODS)).await?;
        anyhow::ensure!(!pods.items.is_empty(), "no operator runs in the cluster: use `e2e/run`");
        for pod in &pods {
            operators.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
        }
        let killed: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
        let is_new = |pod: &Pod| !killed.contains(&pod.name_any()) && wait::is_ready(pod);
        wait::until_any(&operators, OPERATOR_PODS, "a new operator is ready", PATIENCE, is_new).await?;
        Ok(())
    }

    /// Waits until there is nothing with a label of the kinds that are made for a SyncJob or a SyncEndpoint.
    pub fn until_nothing_has(&self, label: &str) -> Result<()> {
        const MADE: &str = "syncjobs,syncruns,syncendpoints,deployments,replicasets,jobs,pods,services,secrets,\
                            serviceaccounts,roles,rolebindings";
        self.kubectl.run(&["wait", "--for=delete", MADE, "-l", label, "--timeout=180s"])?;
        let left = self.kubectl.run(&["get", MADE, "-l", label, "-o", "name"])?;
        anyhow::ensure!(left.is_empty(), "left of {label}: {left}");
        Ok(())
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

/// Returns the labels of a namespace under the restricted PodSecurity standard.
fn restricted() -> Value {
    json!({"pod-security.kubernetes.io/enforce": "restricted"})
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
