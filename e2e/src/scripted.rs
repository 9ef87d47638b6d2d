//! A namespace of the API server with a controller of its own, where the test plays all the rest.

use std::{collections::BTreeSet, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Namespace, PersistentVolumeClaim, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    apiserver::{ApiServer, User},
    cut::{Cut, CutLine, Tally},
    diagnosis,
    kubectl::Kubectl,
    kubelet::{self, Kubelet},
    programs,
    supervised::Supervised,
    syncjob, wait,
};

/// Nothing here takes long, but for a retry's pause of 10 s; the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The operator's account.
const OPERATOR: &str = "system:serviceaccount:volferry-system:volferry-operator";

/// The namespace, and what acts in it.
pub struct Stage {
    /// A client with all rights.
    pub client: Client,
    /// kubectl with all rights.
    pub kubectl: Kubectl,
    /// The namespace's SyncJobs.
    pub jobs: Api<DynamicObject>,
    /// The namespace's SyncRuns.
    pub runs: Api<DynamicObject>,
    /// Plays the kubelet.
    pub kubelet: Kubelet,
    /// The namespace's name.
    pub namespace: String,
    server: &'static ApiServer,
    log: PathBuf,
}

/// A running controller that is killed when this is dropped.
pub struct Controller {
    /// First to be dropped: a killed controller needs no line.
    process: Supervised,
    line: CutLine,
}

