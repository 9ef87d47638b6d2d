//! A namespace of the API server with a controller of its own; the test simulates the rest.

use std::{
    collections::BTreeSet, ops::Deref, path::PathBuf, pin::pin, process::Command, sync::Arc, time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};

use crate::{
    apiserver::{ApiServer, User},
    cut::{Cut, CutLine, Tally},
    diagnosis,
    kubelet::{self, Kubelet},
    own_namespace::OwnNamespace,
    programs,
    supervised::Supervised,
    syncjob, wait,
};

/// The limit of waits. A retry's pause of 10 s is the longest step; the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The argument by which a controller takes any free port for its probes.
const ANY_PORT: &str = "--listen=127.0.0.1:0";

/// The operator's account.
const OPERATOR: &str = "system:serviceaccount:volferry-system:volferry-operator";

/// A namespace, its clients and its controllers.
pub struct Stage {
    /// Simulates the kubelet.
    pub kubelet: Kubelet,
    own: OwnNamespace,
    server: Arc<ApiServer>,
    log: PathBuf,
}

impl Deref for Stage {
    type Target = OwnNamespace;

    fn deref(&self) -> &OwnNamespace {
        &self.own
    }
}

/// A running controller that is killed when this is dropped.
pub struct Controller {
    /// Dropped first, so the controller is killed before its connection breaks.
    process: Supervised,
    line: CutLine,
}

/// The operator of a release, and the name of its account.
pub struct Release {
    /// The operator.
    pub operator: Controller,
    /// The account's name, as the API server has it.
    pub account: String,
}

impl Stage {
    /// Makes a namespace with the bound claims `from` and `to`, without a controller.
    pub async fn new(test: &str) -> Result<Self> {
        Self::on(ApiServer::shared(), test).await
    }

    /// Makes a namespace as [`Stage::new`] does, on an API server of its own, for a test that changes what the others
    /// rely on.
    pub async fn with_own_server(test: &str) -> Result<Self> {
        Self::on(Arc::new(ApiServer::start()?), test).await
    }

