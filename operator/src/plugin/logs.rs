//! `kubectl volferry logs`: decides which run's pods are shown, and prints what they said.

use std::{io, pin::pin, time::Duration};

use contract::Side;
use futures::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, future::try_join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tokio::time::sleep;

use super::{
    cluster::Cluster,
    error::{PluginError, told},
    output,
};
use crate::{api::SyncJob, names};

/// The maximum length of a piece of a line in memory, in bytes; the rest of the line follows as further lines.
const MAX_LINE: u64 = 64 << 10;
/// The pause before the log of a container is asked for again that has yet to start.
const PAUSE: Duration = Duration::from_secs(1);

/// Prints what the pods of a run said: of the SyncRun of that name, or of the SyncJob's run under way, or else its last
/// one.
pub(super) async fn run(
    cluster: &Cluster,
    name: String,
    end: Option<Side>,
    follow: bool,
) -> Result<(), PluginError> {
    let run = match cluster.job_if_any(&name).await? {
        Some(job) => latest_run(&job).ok_or_else(|| cluster.no_run(&name))?,
        None if cluster.run_if_any(&name).await?.is_some() => name,
        None => return Err(PluginError::NoJobOrRun { at: cluster.at(), name }),
    };
    let pods = cluster.pods(&run, end).await?;
    if pods.is_empty() {
        return Err(PluginError::NoPods { at: cluster.at(), name: run, end });
    }
    print(cluster, &pods, follow).await
}

/// Returns the name of the run under way, or else of the last one.
fn latest_run(job: &SyncJob) -> Option<String> {
    let status = job.status.as_ref()?;
    let active = status.active_run.as_ref().map(|run| run.id.clone());
    active.or_else(|| status.last_run.as_ref().map(|run| run.id.clone()))
}

/// Prints the logs of pods, one after the other, or with `follow` side by side until all have ended. A log that cannot
/// be read is a note, and an error if none can.
async fn print(cluster: &Cluster, pods: &[Pod], follow: bool) -> Result<(), PluginError> {
    let prefix = |pod: &Pod| if pods.len() == 1 { String::new() } else { format!("[{}] ", end_of(pod)) };
    let (mut failures, is_alone) = (Vec::new(), pods.len() == 1);
    if follow {
        let logs =
            pods.iter().map(async |pod| unread(print_one(cluster, pod, prefix(pod), true).await, is_alone));
        failures = try_join_all(logs).await?;
    } else {
        for pod in pods {
            failures.push(unread(print_one(cluster, pod, prefix(pod), false).await, is_alone)?);
        }
    }
    let all_failed: Option<Vec<PluginError>> = failures.into_iter().collect();
    all_failed.and_then(|failures| failures.into_iter().next_back()).map_or(Ok(()), Err)
}

/// Returns why a log could not be read, and says so unless there is no other. That nobody reads what is printed is an
/// error.
fn unread(printed: Result<(), PluginError>, is_alone: bool) -> Result<Option<PluginError>, PluginError> {
    match printed {
        Ok(()) => Ok(None),
        Err(error @ PluginError::Output(_)) => Err(error),
        Err(error) => {
            if !is_alone {
                output::complain(&format!("note: {}", told(&error)));
            }
            Ok(Some(error))
        }
    }
}

async fn print_one(cluster: &Cluster, pod: &Pod, prefix: String, follow: bool) -> Result<(), PluginError> {
    let mut is_noted = false;
    let log = loop {
        match cluster.log(pod, follow).await {
            Err(error) if follow && is_early(&error) && !cluster.has_ended(pod).await => {
                if !is_noted {
                    output::complain(&format!("note: {prefix}waiting: {}", told(&error)));
                }
                is_noted = true;
                sleep(PAUSE).await;
            }
            log => break log?,
        }
    };
    let mut log = pin!(log);
    loop {
        match next_line(&mut log).await {
            Ok(Some(line)) => output::lines(&[format!("{prefix}{line}")])?,
            Ok(None) => return Ok(()),
            Err(source) => return Err(PluginError::Log { at: cluster.at(), pod: pod.name_any(), source }),
        }
    }
}

/// Returns whether there is no log yet because the container has yet to start, or its pod to get a node.
fn is_early(error: &PluginError) -> bool {
    let PluginError::Api { source: kube::Error::Api(answer), .. } = error else { return false };
    let words = ["waiting to start", "does not have a host assigned"];
    answer.code == 400 && words.iter().any(|words| answer.message.contains(words))
}

/// Reads the next line, or the next piece of one that is too long.
async fn next_line(log: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    if log.take(MAX_LINE).read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    let line = line.strip_suffix(b"\n").unwrap_or(&line);
    Ok(Some(String::from_utf8_lossy(line).into_owned()))
}

/// Returns the end that a pod serves, with its shard's number in a run of several.
fn end_of(pod: &Pod) -> String {
    let end = pod.labels().get(names::LABEL_SIDE).cloned().unwrap_or_else(|| pod.name_any());
    match pod.annotations().get(names::ANNOTATION_INDEX) {
        Some(shard) => format!("{end}-{shard}"),
        None => end,
    }
}

#[cfg(test)]
mod tests {
    use kube::{api::ObjectMeta, core::Status};

    use super::*;

    #[tokio::test]
    async fn a_line_of_any_length_is_read_in_pieces() {
        let text = [vec![b'x'; (64 << 10) + 1], b"\nlast".to_vec()].concat();
        let mut log = futures::io::Cursor::new(text);
        let mut lengths = Vec::new();
        while let Some(line) = next_line(&mut log).await.unwrap() {
            lengths.push(line.len());
        }
        assert_eq!(lengths, [64 << 10, 1, 4]);
    }

    #[test]
    fn a_pod_without_a_log_does_not_keep_those_of_others_back() {
        let refused = |code, message: &str| {
            let answer = Status { code, message: message.into(), ..Status::default() };
            PluginError::Api { doing: "read".into(), source: kube::Error::Api(answer.boxed()), reached: None }
        };
        let early = refused(400, "container \"syncer\" in pod \"p\" is waiting to start: ContainerCreating");
        assert!(is_early(&early) && !is_early(&refused(403, "waiting to start")));
        assert!(is_early(&refused(400, "pod p does not have a host assigned")));
        assert!(!is_early(&refused(400, "previous terminated container not found")));
        assert!(matches!(unread(Err(early), false), Ok(Some(_))));
        assert!(matches!(unread(Ok(()), false), Ok(None)));
        assert!(unread(Err(PluginError::Output(io::ErrorKind::BrokenPipe.into())), false).is_err());
    }

    #[test]
    fn pods_of_shards_have_a_number() {
        let map = |key: &str, value: &str| Some([(key.to_string(), value.to_string())].into());
        let labels = map(names::LABEL_SIDE, "sink");
        let one = Pod { metadata: ObjectMeta { labels, ..ObjectMeta::default() }, ..Pod::default() };
        assert_eq!(end_of(&one), "sink");
        let annotations = map(names::ANNOTATION_INDEX, "3");
        let shard = Pod { metadata: ObjectMeta { annotations, ..one.metadata }, ..Pod::default() };
        assert_eq!(end_of(&shard), "sink-3");
    }
}
