//! Tracks the hooks of a run: which has run, failed, or is owed. Pure.

use contract::Reason;
use std::{fmt, time::Duration};

use jiff::Timestamp;

use crate::{
    api::{ActiveRun, Hook, HookRun, Hooks, OnHookFailure, RunHooks, SyncJobStatus, SyncRun},
    fault::Fault,
    spec::fields::{ValidationError, duration, invalid},
};

/// One of the two hooks of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Point {
    /// `hooks.before`.
    Before,
    /// `hooks.after`.
    After,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Before { "before" } else { "after" })
    }
}

impl Point {
    /// Returns this hook's part of the spec.
    pub fn of(self, hooks: &Hooks) -> Option<&Hook> {
        match self {
            Self::Before => hooks.before.as_ref(),
            Self::After => hooks.after.as_ref(),
        }
    }

    /// Returns the recorded state of this hook of a run; `None` if it has not started.
    pub fn state(self, run: &ActiveRun) -> Option<&HookRun> {
        let hooks = run.hooks.as_ref()?;
        match self {
            Self::Before => hooks.before.as_ref(),
            Self::After => hooks.after.as_ref(),
        }
    }

    fn timeout_field(self) -> &'static str {
        match self {
            Self::Before => "hooks.before.timeout",
            Self::After => "hooks.after.timeout",
        }
    }
}

/// Validates the hooks of a spec.
pub fn check(hooks: Option<&Hooks>) -> Result<(), ValidationError> {
    let Some(hooks) = hooks else { return Ok(()) };
    for point in [Point::Before, Point::After] {
        let Some(hook) = point.of(hooks) else { continue };
        timeout(hook, point)?;
        if hook.command.is_empty() || hook.target.match_labels.is_empty() {
            let field = if point == Point::Before { "hooks.before" } else { "hooks.after" };
            return Err(invalid(field, "needs a command, and labels in target.matchLabels"));
        }
    }
    Ok(())
}

/// Returns the timeout of a hook. Fails if it is no positive duration.
pub fn timeout(hook: &Hook, point: Point) -> Result<Duration, ValidationError> {
    duration(point.timeout_field(), &hook.timeout)
}

/// Returns the hook of a run that has started and not ended.
pub fn in_progress(run: &ActiveRun) -> Option<Point> {
    let is_under_way = |point: &Point| point.state(run).is_some_and(|state| !state.is_over());
    [Point::Before, Point::After].into_iter().find(is_under_way)
}

/// Returns the hook `before` that begins once all pods of the try have found their volumes free. They wait for its end.
/// The source of a run that is captured beforehand is held still before any pod.
pub fn awaited<'a>(run: &ActiveRun, hooks: &'a Hooks, is_captured: bool) -> Option<&'a Hook> {
    hooks.before.as_ref().filter(|_| run.hooks.is_none() && !is_captured)
}

/// Returns whether the pods of a run may start: it is past `before`, and not yet at `after` unless it is captured.
pub fn may_start(run: &ActiveRun) -> bool {
    let is_captured = run.capture.as_ref().is_some_and(|capture| capture.taken_time.is_some());
    is_opened(run) || (run.hooks.is_some() && is_captured)
}

/// Returns whether a run is past `before` but not yet at `after`.
pub fn is_opened(run: &ActiveRun) -> bool {
    run.hooks.as_ref().is_some_and(|hooks| hooks.after.is_none())
}

/// Returns whether a run still has to run its hook `after`.
pub fn owes_after(run: &ActiveRun, hooks: &Hooks) -> bool {
    hooks.after.is_some() && is_opened(run)
}

/// Returns whether a SyncJob's status knows nothing of a run that has yet to run its hook `after`, as after somebody
/// has erased or replaced the status. The run's own record still has the debt.
pub fn is_forgotten(run: &SyncRun, status: &SyncJobStatus) -> bool {
    let is_named = |id: &str| run.metadata.name.as_deref() == Some(id);
    let is_active = status.active_run.as_ref().is_some_and(|active| is_named(&active.id));
    let newest = [&status.last_run, &status.last_benchmark].into_iter().flatten();
    let is_told = newest.map(|ended| &ended.id).chain(status.history.iter().map(|ended| &ended.id));
    run.is_held() && !run.has_ended() && !is_active && !is_told.into_iter().any(|id| is_named(id))
}

