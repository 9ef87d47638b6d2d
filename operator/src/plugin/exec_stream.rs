//! A process in a pod, started by `exec`, whose standard input and output carry bytes as they are.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Status};
use kube::{Api, api::AttachParams};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, ReadBuf};

use super::{cluster::failed, error::PluginError};
use crate::names;

/// The room for bytes of each direction that have arrived and are not passed on yet, and for the errors.
const BUFFER_BYTES: usize = 1 << 20;
/// The most bytes that are passed on at once.
const PIECE_BYTES: usize = 64 << 10;

/// The process, and the three streams. Outputs fail if the connection is lost before the process has ended.
pub(super) struct ExecStream {
    pub(super) input: Box<dyn AsyncWrite + Send + Unpin>,
    pub(super) output: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) errors: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) status: ExecStatus,
}

/// How the process will have ended.
pub(super) struct ExecStatus {
    told: Told,
    /// Ends the process when dropped.
    _process: kube::api::AttachedProcess,
}

/// The status of the process; `None` if the connection was lost before.
type Told = Shared<BoxFuture<'static, Option<Status>>>;

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
        let told = told.boxed().shared();
        Ok(Self {
            input: Box::new(input),
            output: Box::new(UntilLost::new(output, &told)),
            errors: Box::new(UntilLost::new(errors, &told)),
            status: ExecStatus { told, _process: process },
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

/// An output of the process. The client leaves it open when the connection is reset.
struct UntilLost<R> {
    from: R,
    /// `None` once the status has come.
    told: Option<Told>,
    is_lost: bool,
}

impl<R> UntilLost<R> {
    fn new(from: R, told: &Told) -> Self {
        Self { from, told: Some(told.clone()), is_lost: false }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for UntilLost<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Before the read, which then finds all that arrived before the loss.
        if let Some(Poll::Ready(status)) = self.told.as_mut().map(|told| told.poll_unpin(cx)) {
            self.told = None;
            self.is_lost = status.is_none();
        }
        let room = buffer.remaining();
        let read = Pin::new(&mut self.from).poll_read(cx, buffer);
        if !self.is_lost {
            return read;
        }
        match read {
            Poll::Ready(read) if read.is_err() || buffer.remaining() < room => Poll::Ready(read),
            _ => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
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
    use tokio::{io::AsyncReadExt as _, sync::oneshot};

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

    #[tokio::test]
    async fn an_output_ends_with_the_process_and_fails_with_the_connection() {
        for status in [Some(Status::default()), None] {
            let (ended, told) = oneshot::channel();
            let told = told.map(Result::ok).boxed().shared();
            let (from, mut to) = tokio::io::simplex(BUFFER_BYTES);
            let mut output = UntilLost::new(from, &told);
            to.write_all(b"some").await.unwrap();
            let is_lost = status.is_none();
            if let Some(status) = status {
                ended.send(status).unwrap();
                to.shutdown().await.unwrap();
            } else {
                // A client whose connection was reset closes nothing.
                drop(ended);
            }
            let mut read = Vec::new();
            let end = output.read_to_end(&mut read).await.map_err(|error| error.kind());
            assert_eq!(read, b"some");
            assert_eq!(end.is_err(), is_lost, "{end:?}");
            assert_eq!(told.await.is_none(), is_lost);
        }
    }
}
