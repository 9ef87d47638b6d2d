//! Runs the command of a hook in the pods that it selects, as `kubectl exec` does.

use std::{collections::VecDeque, time::Duration};

use contract::{chain, printable};
use futures::future::join_all;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Status};
use kube::{
    Api, Client, ResourceExt as _,
    api::{AttachParams, AttachedProcess},
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::Instant,
};

use super::{
    choose_pods,
    hook_error::{HookError, TAIL_BYTES},
    hook_state::{self, Point},
};
use crate::{
    api::Hook,
    human::{clipped, duration, sentence},
};

/// The time between two attempts to start a command.
const PAUSE: Duration = Duration::from_secs(2);

/// The pauses before `after` is started again where nobody knows how it ended. The command may still run.
const AGAIN: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(60)];

/// Runs the command of a hook in all pods that it selects, in all of them at once, within the hook's timeout. Fails if
/// the pods cannot be selected, or if the command fails in any of them.
pub(crate) async fn in_all(
    client: &Client,
    namespace: &str,
    hook: &Hook,
    point: Point,
) -> Result<(), HookError> {
    let limit = hook_state::timeout(hook, point).map_err(|source| HookError::Invalid { point, source })?;
    let api = Api::<Pod>::namespaced(client.clone(), namespace);
    let pods = choose_pods::awaited(&api, hook, point, Instant::now() + limit).await?;
    let ends = join_all(pods.iter().map(|pod| in_one(&api, pod, hook, point, limit))).await;
    let failures: Vec<String> = ends.into_iter().filter_map(Result::err).collect();
    if failures.is_empty() { Ok(()) } else { Err(HookError::Failed { point, failures, of: pods.len() }) }
}

/// Runs the command in one pod. Returns a failure as a sentence for the status.
async fn in_one(api: &Api<Pod>, pod: &Pod, hook: &Hook, point: Point, limit: Duration) -> Result<(), String> {
    let name = pod.name_any();
    let tail = Mutex::new(VecDeque::new());
    let until = Instant::now() + limit;
    let end = tokio::time::timeout(limit, async {
        let mut tried = 0;
        loop {
            let process = started(api, pod, hook, point, until).await?;
            let end = followed(process, &tail).await;
            match pause_after(&end, point, tried).filter(|pause| Instant::now() + *pause < until) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return end.into_result(),
            }
            tried += 1;
        }
    });
    let why = match end.await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(why)) => why,
        Err(_) => format!("no end within {}; the command may still run", duration(limit)),
    };
    Err(format!("{name}: {why}{}", printed(&tail)))
}

