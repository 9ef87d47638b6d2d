//! Simulates the kubelet and the syncer's agent: the test sets the state of each pod.

use std::{pin::pin, time::Duration};

use anyhow::{Context as _, Result, bail};
use contract::{Reason, Report, Side};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::{
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{Pod, ServiceAccount},
    },
    jiff::Timestamp,
};
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};

use crate::{
    played_runs::PlayedRuns,
    report::{bad_report, good_report},
    syncjob, wait,
};

/// The number of pods that are simulated concurrently.
const AT_ONCE: usize = 16;
/// The limit of a wait for a pod. A pod is made within seconds, or not at all.
const PATIENCE: Duration = Duration::from_secs(30);
/// The name of the pods' node; no Node object of it exists.
const NODE: &str = "node-of-the-test";
/// Kubernetes' own label of the pods of Indexed Jobs.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// How the pods of a run end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Play {
    /// The agents and the kubelet report success.
    Succeeds,
    /// The pods of the first try fail; those of the second succeed.
    FirstFails,
}

/// Sets the state of the pods of a namespace.
#[derive(Clone)]
pub struct Kubelet {
    client: Client,
    config: Config,
    namespace: String,
    pods: Api<Pod>,
}

impl Kubelet {
    /// Makes a kubelet for the pods of a namespace; `config` names the API server.
    pub fn new(client: &Client, config: &Config, namespace: &str) -> Self {
        let pods = Api::namespaced(client.clone(), namespace);
        Self { client: client.clone(), config: config.clone(), namespace: namespace.into(), pods }
    }

    /// Returns the pod of one end of a run once there is one that is neither deleted nor ended, and not in `known`.
    pub async fn new_pod(&self, job: &str, side: Side, known: &[&Pod]) -> Result<Pod> {
        self.new_pod_with(job, side, "", known).await
    }

    /// Returns a new pod as [`Kubelet::new_pod`] does, which also has the labels `more`, each after a comma.
    async fn new_pod_with(&self, job: &str, side: Side, more: &str, known: &[&Pod]) -> Result<Pod> {
        let labels = format!("volferry.dev/syncjob={job},volferry.dev/side={side}{more}");
        let what = format!("{job} has a new {side} pod ({labels})");
        let found = wait::until_any(&self.pods, &labels, &what, PATIENCE, |pod: &Pod| {
            let is_known = known.iter().any(|it| it.uid() == pod.uid());
            pod.metadata.deletion_timestamp.is_none() && !has_ended(pod) && !is_known
        });
        found.await
    }

    /// Starts the pods of both ends of a run, and returns them, source first.
    pub async fn start_both(&self, job: &str, known: &[&Pod]) -> Result<[Pod; 2]> {
        let source = self.new_pod(job, Side::Source, known).await?;
        let sink = self.new_pod(job, Side::Sink, known).await?;
        self.start(&source).await?;
        self.start(&sink).await?;
        Ok([source, sink])
    }

    /// Starts the pods of both ends of a run, and ends them with success. Returns them, source first.
    pub async fn complete(&self, job: &str, known: &[&Pod]) -> Result<[Pod; 2]> {
        let [source, sink] = self.start_both(job, known).await?;
        self.succeed(&source, &sink, &good_report(&try_of(&sink))).await?;
        Ok([source, sink])
    }

    /// Starts the pods of both ends of the next run of any job that are not in `known`, and returns them, source first.
    /// Passes over runs that are withdrawn meanwhile: of two controllers that both believe they lead, one withdraws a
    /// run that is beyond the limit.
    pub async fn start_any(&self, known: &[Pod]) -> Result<[Pod; 2]> {
        loop {
            let pair = self.new_pair(known).await?;
            if self.start_pair(&pair).await? {
                return Ok(pair);
            }
            self.finish_deletions().await?;
        }
    }

