//! A pod that is there for as long as a command of the plugin runs.

use std::{pin::pin, time::Duration};

use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader},
    time::timeout,
};

use super::{
    args::Scope,
    await_object::next_seen,
    cluster::{Cluster, failed},
    error::{PluginError, told},
    output,
};
use crate::{human, names};

/// How long to wait for a pod before saying that there is none.
const NO_POD: Duration = Duration::from_secs(10);
/// The longest line of a pod's errors that is shown, in bytes.
const MAX_LINE_BYTES: usize = 1024;

/// The Job of such a pod.
pub(super) struct OnePod {
    jobs: Api<Job>,
    pub(super) pods: Api<Pod>,
    /// The namespace, and what leads there.
    at: Scope,
    name: String,
}

impl OnePod {
    /// Makes the Job. [`end`](Self::end) has to follow, however the command ends.
    pub(super) async fn make(cluster: &Cluster, namespace: &str, wanted: &Job) -> Result<Self, PluginError> {
        let client = &cluster.client;
        let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
        let made = jobs.create(&PostParams::default(), wanted).await;
        let made = made.map_err(failed(format!("create a Job in namespace {namespace}")))?;
        let pods = Api::namespaced(client.clone(), namespace);
        Ok(Self { jobs, pods, at: cluster.scope.in_namespace(namespace), name: made.name_any() })
    }

    /// Waits until the pod runs, and returns its name.
    pub(super) async fn running(&self) -> Result<String, PluginError> {
        running(&self.pods, &self.at, &self.name).await
    }

    /// Returns whether the pod still runs, as far as that can be seen now.
    pub(super) async fn runs(&self, pod: &str) -> bool {
        match self.pods.get_opt(pod).await {
            Ok(Some(pod)) => pod.status.is_some_and(|status| status.phase.as_deref() == Some("Running")),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Removes the Job with its pod, and returns how the command ended. A Job that stays is a warning: what the command
    /// did is done, and the pod ends by itself once nobody uses it.
    pub(super) async fn end(self, done: Result<(), PluginError>) -> Result<(), PluginError> {
        match self.jobs.delete(&self.name, &DeleteParams::background().grace_period(0)).await {
            Ok(_) => done,
            Err(kube::Error::Api(status)) if status.is_not_found() => done,
            Err(error) => {
                left_lines(&self.at, &self.name, &error).iter().for_each(|line| output::complain(line));
                done.map_err(knowing_what_is_left)
            }
        }
    }
}

/// Returns what is said of a Job that could not be deleted.
fn left_lines(at: &Scope, name: &str, error: &kube::Error) -> [String; 2] {
    [
        format!("warning: Job {at}/{name} could not be deleted: {}", told(error)),
        format!("hint: kubectl delete job{} {name}", at.flags()),
    ]
}

/// Returns the error of a command whose pod may still be there.
fn knowing_what_is_left(error: PluginError) -> PluginError {
    match error {
        PluginError::Stopped { .. } => PluginError::Stopped { is_gone: false },
        error => error,
    }
}

/// Waits until the pod of a Job runs, and says what it waits for.
async fn running(pods: &Api<Pod>, at: &Scope, job: &str) -> Result<String, PluginError> {
    let labels = format!("batch.kubernetes.io/job-name={job}");
    let found = watcher(pods.clone(), watcher::Config::default().labels(&labels));
    let mut found = pin!(found.default_backoff().applied_objects());
    let mut said = String::new();
    loop {
        let next = if said.is_empty() {
            match timeout(NO_POD, next_seen(&mut found)).await {
                Ok(next) => next,
                Err(_) => {
                    said = format!(
                        "note: there is no pod yet; `kubectl describe{} job {job}` says why",
                        at.flags()
                    );
                    output::complain(&said);
                    continue;
                }
            }
        } else {
            next_seen(&mut found).await
        };
        let Some(pod) = next.map_err(PluginError::WatchPod)? else {
            return Err(PluginError::PodGone { namespace: at.to_string() });
        };
        match state(&pod) {
            State::Runs => return Ok(pod.name_any()),
            State::Over(why) => {
                return Err(PluginError::PodFailed { at: Box::new(at.clone()), pod: pod.name_any(), why });
            }
            State::Waits(why) if !why.is_empty() && why != said => {
                output::complain(&format!("note: pod {} waits: {why}", pod.name_any()));
                said = why;
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
    // Others, which a service mesh adds, are no concern of this command.
    let mut containers = status.container_statuses.iter().flatten();
    let container = containers.find(|it| it.name == names::CONTAINER).and_then(|it| it.state.as_ref());
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

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::{Value, json};

    use super::*;

    fn pod(containers: &Value) -> Pod {
        let status = json!({"phase": "Running", "containerStatuses": containers});
        serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap()
    }

    fn container(name: &str, state: &Value) -> Value {
        json!({"name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state})
    }

    #[test]
    fn the_state_of_a_pod_is_that_of_its_syncer_whatever_else_runs_beside_it() {
        let runs = json!({"running": {"startedAt": "2026-11-22T20:44:47Z"}});
        let sidecar = container("istio-proxy", &runs);
        let pulls = container("syncer", &json!({"waiting": {"reason": "ErrImagePull"}}));
        assert!(matches!(state(&pod(&json!([sidecar, pulls]))), State::Waits(why) if why == "ErrImagePull"));
        assert!(matches!(state(&pod(&json!([sidecar, container("syncer", &runs)]))), State::Runs));
        let over = container("syncer", &json!({"terminated": {"exitCode": 1, "reason": "OOMKilled"}}));
        assert!(matches!(state(&pod(&json!([sidecar, over]))), State::Over(why) if why == "OOMKilled"));
        assert!(matches!(state(&pod(&json!([sidecar]))), State::Waits(_)));
    }

    #[test]
    fn a_job_that_stays_is_named_with_the_command_that_deletes_it() {
        let refused = Status { code: 403, message: "no".into(), ..Status::default() };
        let at = Scope { namespace: Some("prod".into()), context: Some("far".into()), ..Scope::default() };
        let [warning, hint] = left_lines(&at, "web-push-1", &kube::Error::Api(refused.boxed()));
        assert_eq!(warning, "warning: Job prod/web-push-1 could not be deleted: no");
        assert_eq!(hint, "hint: kubectl delete job -n prod --context=far web-push-1");
        let error = knowing_what_is_left(PluginError::Stopped { is_gone: true });
        assert!(!error.hint(&at).contains("the pod is gone"));
        assert!(PluginError::Stopped { is_gone: true }.hint(&at).contains("the pod is gone"));
    }
}