/// Starts the command in one pod. `after` is tried again until `until` while nobody takes the request.
async fn started(
    api: &Api<Pod>,
    pod: &Pod,
    hook: &Hook,
    point: Point,
    until: Instant,
) -> Result<AttachedProcess, String> {
    let container = choose_pods::container(pod, hook);
    let params = AttachParams::default().container(container).stdin(false).stdout(true).stderr(true);
    loop {
        let error = match api.exec(&pod.name_any(), &hook.command, &params).await {
            Ok(process) => return Ok(process),
            Err(error) => error,
        };
        if point == Point::Before || !choose_pods::may_pass(&error) || Instant::now() + PAUSE >= until {
            return Err(refused(&error));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// How a command has ended.
#[derive(Debug, PartialEq)]
enum CommandEnd {
    /// With this exit code.
    Code(i32),
    /// The connection broke, or the kubelet could not be reached: it may not have begun, and may still run.
    Unknown(String),
}

impl CommandEnd {
    fn into_result(self) -> Result<(), String> {
        match self {
            Self::Code(0) => Ok(()),
            Self::Code(code) => Err(format!("exit code {code}")),
            Self::Unknown(why) => Err(why),
        }
    }
}

/// Returns after which pause a command is started again that was started again this many times: an application that
/// nobody resumes stays frozen.
fn pause_after(end: &CommandEnd, point: Point, tried: usize) -> Option<Duration> {
    let is_lost = matches!(end, CommandEnd::Unknown(_)) && point == Point::After;
    AGAIN.get(tried).copied().filter(|_| is_lost)
}

/// Waits for the end of a command, and keeps the last bytes that it prints.
async fn followed(mut process: AttachedProcess, tail: &Mutex<VecDeque<u8>>) -> CommandEnd {
    let (output, errors, status) = (process.stdout(), process.stderr(), process.take_status());
    let status = async {
        match status {
            Some(status) => status.await,
            None => None,
        }
    };
    let ((), (), status) = tokio::join!(read(output, tail), read(errors, tail), status);
    judged(status)
}

fn refused(error: &kube::Error) -> String {
    let why = sentence(&clipped(&chain(error), TAIL_BYTES));
    match error {
        kube::Error::Api(answer) if answer.is_forbidden() => format!(
            "{why} The operator lacks the right to create pods/exec here: have the chart's value hooks.enabled set"
        ),
        _ => why,
    }
}

/// Returns the end of a command from the status that the API server sends then.
fn judged(status: Option<Status>) -> CommandEnd {
    let Some(status) = status else {
        return CommandEnd::Unknown("the connection to the command broke, which may still run".into());
    };
    if status.status.as_deref() == Some("Success") {
        return CommandEnd::Code(0);
    }
    let causes = status.details.and_then(|details| details.causes).unwrap_or_default();
    let code = causes.into_iter().find(|cause| cause.reason.as_deref() == Some("ExitCode"));
    match code.and_then(|cause| cause.message?.parse().ok()) {
        Some(code) => CommandEnd::Code(code),
        None => CommandEnd::Unknown(sentence(&clipped(&status.message.unwrap_or_default(), TAIL_BYTES))),
    }
}

/// Reads a stream to its end, and keeps its last bytes.
async fn read(stream: Option<impl AsyncRead + Unpin>, tail: &Mutex<VecDeque<u8>>) {
    let Some(mut stream) = stream else { return };
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let mut tail = tail.lock();
        tail.extend(&buffer[..count]);
        let surplus = tail.len().saturating_sub(TAIL_BYTES);
        tail.drain(..surplus);
    }
}

/// Returns the last output of a command as text with control characters escaped; empty if it printed nothing.
fn printed(tail: &Mutex<VecDeque<u8>>) -> String {
    let tail: Vec<u8> = tail.lock().iter().copied().collect();
    let text = String::from_utf8_lossy(&tail);
    let escaped = printable(text.trim());
    if escaped.is_empty() { String::new() } else { format!("; it printed last: {escaped}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_commands_end_is_its_exit_code_or_the_words_of_the_api_server() {
        let ended = |status| judged(Some(serde_json::from_value(status).unwrap()));
        assert_eq!(ended(json!({"status": "Success"})), CommandEnd::Code(0));
        let causes = json!([{"reason": "ExitCode", "message": "3"}]);
        let failed = json!({"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}});
        assert_eq!(ended(failed), CommandEnd::Code(3));
        let unknown = json!({"status": "Failure", "message": "no such file"});
        assert_eq!(ended(unknown), CommandEnd::Unknown("no such file.".into()));
        assert!(matches!(judged(None), CommandEnd::Unknown(why) if why.contains("may still run")));
    }

    #[test]
    fn after_is_started_again_a_few_times_where_nobody_knows_how_it_ended() {
        let lost = CommandEnd::Unknown("the connection broke".into());
        let tries = (0..9).filter(|tried| pause_after(&lost, Point::After, *tried).is_some()).count();
        assert_eq!(tries, AGAIN.len());
        for end in [CommandEnd::Code(0), CommandEnd::Code(3)] {
            assert_eq!(pause_after(&end, Point::After, 0), None);
        }
        assert_eq!(pause_after(&lost, Point::Before, 0), None);
    }

    #[tokio::test]
    async fn the_last_two_kibibytes_are_kept_and_escaped() {
        let tail = Mutex::new(VecDeque::new());
        let text = format!("{}\x1b[2J\nlast", "x".repeat(5000));
        read(Some(text.as_bytes()), &tail).await;
        let printed = printed(&tail);
        assert_eq!(tail.lock().len(), TAIL_BYTES);
        assert!(printed.ends_with("x\\u{1b}[2J\\nlast"), "{printed}");
    }
}