    /// Starts both pods. Returns false if one of them is gone or being deleted then.
    async fn start_pair(&self, pair: &[Pod; 2]) -> Result<bool> {
        for pod in pair {
            match self.start(pod).await {
                Err(error) if is_gone(&error) => return Ok(false),
                started => started?,
            }
        }
        for pod in pair {
            let now = self.pods.get_opt(&pod.name_any()).await?;
            if now.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the pods of both ends of the next run of any job that are not in `known`, source first.
    async fn new_pair(&self, known: &[Pod]) -> Result<[Pod; 2]> {
        let sinks = format!("volferry.dev/side={}", Side::Sink);
        let found = wait::until_any(&self.pods, &sinks, "there is a new sink pod", PATIENCE, |pod: &Pod| {
            let is_known = known.iter().any(|it| it.uid() == pod.uid());
            pod.metadata.deletion_timestamp.is_none() && !has_ended(pod) && !is_known
        });
        let sink = found.await?;
        let job = sink.labels().get("volferry.dev/syncjob").context("a pod without a job")?.clone();
        let known: Vec<&Pod> = known.iter().collect();
        let source = self.new_pod(&job, Side::Source, &known).await?;
        Ok([source, sink])
    }

    /// Returns the pods of both ends of each shard of a run, source first, without starting them.
    pub async fn new_shards(&self, job: &str, count: u32, known: &[&Pod]) -> Result<Vec<[Pod; 2]>> {
        let mut shards = Vec::new();
        for shard in 0..count {
            let index = format!(",{INDEX}={shard}");
            let source = self.new_pod_with(job, Side::Source, &index, known).await?;
            let sink = self.new_pod_with(job, Side::Sink, &index, known).await?;
            shards.push([source, sink]);
        }
        Ok(shards)
    }

    /// Starts the pods of both ends of each shard of a run, and returns them, source first.
    pub async fn start_shards(&self, job: &str, count: u32, known: &[&Pod]) -> Result<Vec<[Pod; 2]>> {
        let shards = self.new_shards(job, count, known).await?;
        for [source, sink] in &shards {
            self.start(source).await?;
            self.start(sink).await?;
        }
        Ok(shards)
    }

    /// Binds the pod to a node and sets its container as running. An agent that waits for a hook finds its volumes
    /// free.
    pub async fn start(&self, pod: &Pod) -> Result<()> {
        self.run(pod).await?;
        if !awaits_hook(pod) {
            return Ok(());
        }
        let side = agent_arg(pod, "side");
        let key = index_of(pod).map_or_else(|| side.into(), |index| format!("{side}-{index}"));
        self.publish(pod, &format!("/free/{key}"), &json!(true)).await
    }

    /// Returns once the hook is over for which an agent waits, if any.
    async fn until_hook_is_over(&self, pod: &Pod) -> Result<()> {
        if !awaits_hook(pod) {
            return Ok(());
        }
        let runs = syncjob::runs(&self.client, agent_arg(pod, "namespace"));
        let is_over = |run: &DynamicObject| syncjob::status(run, "/hooks/before/completionTime").is_string();
        wait::until(&runs, agent_arg(pod, "name"), "the hook before is over", PATIENCE, is_over)
            .await
            .map(drop)
    }

    /// Binds the pod to a node and sets its container as running, in which the agent does nothing yet.
    pub async fn run(&self, pod: &Pod) -> Result<()> {
        self.bind(pod).await?;
        let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
            .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": now()}));
        let state = json!({"running": {"startedAt": now()}});
        let status = json!({"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}], "startTime": now(),
            "conditions": conditions, "containerStatuses": [container(pod, true, &state)]});
        self.set_status(pod, &status).await
    }

    /// Binds the pod to a node and sets its container as waiting for `reason`.
    pub async fn wait(&self, pod: &Pod, reason: &str, message: &str) -> Result<()> {
        self.bind(pod).await?;
        let state = json!({"waiting": {"reason": reason, "message": message}});
        let status = json!({"phase": "Pending", "containerStatuses": [container(pod, false, &state)]});
        self.set_status(pod, &status).await
    }

    /// Sets the pod as unschedulable, as the scheduler does when it finds no node.
    pub async fn unschedulable(&self, pod: &Pod, message: &str) -> Result<()> {
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": message, "lastTransitionTime": now()});
        self.set_status(pod, &json!({"phase": "Pending", "conditions": [condition]})).await
    }

    /// Ends the container with that exit code and termination message, and a moment later its pod.
    pub async fn end(&self, pod: &Pod, exit: i32, message: &str) -> Result<()> {
        let terminated = json!({"exitCode": exit, "reason": if exit == 0 { "Completed" } else { "Error" },
            "message": message, "startedAt": now(), "finishedAt": now()});
        let state = json!({"terminated": terminated});
        let phase = if exit == 0 { "Succeeded" } else { "Failed" };
        self.set_status(pod, &json!({"containerStatuses": [container(pod, false, &state)]})).await?;
        let ended = Patch::Merge(json!({"status": {"phase": phase}}));
        let name = pod.name_any();
        match self.pods.patch_status(&name, &PatchParams::default(), &ended).await {
            Ok(ended) if ended.metadata.deletion_timestamp.is_some() => self.let_go(&name).await,
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            done => done.map(drop).context("a pod's phase"),
        }
    }

    /// Ends both pods with success, after their agents have reported it.
    pub async fn succeed(&self, source: &Pod, sink: &Pod, report: &Report) -> Result<()> {
        self.succeed_one(Side::Source, source, report).await?;
        self.succeed_one(Side::Sink, sink, report).await
    }

    /// Ends one pod with success, after its agent has reported it.
    pub async fn succeed_one(&self, side: Side, pod: &Pod, report: &Report) -> Result<()> {
        let path = match index_of(pod) {
            Some(shard) => format!("/ends/{side}-{shard}"),
            None => format!("/ends/{side}"),
        };
        self.publish(pod, &path, &json!(serde_json::to_string(report)?)).await?;
        self.end(pod, 0, &serde_json::to_string(report)?).await
    }

    /// Writes a value below the SyncRun's status as the agent in that pod would: with the rights of the pod's
    /// ServiceAccount, and no others.
    pub async fn publish(&self, pod: &Pod, path: &str, value: &Value) -> Result<()> {
        // The SyncRun of a pod that runs for another namespace is there.
        let namespace = agent_arg(pod, "namespace");
        write(&syncjob::runs(&self.client_of(pod).await?, namespace), pod, path, value).await
    }

    /// Returns a client with the rights of a pod's ServiceAccount.
    pub async fn client_of(&self, pod: &Pod) -> Result<Client> {
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
        self.client_as(&account.context("the pod has no service account")?).await
    }

    /// Returns a client with the rights of a ServiceAccount of the namespace.
    pub async fn client_as(&self, account: &str) -> Result<Client> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        let spec = TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let granted = accounts.create_token_request(account, &PostParams::default(), &request).await?;
        let mut config = self.config.clone();
        config.auth_info.token = Some(granted.status.context("no token was granted")?.token.into());
        Ok(Client::try_from(config)?)
    }

    /// Simulates every run of a SyncJob: starts each pod, and when both ends of a shard run, ends them as `ending`
    /// tells. Returns only with an error.
    pub async fn play(&self, job: &str, ending: Play) -> Result<()> {
        self.play_when(job, ending, async || Ok(())).await
    }

    /// Does the same, but ends a run only after `may_end` has returned.
    pub async fn play_when(
        &self,
        job: &str,
        ending: Play,
        may_end: impl AsyncFn() -> Result<()>,
    ) -> Result<()> {
        let config = watcher::Config::default().labels(&format!("volferry.dev/syncjob={job}"));
        let mut changes = pin!(watcher(self.pods.clone(), config).default_backoff().applied_objects());
        while let Some(changed) = changes.next().await {
            // The watch may be late, so the pod's present state counts.
            let name = changed.context("watching pods")?.name_any();
            let Some(pod) = self.pods.get_opt(&name).await? else { continue };
            if pod.metadata.deletion_timestamp.is_some() {
                self.finish_deletions().await?;
            } else if phase(&pod) == "Pending" {
                self.start(&pod).await?;
            } else if let Some([source, sink]) = self.running_pair(&pod).await? {
                self.until_hook_is_over(&sink).await?;
                may_end().await?;
                let run = try_of(&sink);
                match ending {
                    Play::FirstFails if !run.contains(".retry") => {
                        self.lose_peer(&source, &sink, &run).await?;
                    }
                    _ => self.succeed(&source, &sink, &good_report(&run)).await?,
                }
            } else if is_alone(&pod) && phase(&pod) == "Running" {
                self.succeed_one(Side::Source, &pod, &good_report(&try_of(&pod))).await?;
            }
        }
        bail!("the watch of pods ended")
    }

    /// Ends both pods with the error that the peer was lost.
    async fn lose_peer(&self, source: &Pod, sink: &Pod, run: &str) -> Result<()> {
        let message = serde_json::to_string(&bad_report(run, &Reason::PeerLost, "the peer went away"))?;
        self.end(source, 5, &message).await?;
        self.end(sink, 5, &message).await
    }

    /// Simulates the runs of all SyncJobs concurrently to success, with all rights, and counts them in `played`.
    /// Returns only with an error.
    pub async fn play_all(&self, played: &PlayedRuns) -> Result<()> {
        let config = watcher::Config::default().labels("volferry.dev/run");
        let changes = watcher(self.pods.clone(), config).default_backoff().applied_objects();
        let played = changes
            .err_into::<anyhow::Error>()
            .try_for_each_concurrent(AT_ONCE, async |pod| self.play_one(&pod.name_any(), played).await);
        played.await?;
        bail!("the watch of pods ended")
    }

    async fn play_one(&self, name: &str, played: &PlayedRuns) -> Result<()> {
        let Some(pod) = self.pods.get_opt(name).await? else { return Ok(()) };
        if pod.metadata.deletion_timestamp.is_some() {
            return self.let_go(name).await;
        }
        if phase(&pod) == "Pending" {
            // A pod that one handler has started must not be started again by a slower one.
            return if played.comes(&try_of(&pod), name) { self.start(&pod).await } else { Ok(()) };
        }
        let Some([source, sink]) = self.running_pair(&pod).await? else { return Ok(()) };
        let run = try_of(&sink);
        if played.goes(&run) {
            let report = json!(serde_json::to_string(&good_report(&run))?);
            let api = syncjob::runs(&self.client, &self.namespace);
            write(&api, &source, &format!("/ends/{}", Side::Source), &report).await?;
            write(&api, &sink, &format!("/ends/{}", Side::Sink), &report).await?;
            self.end(&source, 0, "").await?;
            self.end(&sink, 0, "").await?;
        }
        Ok(())
    }

    /// Removes the pods of a SyncJob as they are deleted, and starts or ends none. Returns only with an error.
    pub async fn release(&self, job: &str) -> Result<()> {
        let config = watcher::Config::default().labels(&format!("volferry.dev/syncjob={job}"));
        let mut changes = pin!(watcher(self.pods.clone(), config).default_backoff().applied_objects());
        while let Some(changed) = changes.next().await {
            if changed.context("watching pods")?.metadata.deletion_timestamp.is_some() {
                self.finish_deletions().await?;
            }
        }
        bail!("the watch of pods ended")
    }

    /// Returns the pods of both ends of `pod`'s try and shard, source first, if both run.
    async fn running_pair(&self, pod: &Pod) -> Result<Option<[Pod; 2]>> {
        let run = pod.labels().get("volferry.dev/run").context("a pod without a run")?;
        let of_run = ListParams::default().labels(&format!("volferry.dev/run={run}"));
        let mut pods = self.pods.list(&of_run).await?.items;
        pods.retain(|it| {
            phase(it) == "Running" && try_of(it) == try_of(pod) && index_of(it) == index_of(pod)
        });
        let mut take = |side: Side| {
            let at =
                pods.iter().position(|it| it.labels().get("volferry.dev/side") == Some(&side.to_string()))?;
            Some(pods.swap_remove(at))
        };
        Ok(take(Side::Source).zip(take(Side::Sink)).map(Into::into))
    }

    /// Removes every pod that is being deleted, as the kubelet does when the containers have ended.
    pub async fn finish_deletions(&self) -> Result<()> {
        for pod in self.pods.list(&ListParams::default()).await?.items {
            if pod.metadata.deletion_timestamp.is_some() {
                self.let_go(&pod.name_any()).await?;
            }
        }
        Ok(())
    }

    async fn let_go(&self, name: &str) -> Result<()> {
        match self.pods.delete(name, &DeleteParams::default().grace_period(0)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            done => done.map(drop).context("letting go of a pod"),
        }
    }

    /// Returns a pod in its present state.
    pub async fn pod(&self, name: &str) -> Result<Pod> {
        self.pods.get(name).await.context("a pod")
    }

    /// Returns the first pod of one end that is being deleted.
    pub async fn deleted_pod(&self, job: &str, side: Side) -> Result<Pod> {
        self.deleted_pod_within(job, side, PATIENCE).await
    }

    /// Returns the first pod of one end that is being deleted, within a limit for controllers that take longer.
    pub async fn deleted_pod_within(&self, job: &str, side: Side, limit: Duration) -> Result<Pod> {
        let labels = format!("volferry.dev/syncjob={job},volferry.dev/side={side}");
        let what = format!("the {side} pod of {job} is being deleted");
        let found = wait::until_any(&self.pods, &labels, &what, limit, |pod: &Pod| {
            pod.metadata.deletion_timestamp.is_some()
        });
        found.await
    }

    async fn bind(&self, pod: &Pod) -> Result<()> {
        let name = pod.name_any();
        if self.pods.get(&name).await?.spec.and_then(|spec| spec.node_name).is_some() {
            return Ok(());
        }
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": NODE}});
        let _: Value =
            self.pods.create_subresource("binding", &name, &PostParams::default(), &binding).await?;
        Ok(())
    }

    async fn set_status(&self, pod: &Pod, status: &Value) -> Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        let name = pod.name_any();
        self.pods.patch_status(&name, &PatchParams::default(), &patch).await.context("a pod's status")?;
        Ok(())
    }
}

