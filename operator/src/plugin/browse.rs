//! `kubectl volferry browse` and `get`: what the snapshots on a SyncJob's destination have, told by a pod that mounts
//! the claim read-only for as long as the command runs.

use std::{
    io::{self, Write as _},
    time::Duration,
};

use k8s_openapi::api::batch::v1;
use kube::{
    Api, ResourceExt as _,
    api::{AttachParams, ListParams},
};
use tokio::{
    io::{AsyncRead, AsyncWriteExt as _},
    time::timeout,
};

use super::{
    cluster::{Cluster, failed},
    error::PluginError,
    one_pod::{OnePod, show_errors},
};
use crate::{
    api::SyncJob,
    human, names,
    pods::job::DESTINATION_DIR,
    signals::Stops,
    user_pods::{
        browse_job,
        frames::{self, Piece},
    },
};

/// How long the last errors of a pod may take to arrive.
const LAST_ERRORS: Duration = Duration::from_secs(10);
/// The room for output that has arrived and is not written yet, in bytes.
const BUFFER_BYTES: usize = 256 << 10;

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
    let of_claim = job.spec.destination.persistent_volume_claim.as_ref();
    let of_claim = of_claim.ok_or_else(|| PluginError::NoFolder { name: name.into() })?;
    let namespace = of_claim.namespace.clone().unwrap_or_else(|| cluster.namespace.clone());
    let sink = last_sink(cluster, &job, &namespace).await?;
    let dir = match job.spec.destination.path.trim_end_matches('/') {
        "" => DESTINATION_DIR.into(),
        path => format!("{DESTINATION_DIR}{path}"),
    };
    let seconds = i64::try_from(most.as_secs()).unwrap_or(i64::MAX).max(1);
    let wanted = browse_job::job(&sink, &job, &asked.arguments(&dir), seconds);
    let wanted = wanted.ok_or_else(|| PluginError::NoFolder { name: name.into() })?;
    let made = OnePod::make(&cluster.client, &namespace, &wanted).await?;
    let answered = tokio::select! {
        answered = answer(&made) => answered,
        () = stops.next() => Err(PluginError::Stopped),
        () = tokio::time::sleep(most) => Err(PluginError::TooLong { after: human::duration(most) }),
    };
    answered.and(made.remove().await)
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
async fn answer(made: &OnePod) -> Result<(), PluginError> {
    let pod = made.running().await?;
    let params = AttachParams {
        container: Some(names::CONTAINER.into()),
        stdin: true,
        stdout: true,
        stderr: true,
        max_stdout_buf_size: Some(BUFFER_BYTES),
        ..AttachParams::default()
    };
    let attached = made.pods.attach(&pod, &params).await;
    let mut attached = attached.map_err(failed(format!("attach to pod {}/{pod}", made.namespace)))?;
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
    let _ = timeout(LAST_ERRORS, errors).await;
    match status {
        0 => Ok(()),
        status => Err(PluginError::Answered { status }),
    }
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
