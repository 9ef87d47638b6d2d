//! `kubectl volferry stream`, which `volferry sync` starts in the place of ssh: joins this process's standard input and
//! output to those of a process in a pod.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::{net::unix::pipe, time::timeout};

use super::{
    cluster::Cluster,
    error::{PluginError, told},
    exec_stream::{ExecStream, LOST, pass_on},
    one_pod::show_errors,
    output,
};

/// How long the last errors of the process may take to arrive.
const LAST_ERRORS: Duration = Duration::from_secs(5);

/// Runs the command, of words without blanks, in the pod. Ends with its exit status, or with ssh's for its own
/// failures, of which it says one line.
pub(super) async fn run(cluster: &Cluster, pod: &str, command: &str) -> Result<(), PluginError> {
    let status = match join(cluster, pod, command).await {
        Ok(status) => status,
        Err(error) => {
            output::complain(&told(&error));
            LOST
        }
    };
    Err(PluginError::Ended { status })
}

async fn join(cluster: &Cluster, pod: &str, command: &str) -> Result<u8, PluginError> {
    let lost = |source| PluginError::Answer { pod: pod.into(), source };
    let (from, to) = own_pipes().map_err(lost)?;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let words: Vec<&str> = command.split_whitespace().collect();
    let there = ExecStream::start(&pods, pod, &words).await?;
    let errors = tokio::spawn(show_errors(there.errors));
    let up = tokio::spawn(pass_on(from, there.input));
    match pass_on(there.output, to).await {
        // The program that reads the answer has ended, as it does at the end of a run; it says what it thinks of it.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(LOST),
        passed => passed.map_err(lost)?,
    }
    up.abort();
    let _ = timeout(LAST_ERRORS, errors).await;
    Ok(there.status.code().await)
}

/// Returns standard input and output, which have to be pipes: reading of others could not be given up.
fn own_pipes() -> io::Result<(pipe::Receiver, pipe::Sender)> {
    let input: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    let output: OwnedFd = io::stdout().as_fd().try_clone_to_owned()?;
    Ok((pipe::Receiver::from_owned_fd(input)?, pipe::Sender::from_owned_fd(output)?))
}
