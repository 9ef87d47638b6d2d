//! `kubectl volferry browse` and `get`: what the snapshots on a SyncJob's destination have, told by a pod that mounts
//! the claim read-only for as long as the command runs.

use std::{
    io::{self, Write as _},
    time::Duration,
};

use k8s_openapi::api::batch::v1;
use kube::{Api, ResourceExt as _, api::ListParams};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader},
    time::timeout,
};

use super::{
    cluster::{Cluster, failed},
    error::PluginError,
    exec_stream::{ExecStream, LOST},
    one_pod::{OnePod, show_errors},
    output,
};
use crate::{
    api::SyncJob,
    human, names,
    pods::pod_volumes::DESTINATION_DIR,
    signals::Stops,
    user_pods::{browse_job, one_off_job::ENGINE},
};

/// How long the last errors of a pod may take to arrive.
const LAST_ERRORS: Duration = Duration::from_secs(10);
/// The most output that is written at once, in bytes.
const PIECE_BYTES: usize = 64 << 10;

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
    /// Returns the command for the store in the folder `dir`. A path may begin with a slash, as in a
    /// SyncJob. Nothing that a user types is taken for a flag.
    fn command(self, dir: &str) -> Vec<String> {
        let below = |path: String| path.trim_start_matches('/').to_string();
        let words = |command: &str, more: Vec<String>| {
            let own = [ENGINE, "snapshot", command, "--", dir].map(String::from);
            own.into_iter().chain(more).collect()
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
    let wanted = browse_job::job(&sink, &job, seconds);
    let wanted = wanted.ok_or_else(|| PluginError::NoFolder { name: name.into() })?;
    let made = OnePod::make(cluster, &namespace, &wanted).await?;
    let is_file = matches!(asked, Asked::File { .. });
    let command = asked.command(&dir);
    let answered = tokio::select! {
        answered = answer(&made, is_file, &command) => match answered {
            Ok(0) => Ok(()),
            Ok(status) => Err(PluginError::Answered { at: cluster.at(), job: name.into(), status }),
            Err(error) => Err(error),
        },
        () = stops.next() => Err(PluginError::Stopped { is_gone: true }),
        () = tokio::time::sleep(most) => Err(PluginError::TooLong { after: human::duration(most) }),
    };
    made.end(answered).await
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
    newest.ok_or_else(|| PluginError::NoSink { at: cluster.at(), name })
}

/// Waits for the pod of a Job, runs the command there, prints what it answers, and returns its exit status.
async fn answer(made: &OnePod, is_file: bool, command: &[String]) -> Result<u8, PluginError> {
    let pod = made.running().await?;
    let there = ExecStream::start(&made.pods, &pod, command).await?;
    drop(there.input);
    let errors = tokio::spawn(show_errors(there.errors));
    if is_file {
        print_all(there.output, &pod).await?;
    } else {
        print_lines(there.output, &pod).await?;
    }
    // The status comes after all that was printed, so that its absence tells of a part that is missing.
    let status = there.status.code().await;
    let _ = timeout(LAST_ERRORS, errors).await;
    match status {
        LOST => Err(PluginError::Answer { pod, source: io::ErrorKind::UnexpectedEof.into() }),
        status => Ok(status),
    }
}

/// Prints the output of the answer line by line. Whoever may make Jobs in the namespace may have made the one that
/// names the image, so the text is escaped.
async fn print_lines(from: impl AsyncRead + Unpin, pod: &str) -> Result<(), PluginError> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        let lost = |source| PluginError::Answer { pod: pod.into(), source };
        line.clear();
        let mut part = (&mut from).take(PIECE_BYTES as u64);
        if part.read_until(b'\n', &mut line).await.map_err(lost)? == 0 {
            return Ok(());
        }
        output::lines(&[String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line))])?;
    }
}

/// Writes the output of the answer to standard output as it is.
async fn print_all(mut from: impl AsyncRead + Unpin, pod: &str) -> Result<(), PluginError> {
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let lost = |source| PluginError::Answer { pod: pod.into(), source };
        let to = &mut io::stdout();
        match from.read(&mut buffer).await.map_err(lost)? {
            0 => return to.flush().map_err(PluginError::Output),
            len => to.write_all(&buffer[..len]).map_err(PluginError::Output)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_user_types_is_a_flag_of_the_command_in_the_pod() {
        let file = Asked::File { snapshot: "--help".into(), path: "/-x".into() };
        let words = file.command("/destination/web");
        assert_eq!(words, ["/volferry", "snapshot", "cat", "--", "/destination/web", "--help", "-x"]);
        let folder = Asked::Folder { snapshot: "latest".into(), path: Some("/".into()) };
        assert_eq!(folder.command("/destination")[2..], ["ls", "--", "/destination", "latest"]);
        assert_eq!(Asked::List.command("/destination")[2..], ["list", "--", "/destination"]);
    }
}
