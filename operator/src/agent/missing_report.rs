//! Says why a syncer ended that left no report: most likely, it was killed for its memory.

use contract::{Reason, Report, RunResult};
use jiff::Timestamp;

use super::{AgentArgs, Ended};

/// The exit status after SIGKILL. If the kubelet does not group the container's processes for its memory limit, the
/// kernel kills only the process, and not the agent.
const KILLED: i32 = 128 + 9;

/// Returns a report for a process that left none.
pub(super) fn made_up(args: &AgentArgs, ended: &Ended) -> Report {
    if ended.status == KILLED {
        let message = format!(
            "The {} was killed (SIGKILL), most likely because it used more memory than its container may. Raise \
             spec.pods.resources.limits.memory.",
            args.side
        );
        return Report { reason: Some(Reason::SyncerKilled), ..failed(args, message) };
    }
    let said = if ended.tail.is_empty() { "it said nothing".to_string() } else { ended.tail.join("\n") };
    failed(args, format!("The {} ended with status {} and left no report: {said}", args.side, ended.status))
}

/// Returns the report of an end that failed with this message.
pub(super) fn failed(args: &AgentArgs, message: String) -> Report {
    Report {
        run: args.run.clone(),
        result: RunResult::Failed,
        reason: Some(Reason::SyncerFailed),
        message,
        completion_time: Timestamp::now().to_string(),
        ..Report::default()
    }
}
