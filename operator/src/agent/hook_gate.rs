//! Holds an end back until `hooks.before` of its run is over, which begins only when the volumes of all ends are free.

use std::{ffi::OsString, path::PathBuf};

use contract::{Event, Reason, Report, RunResult};
use serde_json::json;

use super::{
    AgentArgs, Ended, contacts::MeetingError, error::AgentError, missing_report::failed, publish::Publisher,
    read_report,
};
use crate::{
    api::{OnHookFailure, SyncRunStatus},
    engine::process::Syncer,
    signals::Stops,
};

/// The flag of `volferry` that makes it check its folders and do nothing else.
const CHECK: &str = "--check-free";

/// Returns once the hook is over. Returns how the end ended where another run uses its volume, or where it was stopped.
pub(super) async fn wait(
    args: &AgentArgs,
    policy: OnHookFailure,
    publisher: &Publisher,
    stops: &mut Stops,
    program: PathBuf,
    rest: &[OsString],
) -> Result<Option<Ended>, AgentError> {
    // Shards of one run share their volumes, so the first looks for all.
    if args.index == 0
        && let Some(busy) = check(args, program, rest).await?
    {
        return Ok(Some(busy));
    }
    tokio::select! {
        passed = publisher.pass(policy) => passed.map(|()| None).map_err(AgentError::from),
        () = stops.next() => Ok(Some(stopped(args))),
    }
}

/// Runs the check, and returns how it ended unless the volumes are free.
async fn check(args: &AgentArgs, program: PathBuf, rest: &[OsString]) -> Result<Option<Ended>, AgentError> {
    let rest = rest.iter().cloned().chain([CHECK.into()]);
    let mut syncer = Syncer::start(program, rest)?;
    let mut report = None;
    while let Some(event) = syncer.next_event().await {
        if let Event::Finished(it) = event {
            report = Some(*it);
        }
    }
    let exit = syncer.wait().await?;
    let ended = || Ended {
        status: exit.code(),
        tail: exit.tail.clone(),
        report: report.or_else(|| read_report(args)),
    };
    Ok((exit.code() != 0).then(ended))
}

pub(super) fn stopped(args: &AgentArgs) -> Ended {
    let message = "The run was stopped before it began.".into();
    let report =
        Report { result: RunResult::Canceled, reason: Some(Reason::Canceled), ..failed(args, message) };
    Ended { status: contract::ExitCode::Failed as i32, tail: Vec::new(), report: Some(report) }
}

impl Publisher {
    /// Tells that this end's volumes are free, and returns once the hook is over.
    async fn pass(&self, policy: OnHookFailure) -> Result<(), MeetingError> {
        self.offer(format!("/free/{}", self.contact_key(self.side)), json!(true)).await?;
        self.watch_run(|run| Ok(may_pass(self.own_try(run)?, policy).then_some(()))).await
    }
}

/// Returns whether the hook of a run is over, and the run goes on after it.
fn may_pass(status: &SyncRunStatus, policy: OnHookFailure) -> bool {
    let before = status.hooks.as_ref().and_then(|hooks| hooks.before.as_ref());
    before.is_some_and(|it| it.is_over() && (it.failure.is_none() || policy == OnHookFailure::Continue))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;
    use crate::api::{HookRun, RunHooks};

    #[test]
    fn an_end_goes_on_when_the_hook_is_over_and_a_failure_does_not_end_the_run() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let running = HookRun::begun(now);
        let done = HookRun { completion_time: Some(MicroTime(now)), ..running.clone() };
        let failed = HookRun { failure: Some("it failed".into()), ..done.clone() };
        let judged = |hook: Option<&HookRun>, policy| {
            let hooks = hook.map(|hook| RunHooks { before: Some(hook.clone()), ..RunHooks::default() });
            may_pass(&SyncRunStatus { hooks, ..SyncRunStatus::default() }, policy)
        };
        for (hook, policy, expected) in [
            (None, OnHookFailure::Continue, false),
            (Some(&running), OnHookFailure::Continue, false),
            (Some(&done), OnHookFailure::Fail, true),
            (Some(&failed), OnHookFailure::Fail, false),
            (Some(&failed), OnHookFailure::Continue, true),
        ] {
            assert_eq!(judged(hook, policy), expected, "{hook:?} {policy:?}");
        }
    }
}
