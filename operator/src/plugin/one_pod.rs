//! A pod that is there for as long as a command of the plugin runs.

use std::{pin::pin, time::Duration};

use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader},
    time::timeout,
};

use super::{await_object::next_seen, cluster::failed, error::PluginError, output};
use crate::human;

/// How long to wait for a pod before saying that there is none.
const NO_POD: Duration = Duration::from_secs(10);
/// The longest line of a pod's errors that is shown, in bytes.
const MAX_LINE_BYTES: usize = 1024;

/// The Job of such a pod.
pub(super) struct OnePod {
    jobs: Api<Job>,
    pub(super) pods: Api<Pod>,
    pub(super) namespace: String,
    name: String,
}

impl OnePod {
    /// Makes the Job. [`remove`](Self::remove) has to follow, however the command ends.
    pub(super) async fn make(client: &Client, namespace: &str, wanted: &Job) -> Result<Self, PluginError> {
        let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
        let made = jobs.create(&PostParams::default(), wanted).await;
        let made = made.map_err(failed(format!("create a Job in namespace {namespace}")))?;
        let pods = Api::namespaced(client.clone(), namespace);
        Ok(Self { jobs, pods, namespace: namespace.into(), name: made.name_any() })
    }

    /// Waits until the pod runs, and returns its name.
    pub(super) async fn running(&self) -> Result<String, PluginError> {
        running(&self.pods, &self.namespace, &self.name).await
    }

    /// Returns whether the pod still runs, as far as that can be seen now.
    pub(super) async fn runs(&self, pod: &str) -> bool {
        match self.pods.get_opt(pod).await {
            Ok(Some(pod)) => pod.status.is_some_and(|status| status.phase.as_deref() == Some("Running")),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Removes the Job with its pod, unless it is gone.
    pub(super) async fn remove(self) -> Result<(), PluginError> {
        match self.jobs.delete(&self.name, &DeleteParams::background().grace_period(0)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            removed => {
                removed.map(drop).map_err(failed(format!("delete Job {}/{}", self.namespace, self.name)))
            }
        }
    }
}

/// Waits until the pod of a Job runs, and says what it waits for.
async fn running(pods: &Api<Pod>, namespace: &str, job: &str) -> Result<String, PluginError> {
    let labels = format!("batch.kubernetes.io/job-name={job}");
    let found = watcher(pods.clone(), watcher::Config::default().labels(&labels));
    let mut found = pin!(found.default_backoff().applied_objects());
    let mut told = String::new();
    loop {
        let next = if told.is_empty() {
            match timeout(NO_POD, next_seen(&mut found)).await {
                Ok(next) => next,
                Err(_) => {
                    told = format!(
                        "note: there is no pod yet; `kubectl describe -n {namespace} job {job}` says why"
                    );
                    output::complain(&told);
                    continue;
                }
            }
        } else {
            next_seen(&mut found).await
        };
        let Some(pod) = next.map_err(PluginError::WatchPod)? else {
            return Err(PluginError::PodGone { namespace: namespace.into() });
        };
        match state(&pod) {
            State::Runs => return Ok(pod.name_any()),
            State::Over(why) => return Err(PluginError::PodFailed { pod: pod.name_any(), why }),
            State::Waits(why) if !why.is_empty() && why != told => {
                output::complain(&format!("note: pod {} waits: {why}", pod.name_any()));
                told = why;
            }
            State::Waits(_) => {}
        }
    }
}

/// How far a pod is.
enum State {
    Waits(String),
    Runs,
    Over(String),
}

fn state(pod: &Pod) -> State {
    let Some(status) = &pod.status else { return State::Waits(String::new()) };
    let container = status.container_statuses.iter().flatten().find_map(|it| it.state.as_ref());
    if let Some(over) = container.and_then(|it| it.terminated.as_ref()) {
        return State::Over(over.message.clone().or_else(|| over.reason.clone()).unwrap_or_default());
    }
    if container.is_some_and(|it| it.running.is_some()) {
        return State::Runs;
    }
    if status.phase.as_deref() == Some("Failed") {
        return State::Over(status.message.clone().or_else(|| status.reason.clone()).unwrap_or_default());
    }
    let waiting = container.and_then(|it| it.waiting.as_ref());
    let waiting = waiting.and_then(|it| it.message.clone().or_else(|| it.reason.clone()));
    let waiting = waiting.filter(|why| why != "ContainerCreating" && why != "PodInitializing");
    let conditions = status.conditions.iter().flatten();
    let held = conditions.filter(|it| it.type_ == "PodScheduled" && it.status == "False");
    State::Waits(waiting.or_else(|| held.filter_map(|it| it.message.clone()).next()).unwrap_or_default())
}

/// Shows the lines that the command says on standard error.
pub(super) async fn show_errors(from: impl AsyncRead + Unpin) {
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while matches!(lines.read_until(b'\n', &mut line).await, Ok(1..)) {
        let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line)).into_owned();
        output::complain(&human::clipped(&text, MAX_LINE_BYTES));
        line.clear();
    }
}
