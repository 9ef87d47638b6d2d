//! `kubectl volferry browse` and `get`: what the snapshots on a SyncJob's destination have, told by a pod that mounts
//! the claim read-only for as long as the command runs.

use std::{
    io::{self, Write as _},
    pin::pin,
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::{batch::v1, core::v1::Pod};
use kube::{
    Api, ResourceExt as _,
    api::{AttachParams, DeleteParams, ListParams, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader},
    time::timeout,
};

use super::{
    cluster::{Cluster, failed},
    error::PluginError,
    output,
};
use crate::{
    answer::frames::{self, Piece},
    api::SyncJob,
    human, names,
    resources::{browse, job::DESTINATION_DIR},
    signals::Stops,
};

/// How long to wait for a pod before saying that there is none.
const NO_POD: Duration = Duration::from_secs(10);
/// The room for output that has arrived and is not written yet, in bytes.
const BUFFER_BYTES: usize = 256 << 10;
/// The longest line of a pod's errors that is shown, in bytes.
const MAX_LINE_BYTES: usize = 1024;

/// What a user asks of the snapshots.
pub(super) enum Asked {
    /// The list of snapshots.
    List,
    /// What is in a folder of a snapshot.
    Folder { snapshot: String, path: Option<String> },
    /// The content of a file.
    File { snapshot: String, path: String },
}

impl Asked {
    /// Returns the arguments of `volferry` for the store in the folder `dir`. A path may begin with a slash, as in a
    /// SyncJob. Nothing that a user types is taken for a flag.
    fn arguments(self, dir: &str) -> Vec<String> {
        let below = |path: String| path.trim_start_matches('/').to_string();
        let words = |command: &str, more: Vec<String>| {
            ["snapshot".into(), command.into(), "--".into(), dir.into()].into_iter().chain(more).collect()
        };
        match self {
            Self::List => words("list", Vec::new()),
            Self::Folder { snapshot, path } => {
                let path = path.map(below).filter(|path| !path.is_empty());
                words("ls", [snapshot].into_iter().chain(path).collect())
            }
            Self::File { snapshot, path } => words("cat", vec![snapshot, below(path)]),
        }
    }
}

/// Prints what a pod answers, for at most this time. The pod is gone afterwards, however that ends.
pub(super) async fn run(
    cluster: &Cluster,
    name: &str,
    asked: Asked,
    most: Duration,
) -> Result<(), PluginError> {
    let mut stops = Stops::new().map_err(PluginError::Signals)?;
    let job = cluster.job(name).await?;
    let of_claim = &job.spec.destination.persistent_volume_claim;
    let namespace = of_claim.namespace.clone().unwrap_or_else(|| cluster.namespace.clone());
    let sink = last_sink(cluster, &job, &namespace).await?;
    let dir = match job.spec.destination.path.trim_end_matches('/') {
        "" => DESTINATION_DIR.into(),
        path => format!("{DESTINATION_DIR}{path}"),
    };
    let seconds = i64::try_from(most.as_secs()).unwrap_or(i64::MAX).max(1);
    let wanted = browse::job(&sink, &job, &asked.arguments(&dir), seconds);
    let wanted = wanted.ok_or_else(|| PluginError::NoFolder { name: name.into() })?;
    let jobs: Api<v1::Job> = Api::namespaced(cluster.client.clone(), &namespace);
    let made = jobs.create(&PostParams::default(), &wanted).await;
    let made = made.map_err(failed(format!("create a Job in namespace {namespace}")))?.name_any();
    let answered = tokio::select! {
        answered = answer(cluster, &namespace, &made) => answered,
        () = stops.next() => Err(PluginError::Stopped),
        () = tokio::time::sleep(most) => Err(PluginError::TooLong { after: human::duration(most) }),
    };
    let removed = jobs.delete(&made, &DeleteParams::background().grace_period(0)).await;
    let removed = removed.map(drop).or_else(|error| match &error {
        kube::Error::Api(status) if status.is_not_found() => Ok(()),
        _ => Err(error),
    });
    answered.and(removed.map_err(failed(format!("delete Job {namespace}/{made}"))))
}

/// Returns the newest Job of a sink of the SyncJob.
async fn last_sink(cluster: &Cluster, job: &SyncJob, namespace: &str) -> Result<v1::Job, PluginError> {
    let name = job.name_any();
    let labels = format!("{}={},{}=sink", names::LABEL_SYNCJOB, names::label_value(&name), names::LABEL_SIDE);
    let jobs: Api<v1::Job> = Api::namespaced(cluster.client.clone(), namespace);
    let listed = jobs.list(&ListParams::default().labels(&labels)).await;
    let listed = listed.map_err(failed(format!("list jobs in namespace {namespace}")))?;
    let is_own = |sink: &v1::Job| {
        let own = sink.annotations().get(names::ANNOTATION_SYNCJOB) == Some(&name);
        let of = sink.annotations().get(names::ANNOTATION_NAMESPACE).unwrap_or(&cluster.namespace);
        own && *of == cluster.namespace
    };
    let newest = listed.items.into_iter().filter(is_own).max_by_key(kube::ResourceExt::creation_timestamp);
    newest.ok_or_else(|| PluginError::NoSink { namespace: cluster.namespace.clone(), name })
}

/// Waits for the pod of a Job, and prints what it answers.
async fn answer(cluster: &Cluster, namespace: &str, job: &str) -> Result<(), PluginError> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    let pod = running(&pods, namespace, job).await?;
    let params = AttachParams {
        container: Some(names::CONTAINER.into()),
        stdin: true,
        stdout: true,
        stderr: true,
        max_stdout_buf_size: Some(BUFFER_BYTES),
        ..AttachParams::default()
    };
    let attached = pods.attach(&pod, &params).await;
    let mut attached = attached.map_err(failed(format!("attach to pod {namespace}/{pod}")))?;
    let lost = |source| PluginError::Answer { pod: pod.clone(), source };
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (attached.stdin(), attached.stdout(), attached.stderr())
    else {
        return Err(lost(io::ErrorKind::Unsupported.into()));
    };
    let errors = tokio::spawn(show_errors(stderr));
    stdin.write_all(b"\n").await.map_err(lost)?;
    stdin.flush().await.map_err(lost)?;
    let status = print_all(stdout).await.map_err(|error| match error {
        AnswerError::There(source) => lost(source),
        AnswerError::Here(source) => PluginError::Output(source),
    })?;
    // The pod ends when the input does.
    drop(stdin);
    let _ = timeout(NO_POD, errors).await;
    match status {
        0 => Ok(()),
        status => Err(PluginError::Answered { status }),
    }
}