/// Writes a value below the status of a pod's SyncRun, which fails unless the SyncRun has the pod's try.
async fn write(runs: &Api<DynamicObject>, pod: &Pod, path: &str, value: &Value) -> Result<()> {
    let operations = json!([
        {"op": "test", "path": "/metadata/uid", "value": agent_arg(pod, "uid")},
        {"op": "test", "path": "/status/try", "value": agent_arg(pod, "try").parse::<i32>()?},
        {"op": "add", "path": format!("/status{path}"), "value": value},
    ]);
    let patch = Patch::Json::<()>(serde_json::from_value(operations)?);
    let run = agent_arg(pod, "name");
    runs.patch_status(run, &PatchParams::default(), &patch).await.context("publishing as the agent")?;
    Ok(())
}

/// Returns the name of a pod's try, as its agent gets it.
pub fn try_of(pod: &Pod) -> String {
    agent_arg(pod, "run").into()
}

fn awaits_hook(pod: &Pod) -> bool {
    !agent_arg(pod, "await-hook").is_empty()
}

/// Returns whether a pod has an endpoint in the place of a peer.
fn is_alone(pod: &Pod) -> bool {
    !agent_arg(pod, "key").is_empty()
}

fn agent_arg<'a>(pod: &'a Pod, name: &str) -> &'a str {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut args = containers.flat_map(|container| container.args.iter().flatten());
    args.find_map(|arg| arg.strip_prefix("--")?.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
}

/// Returns the number of a pod's shard, if its run has several.
pub fn index_of(pod: &Pod) -> Option<&str> {
    pod.labels().get(INDEX).map(String::as_str)
}

/// Returns whether an error says that an object does not exist.
fn is_gone(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<kube::Error>();
    matches!(error, Some(kube::Error::Api(status)) if status.is_not_found())
}

/// Returns whether all processes of a pod have ended.
pub fn has_ended(pod: &Pod) -> bool {
    ["Succeeded", "Failed"].contains(&phase(pod))
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn container(pod: &Pod, ready: bool, state: &Value) -> Value {
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    json!({"name": container.map(|it| it.name.as_str()), "image": container.and_then(|it| it.image.as_deref()),
        "imageID": "sha256:0", "ready": ready, "started": ready, "restartCount": 0, "state": state})
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