impl Stage {
    /// A namespace with the bound claims `from` and `to`, and no controller yet.
    pub async fn new(test: &str) -> Result<Self> {
        let server = ApiServer::shared();
        let client = server.client(User::Admin).await?;
        let namespace = json!({"metadata": {"generateName": format!("{test}-")}});
        let namespace = Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &serde_json::from_value(namespace)?)
            .await?
            .name_any();
        let stage = Self {
            kubectl: server.kubectl(&namespace)?,
            jobs: syncjob::api(&client, &namespace),
            runs: syncjob::runs(&client, &namespace),
            kubelet: Kubelet::new(&client, &server.config(User::Admin).await?, &namespace),
            log: server.log(&namespace),
            server,
            client,
            namespace,
        };
        stage.claim("from", "Bound").await?;
        stage.claim("to", "Bound").await?;
        Ok(stage)
    }

    /// The same with a controller at work.
    pub async fn with_controller(test: &str) -> Result<(Self, Controller)> {
        let stage = Self::new(test).await?;
        let controller = stage.controller(Cut::Never).await?;
        Ok((stage, controller))
    }

    /// Starts a controller for this namespace, with the operator's rights.
    pub async fn controller(&self, cut: Cut) -> Result<Controller> {
        self.start(cut, &["--leader-elect=false"]).await
    }

    /// Starts a controller for this namespace with those arguments, with the operator's rights.
    pub async fn controller_with(&self, arguments: &[&str]) -> Result<Controller> {
        self.start(Cut::Never, arguments).await
    }

    /// Starts one of several controllers for this namespace, of which the one that holds the Lease works. Each makes
    /// pods with an image of its own, as the replicas of two versions do.
    pub async fn replica(&self, identity: &str) -> Result<Controller> {
        let lease = ["--lease-name=volferry-operator", "--lease-namespace", &self.namespace];
        let image = format!("--image=volferry.test/volferry:{identity}");
        self.start(Cut::Never, &[&lease[..], &["--identity", identity, &image]].concat()).await
    }

    /// Ends the API server and starts it again on the same data. All tests of a program share it, so one that does this
    /// needs a program of its own.
    pub fn restart_api_server(&self) -> Result<()> {
        self.server.restart()
    }

    async fn start(&self, cut: Cut, more: &[&str]) -> Result<Controller> {
        let line = CutLine::new(self.server.client(User::Operator).await?, cut).await?;
        let image = "--image=volferry.test/volferry:1";
        let image = if more.iter().any(|it| it.starts_with("--image=")) { None } else { Some(image) };
        let kubeconfig = self.log.with_extension("kubeconfig");
        std::fs::write(&kubeconfig, kubeconfig_of(&line.url(), &self.namespace))?;
        let mut command = Command::new(programs::of_workspace("volferry-operator")?);
        command
            .args(["controller", "--listen=127.0.0.1:0"])
            .args(image)
            .args(["--watch-namespace", &self.namespace])
            .args(more)
            .env("KUBECONFIG", &kubeconfig)
            .env("RUST_LOG", "info,operator=debug");
        Ok(Controller { process: Supervised::start(&mut command, &self.log)?, line })
    }

    /// A claim in that phase, for one node.
    pub async fn claim(&self, name: &str, phase: &str) -> Result<()> {
        self.claim_with(name, phase, "ReadWriteOnce").await
    }

    /// A claim in that phase with that access mode.
    pub async fn claim_with(&self, name: &str, phase: &str, mode: &str) -> Result<()> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &self.namespace);
        let manifest = json!({"metadata": {"name": name}, "spec": {"storageClassName": "of-the-test",
            "accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}});
        claims.create(&PostParams::default(), &serde_json::from_value(manifest)?).await?;
        let status = Patch::Merge(json!({"status": {"phase": phase}}));
        claims.patch_status(name, &PatchParams::default(), &status).await.context("a claim's status")?;
        Ok(())
    }

    /// Creates a SyncJob from claim `from` to claim `to`.
    pub async fn sync(&self, name: &str, others: Value) -> Result<DynamicObject> {
        syncjob::create(&self.jobs, syncjob::manifest(name, "from", "to", others)).await
    }

    /// Patches a SyncJob.
    pub async fn patch(&self, name: &str, patch: Value) -> Result<DynamicObject> {
        let patch = Patch::Merge(patch);
        self.jobs.patch(name, &PatchParams::default(), &patch).await.context("patching a SyncJob")
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

    /// The SyncRun once `holds` is true of it.
    pub async fn run(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&DynamicObject) -> bool,
    ) -> Result<DynamicObject> {
        wait::until(&self.runs, name, what, PATIENCE, holds).await
    }

    /// The SyncJob once its condition of that kind is true.
    pub async fn until_is(&self, name: &str, kind: &str) -> Result<DynamicObject> {
        syncjob::until_is(&self.jobs, name, kind, PATIENCE).await
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

    /// Waits until the API server has heard of a user's right in this namespace, which nothing tells.
    pub async fn until_may(&self, user: &str, verb: &str, resource: &str) -> Result<()> {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (user, subresource) = (format!("--as={user}"), format!("--subresource={subresource}"));
        let question = ["auth", "can-i", verb, resource, &subresource, &user];
        let asked = async || self.kubectl.run_async(&question).await;
        poll(&format!("{user} may {verb} {resource}"), async || asked().await.is_ok()).await
    }

    /// Waits until the API server keeps users from writing hooks who may not run commands in pods, which nothing tells.
    pub async fn until_hooks_are_guarded(&self) -> Result<()> {
        let hook = json!({"target": {"matchLabels": {"app": "db"}}, "command": ["sync"]});
        let job = syncjob::manifest("probe", "from", "to", json!({"hooks": {"before": hook}}));
        let client = self.server.client(User::Operator).await?;
        let spec = json!({"syncJob": {"name": "probe"}, "job": job["spec"]});
        let run = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncRun", "metadata": {"name": "probe"}, "spec": spec});
        let run: DynamicObject = serde_json::from_value(run)?;
        let runs = syncjob::runs(&client, &self.namespace);
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        poll("hooks are guarded", async || {
            runs.create(&dry, &run).await.is_err_and(|error| error.to_string().contains("pods/exec"))
        })
        .await
    }

    /// Prints what is in the namespace and what the controllers have logged.
    pub fn print_diagnosis(&self) {
        diagnosis::print(&self.kubectl, &self.namespace);
        diagnosis::print_file(&self.log);
    }

    /// The try of each pod that stays of a SyncJob's runs for readers of logs, sorted. An error if there is a pod that
    /// may run, or a Job without pods.
    pub async fn kept(&self, job: &str) -> Result<Vec<String>> {
        let of_job = ListParams::default().labels(&format!("volferry.dev/syncjob={job}"));
        let jobs = Api::<Job>::namespaced(self.client.clone(), &self.namespace).list(&of_job).await?.items;
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.namespace).list(&of_job).await?.items;
        ensure!(pods.iter().all(kubelet::has_ended), "a pod may run: {pods:#?}");
        let owners = pods.iter().flat_map(ResourceExt::owner_references).map(|owner| owner.uid.clone());
        let (owners, made) =
            (owners.collect::<BTreeSet<_>>(), jobs.iter().filter_map(ResourceExt::uid).collect());
        ensure!(owners == made, "a Job without pods, or pods without a Job: {jobs:#?}\n{pods:#?}");
        let mut tries: Vec<String> = pods.iter().map(kubelet::try_of).collect();
        tries.sort_unstable();
        Ok(tries)
    }

    /// The names of all children of a SyncJob, sorted; pods and what Kubernetes makes by itself left out.
    pub fn children(&self, job: &str) -> Result<Vec<String>> {
        let kinds = "jobs,services,secrets,serviceaccounts,roles,rolebindings";
        let label = format!("volferry.dev/syncjob={job}");
        let names = self.kubectl.run(&["get", kinds, "-l", &label, "-o", "name"])?;
        let mut names: Vec<String> = names.lines().map(Into::into).collect();
        names.sort();
        Ok(names)
    }
}

/// Asks again and again, of what cannot be watched.
async fn poll(what: &str, holds: impl AsyncFn() -> bool) -> Result<()> {
    let asked = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.with_context(|| format!("waited in vain until {what}"))
}

impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_diagnosis();
        }
    }
}

impl Controller {
    /// Goes on until `done` is, or until the controller comes to its cut, after which it can do nothing any more but be
    /// killed.
    pub async fn until_cut_or(&self, done: impl Future<Output = Result<()>>) -> Result<()> {
        tokio::select! {
            () = self.line.reached() => Ok(()),
            done = done => done,
        }
    }

    /// How many requests of any kind it has made.
    pub fn requests(&self) -> usize {
        self.line.requests()
    }

    /// How many writes it has made.
    pub fn writes(&self) -> usize {
        self.line.writes()
    }

    /// How many requests of each kind it has made.
    pub fn tally(&self) -> Tally {
        self.line.tally()
    }

    /// Tells its process to stop, and waits until it has ended well.
    pub async fn stop(mut self) -> Result<()> {
        let ended = tokio::task::spawn_blocking(move || (self.process.stop(), self.line)).await?;
        ensure!(ended.0?.success(), "the controller did not end well");
        Ok(())
    }

    /// The id of its process.
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