/// Returns the fault that ends a run before its pods start: its hook `before` failed, and `onFailure` is `Fail`.
pub fn refusal(run: &ActiveRun, hooks: &Hooks) -> Option<Fault> {
    let failure = failure(run, Point::Before)?;
    let before = hooks.before.as_ref()?;
    (before.on_failure == OnHookFailure::Fail).then(|| Fault::new(Reason::HookFailed, failure))
}

/// Returns the failure message of a run's hook.
pub fn failure(run: &ActiveRun, point: Point) -> Option<&str> {
    point.state(run)?.failure.as_deref()
}

/// Records that the pods of a run without a hook `before` are about to start: from now on, it has to run `after`.
pub fn open(status: &mut SyncJobStatus) {
    if let Some(run) = &mut status.active_run {
        run.hooks = Some(RunHooks::default());
    }
}

/// Records that a hook has ended, with its failure if any. The time of `before` does not count as that of its try.
pub fn end(status: &mut SyncJobStatus, point: Point, failure: Option<String>, now: Timestamp) {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    let Some(run) = &mut status.active_run else { return };
    let hooks = run.hooks.get_or_insert_default();
    let state = if point == Point::Before { &mut hooks.before } else { &mut hooks.after };
    let state = state.get_or_insert_with(|| HookRun::begun(now));
    (state.completion_time, state.failure) = (Some(MicroTime(now)), failure);
    if point == Point::Before {
        let took = now.duration_since(state.start_time.0);
        let began = run.try_time.as_ref().or(run.start_time.as_ref()).map_or(now, |time| time.0);
        run.try_time = Some(MicroTime(began.checked_add(took).unwrap_or(now).min(now)));
    }
}

/// Returns the status message while a hook runs.
pub fn message(run: &ActiveRun, point: Point) -> String {
    format!("The hook {point} of run {} runs.", run.id)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_that_owes_after_is_forgotten_by_a_status_that_was_erased() {
        let run = |owner: &str, status: serde_json::Value| -> SyncRun {
            let owner = json!({"apiVersion": "v1", "kind": owner, "name": "x", "uid": "u"});
            serde_json::from_value(json!({"metadata": {"name": "web-3", "ownerReferences": [owner]},
                "spec": {"syncJob": {"name": "web"}}, "status": status}))
            .unwrap()
        };
        let status = |text: serde_json::Value| -> SyncJobStatus { serde_json::from_value(text).unwrap() };
        let held = run("Namespace", json!({}));
        assert!(is_forgotten(&held, &status(json!({}))));
        let active_run = Some(ActiveRun { id: "web-3".into(), ..ActiveRun::default() });
        let active = SyncJobStatus { active_run, ..SyncJobStatus::default() };
        let last_run = Some(crate::api::Run { id: "web-3".into(), ..Default::default() });
        let last = SyncJobStatus { last_run, ..SyncJobStatus::default() };
        let told = status(json!({"history": [{"id": "web-3", "result": "Failed"}]}));
        for knows in [active, last, told] {
            assert!(!is_forgotten(&held, &knows), "{knows:?}");
        }
        assert!(!is_forgotten(&run("SyncJob", json!({})), &status(json!({}))), "it owes nothing");
        let ended = run("Namespace", json!({"report": {"id": "web-3", "result": "Succeeded"}}));
        assert!(!is_forgotten(&ended, &status(json!({}))), "it has ended");
    }

    #[test]
    fn a_timeout_that_cannot_be_read_and_an_empty_command_are_refused_by_name() {
        let judged = |hook: serde_json::Value| {
            let hooks = serde_json::from_value(json!({"after": hook})).unwrap();
            check(Some(&hooks)).map_err(|error| error.to_string())
        };
        let target = json!({"matchLabels": {"app": "db"}});
        assert_eq!(judged(json!({"target": target, "command": ["sync"]})), Ok(()));
        let error = judged(json!({"target": target, "command": ["sync"], "timeout": "soon"})).unwrap_err();
        assert!(error.starts_with("spec.hooks.after.timeout: `soon` is not a duration"), "{error}");
        let error = judged(json!({"target": target, "command": []})).unwrap_err();
        assert!(error.starts_with("spec.hooks.after: needs a command"), "{error}");
    }
}
