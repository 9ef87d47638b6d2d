//! `kubectl volferry logs`: decides which run's pods are shown, and prints what they said.

use std::{io, pin::pin};

use contract::Side;
use futures::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, future::try_join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::{cluster::Cluster, error::PluginError, output};
use crate::{api::SyncJob, names};

/// The maximum length of a piece of a line in memory, in bytes; the rest of the line follows as further lines.
const MAX_LINE: u64 = 64 << 10;

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
        None => return Err(PluginError::NoJobOrRun { namespace: cluster.namespace.clone(), name }),
    };
    let pods = cluster.pods(&run, end).await?;
    if pods.is_empty() {
        return Err(PluginError::NoPods { namespace: cluster.namespace.clone(), name: run, end });
    }
    print(cluster, &pods, follow).await
}

/// Returns the name of the run under way, or else of the last one.
fn latest_run(job: &SyncJob) -> Option<String> {
    let status = job.status.as_ref()?;
    let active = status.active_run.as_ref().map(|run| run.id.clone());
    active.or_else(|| status.last_run.as_ref().map(|run| run.id.clone()))
}

/// Prints the logs of pods, one after the other, or with `follow` side by side until all have ended.
async fn print(cluster: &Cluster, pods: &[Pod], follow: bool) -> Result<(), PluginError> {
    let prefix = |pod: &Pod| if pods.len() == 1 { String::new() } else { format!("[{}] ", end_of(pod)) };
    if follow {
        let logs = pods.iter().map(|pod| print_one(cluster, pod, prefix(pod), true));
        return try_join_all(logs).await.map(drop);
    }
    for pod in pods {
        print_one(cluster, pod, prefix(pod), false).await?;
    }
    Ok(())
}

async fn print_one(cluster: &Cluster, pod: &Pod, prefix: String, follow: bool) -> Result<(), PluginError> {
    let mut log = pin!(cluster.log(pod, follow).await?);
    loop {
        match next_line(&mut log).await {
            Ok(Some(line)) => output::lines(&[format!("{prefix}{line}")])?,
            Ok(None) => return Ok(()),
            Err(source) => return Err(PluginError::Log { pod: pod.name_any(), source }),
        }
    }
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
    use kube::api::ObjectMeta;

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