/// Waits until the pod of a Job runs, and says what it waits for.
async fn running(pods: &Api<Pod>, namespace: &str, job: &str) -> Result<String, PluginError> {
    let labels = format!("batch.kubernetes.io/job-name={job}");
    let found = watcher(pods.clone(), watcher::Config::default().labels(&labels));
    let mut found = pin!(found.default_backoff().applied_objects());
    let mut told = String::new();
    loop {
        let next = match told.is_empty() {
            true => match timeout(NO_POD, found.next()).await {
                Ok(next) => next.transpose(),
                Err(_) => {
                    told = format!(
                        "note: there is no pod yet; `kubectl describe -n {namespace} job {job}` says why"
                    );
                    output::complain(&told);
                    continue;
                }
            },
            false => found.try_next().await,
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

/// Where a failure was.
enum AnswerError {
    There(io::Error),
    Here(io::Error),
}

/// Writes the output of the answer to standard output as it is, and returns the exit status.
async fn print_all(mut from: impl AsyncRead + Unpin) -> Result<u8, AnswerError> {
    loop {
        match frames::read(&mut from).await.map_err(AnswerError::There)? {
            Piece::End(status) => return io::stdout().flush().map(|()| status).map_err(AnswerError::Here),
            Piece::Output(bytes) => io::stdout().write_all(&bytes).map_err(AnswerError::Here)?,
        }
    }
}

/// Shows the lines that the command says on standard error.
async fn show_errors(from: impl AsyncRead + Unpin) {
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
    use super::*;

    #[test]
    fn nothing_that_a_user_types_is_a_flag_of_the_command_in_the_pod() {
        let file = Asked::File { snapshot: "--help".into(), path: "/-x".into() };
        let words = file.arguments("/destination/web");
        assert_eq!(words, ["snapshot", "cat", "--", "/destination/web", "--help", "-x"]);
        let folder = Asked::Folder { snapshot: "latest".into(), path: Some("/".into()) };
        assert_eq!(folder.arguments("/destination")[1..], ["ls", "--", "/destination", "latest"]);
        assert_eq!(Asked::List.arguments("/destination")[1..], ["list", "--", "/destination"]);
    }
}