    async fn on(server: Arc<ApiServer>, test: &str) -> Result<Self> {
        let client = server.client(User::Admin).await?;
        let namespace = json!({"metadata": {"generateName": format!("{test}-")}});
        let namespace = Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &serde_json::from_value(namespace)?)
            .await?
            .name_any();
        let stage = Self {
            kubelet: Kubelet::new(&client, &server.config(User::Admin).await?, &namespace),
            log: server.log(&namespace),
            own: OwnNamespace::new(client, server.kubectl(&namespace)?, namespace, PATIENCE),
            server,
        };
        stage.claim("from", "Bound").await?;
        stage.claim("to", "Bound").await?;
        Ok(stage)
    }

    /// Makes a namespace as [`Stage::new`] does, and starts a controller.
    pub async fn with_controller(test: &str) -> Result<(Self, Controller)> {
        let stage = Self::new(test).await?;
        let controller = stage.controller(Cut::Never).await?;
        Ok((stage, controller))
    }

    /// Starts a controller for this namespace, with the operator's rights.
    pub async fn controller(&self, cut: Cut) -> Result<Controller> {
        self.start(cut, &["--leader-elect=false"], &[]).await
    }

    /// Starts a controller for this namespace with those variables in its environment.
    pub async fn controller_with_env(&self, variables: &[(&str, &str)]) -> Result<Controller> {
        self.start(Cut::Never, &["--leader-elect=false"], variables).await
    }

    /// Starts a controller for this namespace with those arguments, with the operator's rights.
    pub async fn controller_with(&self, arguments: &[&str]) -> Result<Controller> {
        self.controller_cut(Cut::Never, arguments).await
    }

    /// Starts a controller for this namespace with those arguments, which is killed at the cut.
    pub async fn controller_cut(&self, cut: Cut, arguments: &[&str]) -> Result<Controller> {
        self.start(cut, arguments, &[]).await
    }

    /// Starts one of several controllers for this namespace, of which only the holder of the Lease works. Each makes
    /// pods with an image of its own, as the replicas of two versions do.
    pub async fn replica(&self, identity: &str) -> Result<Controller> {
        let lease = ["--lease-name=volferry-operator", "--lease-namespace", &self.namespace];
        let image = format!("--image=volferry.test/volferry:{identity}");
        self.start(Cut::Never, &[&lease[..], &["--identity", identity, &image]].concat(), &[]).await
    }

    /// Starts a populator for this namespace, with the populator's rights.
    pub async fn populator(&self) -> Result<Controller> {
        let arguments = ["populate", "--leader-elect=false", ANY_PORT, "--watch-namespaces", &self.namespace];
        self.launch(self.server.client(User::Populator).await?, Cut::Never, &arguments, &[]).await
    }

    /// Returns the kubeconfig of the user with all rights.
    pub fn kubeconfig(&self) -> PathBuf {
        self.server.kubeconfig(User::Admin)
    }

    /// Ends the API server and starts it again on the same data. Only a stage [`Stage::with_own_server`] may, because
    /// the other stages share theirs.
    pub fn restart_api_server(&self) -> Result<()> {
        self.server.restart()
    }

    async fn start(&self, cut: Cut, more: &[&str], variables: &[(&str, &str)]) -> Result<Controller> {
        let is_given = |flag: &str| more.iter().any(|it| it.starts_with(flag));
        let image = (!is_given("--image=")).then_some("--image=volferry.test/volferry:1");
        let listen = (!is_given("--listen=")).then_some(ANY_PORT);
        let namespace = ["controller", "--watch-namespaces", &self.namespace];
        let arguments = namespace.into_iter().chain(image).chain(more.iter().copied()).chain(listen);
        let arguments: Vec<&str> = arguments.collect();
        self.launch(self.server.client(User::Operator).await?, cut, &arguments, variables).await
    }

    /// Starts the operator with those arguments and that client's rights.
    async fn launch(
        &self,
        client: Client,
        cut: Cut,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Controller> {
        let line = CutLine::new(client, cut).await?;
        // Of its own, since a controller that was started a moment ago may not have read its file yet.
        let port = line.url().rsplit(':').next().unwrap_or_default().to_string();
        let kubeconfig = self.log.with_extension(format!("{port}.kubeconfig"));
        std::fs::write(&kubeconfig, kubeconfig_of(&line.url(), &self.namespace))?;
        let mut command = Command::new(programs::of_workspace("volferry-operator")?);
        command
            .args(arguments)
            .envs(variables.iter().copied())
            .env("KUBECONFIG", &kubeconfig)
            .env("RUST_LOG", "info,operator=debug");
        Ok(Controller { process: Supervised::start(&mut command, &self.log)?, line })
    }

    /// Installs a release of the chart that is confined to this namespace and another one, and starts its operator:
    /// with the arguments of its Deployment and the rights of its account.
    pub async fn release(&self, name: &str, second: &Self) -> Result<Release> {
        let mut helm = Command::new(programs::of_cluster("helm")?);
        helm.args(["install", name]).arg(programs::repository().join("charts/volferry"));
        helm.args(["--namespace", &self.namespace, "--set", "crds.install=false"]);
        helm.args(["--set", &format!("watchNamespaces={{{},{}}}", self.namespace, second.namespace)]);
        helm.arg("--kubeconfig").arg(self.server.kubeconfig(User::Admin));
        let said = helm.output().context("cannot run helm")?;
        ensure!(said.status.success(), "helm install: {}", String::from_utf8_lossy(&said.stderr));

        let of_release = ListParams::default().labels(&format!("app.kubernetes.io/instance={name}"));
        let deployments = self.api::<Deployment>().list(&of_release).await?.items;
        let [deployment] = <[Deployment; 1]>::try_from(deployments)
            .map_err(|found| anyhow!("{} Deployments", found.len()))?;
        let pod = deployment.spec.and_then(|spec| spec.template.spec).context("a Deployment has pods")?;
        let arguments = pod.containers.into_iter().next().and_then(|it| it.args).unwrap_or_default();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain([ANY_PORT]).collect();
        let account = pod.service_account_name.context("the operator has an account")?;
        let user = format!("system:serviceaccount:{}:{account}", self.namespace);
        self.until_may(&user, "create", "jobs.batch").await?;
        second.until_may(&user, "create", "jobs.batch").await?;
        let client = self.kubelet.client_as(&account).await?;
        Ok(Release { operator: self.launch(client, Cut::Never, &arguments, &[]).await?, account: user })
    }

    /// Starts the first process of a pod, with those arguments, those variables in its environment, and the rights of a
    /// ServiceAccount.
    pub async fn service(
        &self,
        account: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Controller> {
        let client = self.kubelet.client_as(account).await?;
        self.launch(client, Cut::Never, arguments, variables).await
    }

    /// Makes a claim in `phase`, for one node.
    pub async fn claim(&self, name: &str, phase: &str) -> Result<()> {
        self.claim_with(name, phase, "ReadWriteOnce").await
    }

    /// Makes a claim in `phase` with the access mode `mode`.
    pub async fn claim_with(&self, name: &str, phase: &str, mode: &str) -> Result<()> {
        self.claim_of(name, phase, json!({"accessModes": [mode]})).await
    }

    /// Makes a bound claim whose volume only this node can mount.
    pub async fn claim_on(&self, name: &str, node: &str) -> Result<()> {
        let volume = format!("{}-{name}", self.namespace);
        let on_node = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        let manifest = json!({"metadata": {"name": volume}, "spec": {"capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"], "storageClassName": "of-the-test", "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}}}});
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        volumes.create(&PostParams::default(), &serde_json::from_value(manifest)?).await?;
        self.claim_of(name, "Bound", json!({"volumeName": volume})).await
    }

    /// Makes a claim in `phase`, for one node unless `more` of its spec overrides that.
    pub async fn claim_of(&self, name: &str, phase: &str, more: Value) -> Result<()> {
        let claims = self.api::<PersistentVolumeClaim>();
        let mut spec = json!({"storageClassName": "of-the-test", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}});
        syncjob::merge(&mut spec, more);
        let manifest = json!({"metadata": {"name": name}, "spec": spec});
        claims.create(&PostParams::default(), &serde_json::from_value(manifest)?).await?;
        let status = Patch::Merge(json!({"status": {"phase": phase}}));
        claims.patch_status(name, &PatchParams::default(), &status).await.context("a claim's status")?;
        Ok(())
    }

    /// Deletes a claim as its user does, and lets go of it as Kubernetes does once no pod uses it.
    pub async fn lose_claim(&self, name: &str) -> Result<()> {
        let claims = self.api::<PersistentVolumeClaim>();
        claims.delete(name, &DeleteParams::default()).await.context("deleting a claim")?;
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        match claims.patch(name, &PatchParams::default(), &free).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            done => done.map(drop).context("letting go of a claim"),
        }
    }

    /// Binds every claim of the namespace, and lets go of those that are deleted, as the volume controllers do. Returns
    /// only with an error.
    pub async fn play_volumes(&self) -> Result<()> {
        let claims = self.api::<PersistentVolumeClaim>();
        let change = PatchParams::default();
        let mut changes = pin!(watcher(claims.clone(), watcher::Config::default()).applied_objects());
        while let Some(claim) = changes.next().await {
            let claim = claim.context("watching claims")?;
            let (name, phase) = (claim.name_any(), claim.status.and_then(|status| status.phase));
            let done = if claim.metadata.deletion_timestamp.is_some() {
                let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                claims.patch(&name, &change, &free).await
            } else if phase.as_deref() == Some("Pending") {
                let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
                claims.patch_status(&name, &change, &bound).await
            } else {
                continue;
            };
            match done {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                done => drop(done.context("a claim")?),
            }
        }
        bail!("the watch of claims ended")
    }

    /// Waits until a SyncJob's run has succeeded and its SyncRun is done.
    pub async fn until_done(&self, job: &str) -> Result<()> {
        let done = self.until_is(job, "Ready").await?;
        let is_done = |run: &DynamicObject| syncjob::text(run, "/stage") == "Done";
        self.run(syncjob::text(&done, "/lastRun/id"), "it is done", is_done).await.map(drop)
    }

    /// Gives the operator the right to run hooks in this namespace, as the chart's value `hooks.enabled` does in all.
    pub async fn may_run_hooks(&self) -> Result<()> {
        let verbs = ["create", "role", "hooks", "--verb=create,get", "--resource=pods/exec"];
        self.kubectl.run(&verbs)?;
        let account = "--serviceaccount=volferry-system:volferry-operator";
        self.kubectl.run(&["create", "rolebinding", "hooks", "--role=hooks", account])?;
        self.until_may(OPERATOR, "create", "pods/exec").await
    }

    /// Gives the operator the right to read PersistentVolumes, as the chart's value `queue.maxRunsPerNode` does.
    pub async fn may_read_volumes(&self) -> Result<()> {
        let rights = programs::repository().join("config/nodes").display().to_string();
        self.kubectl.run(&["apply", "--server-side", "-k", &rights])?;
        self.until_may(OPERATOR, "list", "persistentvolumes").await
    }

    /// Waits until the API server has heard of a user's right in this namespace, which nothing tells.
    pub async fn until_may(&self, user: &str, verb: &str, resource: &str) -> Result<()> {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (user, subresource) = (format!("--as={user}"), format!("--subresource={subresource}"));
        let question = ["auth", "can-i", verb, resource, &subresource, &user];
        let asked = async || self.kubectl.run_async(&question).await;
        wait::poll(&format!("{user} may {verb} {resource}"), PATIENCE, async || asked().await.is_ok()).await
    }

    /// Polls until the API server refuses hooks from users who may not run commands in pods; the change cannot be
    /// watched.
    pub async fn until_hooks_are_guarded(&self) -> Result<()> {
        let hook = json!({"target": {"matchLabels": {"app": "db"}}, "command": ["sync"]});
        let job = syncjob::manifest("probe", "from", "to", json!({"hooks": {"before": hook}}));
        let client = self.server.client(User::Operator).await?;
        let spec = json!({"syncJob": {"name": "probe"}, "number": 1, "job": job["spec"]});
        let run = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncRun", "metadata": {"name": "probe"}, "spec": spec});
        let run: DynamicObject = serde_json::from_value(run)?;
        let runs = syncjob::runs(&client, &self.namespace);
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        wait::poll("hooks are guarded", PATIENCE, async || {
            runs.create(&dry, &run).await.is_err_and(|error| error.to_string().contains("pods/exec"))
        })
        .await
    }

    /// Prints the objects in the namespace and the controllers' logs.
    pub fn print_diagnosis(&self) {
        diagnosis::print(&self.kubectl, &self.namespace);
        diagnosis::print_file(&self.log);
    }

    /// Returns the try of each pod that a SyncJob keeps for readers of its logs, sorted.
    ///
    /// # Errors
    /// A pod has not ended, or a Job has no pods.
    pub async fn kept(&self, job: &str) -> Result<Vec<String>> {
        let of_job = ListParams::default().labels(&format!("volferry.dev/syncjob={job}"));
        let jobs = self.api::<Job>().list(&of_job).await?.items;
        let pods = self.api::<Pod>().list(&of_job).await?.items;
        ensure!(pods.iter().all(kubelet::has_ended), "a pod may run: {pods:#?}");
        let owners = pods.iter().flat_map(ResourceExt::owner_references).map(|owner| owner.uid.clone());
        let (owners, made) =
            (owners.collect::<BTreeSet<_>>(), jobs.iter().filter_map(ResourceExt::uid).collect());
        ensure!(owners == made, "a Job without pods, or pods without a Job: {jobs:#?}\n{pods:#?}");
        let mut tries: Vec<String> = pods.iter().map(kubelet::try_of).collect();
        tries.sort_unstable();
        Ok(tries)
    }

    /// Returns the names of all children of a SyncJob, sorted, without pods and objects that Kubernetes makes by
    /// itself.
    pub fn children(&self, job: &str) -> Result<Vec<String>> {
        let kinds = "jobs,services,secrets,serviceaccounts,roles,rolebindings";
        let label = format!("volferry.dev/syncjob={job}");
        let names = self.kubectl.run(&["get", kinds, "-l", &label, "-o", "name"])?;
        let mut names: Vec<String> = names.lines().map(Into::into).collect();
        names.sort();
        Ok(names)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_diagnosis();
        }
    }
}

