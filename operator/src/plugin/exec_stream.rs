//! A process in a pod, started by `exec`, whose standard input and output carry bytes as they are.

use std::io;

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Status};
use kube::{Api, api::AttachParams};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};

use super::{cluster::failed, error::PluginError};
use crate::names;

/// The room for bytes of each direction that have arrived and are not passed on yet, and for the errors.
const BUFFER_BYTES: usize = 1 << 20;
/// The most bytes that are passed on at once.
const PIECE_BYTES: usize = 64 << 10;

/// The process, and the three streams.
pub(super) struct ExecStream {
    pub(super) input: Box<dyn AsyncWrite + Send + Unpin>,
    pub(super) output: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) errors: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) status: ExecStatus,
}

/// How the process will have ended.
pub(super) struct ExecStatus {
    told: std::pin::Pin<Box<dyn Future<Output = Option<Status>> + Send>>,
    /// Ends the process when dropped.
    _process: kube::api::AttachedProcess,
}

impl ExecStream {
    /// Starts the command in the pod.
    pub(super) async fn start(
        pods: &Api<Pod>,
        pod: &str,
        command: &[impl AsRef<str>],
    ) -> Result<Self, PluginError> {
        let params = AttachParams {
            container: Some(names::CONTAINER.into()),
            stdin: true,
            stdout: true,
            stderr: true,
            max_stdin_buf_size: Some(BUFFER_BYTES),
            max_stdout_buf_size: Some(BUFFER_BYTES),
            max_stderr_buf_size: Some(BUFFER_BYTES),
            ..AttachParams::default()
        };
        let words: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        let started = pods.exec(pod, words, &params).await;
        let mut process = started.map_err(failed(format!("start a process in pod {pod}")))?;
        let (Some(input), Some(output), Some(errors), Some(told)) =
            (process.stdin(), process.stdout(), process.stderr(), process.take_status())
        else {
            return Err(PluginError::Answer { pod: pod.into(), source: io::ErrorKind::Unsupported.into() });
        };
        Ok(Self {
            input: Box::new(input),
            output: Box::new(output),
            errors: Box::new(errors),
            status: ExecStatus { told: Box::pin(told), _process: process },
        })
    }
}

impl ExecStatus {
    /// Waits for the end of the process, and returns its exit status; 255 if it never started, or was lost.
    pub(super) async fn code(self) -> u8 {
        match self.told.await {
            Some(status) => code(&status),
            None => LOST,
        }
    }
}

/// The exit status of ssh for what is not the far program's failure.
pub(super) const LOST: u8 = 255;

fn code(status: &Status) -> u8 {
    if status.status.as_deref() == Some("Success") {
        return 0;
    }
    let causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
    let mut codes = causes.filter(|cause| cause.reason.as_deref() == Some("ExitCode"));
    codes.find_map(|cause| cause.message.as_ref()?.parse().ok()).unwrap_or(LOST)
}

/// Passes bytes on until there are no more, and closes the other end.
pub(super) async fn pass_on(from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut from = BufReader::with_capacity(PIECE_BYTES, from);
    tokio::io::copy_buf(&mut from, &mut to).await?;
    to.shutdown().await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_of_a_process_in_a_pod_is_its_exit_code() {
        let of = |status: serde_json::Value| code(&serde_json::from_value(status).unwrap());
        assert_eq!(of(json!({"status": "Success"})), 0);
        let failed = json!({"status": "Failure", "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": "5"}]}});
        assert_eq!(of(failed), 5);
        assert_eq!(of(json!({"status": "Failure", "reason": "InternalError"})), LOST);
    }
}