impl Controller {
    /// Waits until `done` ends, or until the controller reaches its cut, after which it can no longer act.
    pub async fn until_cut_or(&self, done: impl Future<Output = Result<()>>) -> Result<()> {
        tokio::select! {
            () = self.line.reached() => Ok(()),
            done = done => done,
        }
    }

    /// Returns the number of requests of any kind that it has made.
    pub fn requests(&self) -> usize {
        self.line.requests()
    }

    /// Returns the number of writes that it has made.
    pub fn writes(&self) -> usize {
        self.line.writes()
    }

    /// Waits until it has made that number of requests of a kind, such as `GET pods/exec`.
    pub async fn until_asked(&self, kind: &str, times: usize) -> Result<()> {
        let has_asked = async || self.tally().get(kind).is_some_and(|made| *made >= times);
        wait::poll(kind, PATIENCE, has_asked).await
    }

    /// Returns the number of requests of each kind that it has made.
    pub fn tally(&self) -> Tally {
        self.line.tally()
    }

    /// Tells its process to stop, and waits until it has ended with success.
    pub async fn stop(mut self) -> Result<()> {
        let ended = tokio::task::spawn_blocking(move || (self.process.stop(), self.line)).await?;
        ensure!(ended.0?.success(), "the controller did not end well");
        Ok(())
    }

    /// Waits until its process has ended by itself, and returns its exit status.
    pub async fn exit(mut self) -> Result<i32> {
        let ended = async {
            loop {
                match self.process.ended()? {
                    Some(status) => return Ok(status.code().unwrap_or(-1)),
                    None => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.context("the process did not end")?
    }

    /// Returns the id of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

fn kubeconfig_of(url: &str, namespace: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
    })
    .to_string()
}
