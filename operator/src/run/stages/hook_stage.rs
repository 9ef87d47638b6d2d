//! Inserts the hooks of a run: `before` once its pods have found both volumes free, or ahead of a capture, `after`
//! before the run ends or loses its turn. Pure.

use contract::{Reason, Report, Side};

use super::{
    situation::{Situation, WARNINGS_PERIOD, after},
    step::{Decision, HookStep, Step},
};
use crate::{
    api::{ActiveRun, Hook, StoppedRun},
    fault::Fault,
    hooks::hook_state::{self, Point},
    run::{judge_hooks, outcome::Outcome},
    volumes::claims::LostClaim,
};

/// Waits for a hook that has started, whatever else has happened, since the other hook may only run after it.
pub(super) fn under_way(situation: &Situation<'_>, run: &ActiveRun) -> Option<Decision> {
    let point = hook_state::in_progress(run)?;
    Some(Step::Hook(HookStep::Await(point)).again(after(situation, WARNINGS_PERIOD)))
}

/// Ends a run that was stopped before its hook `after`, or whose hook `before` failed.
pub(super) fn settled(situation: &Situation<'_>, run: &ActiveRun) -> Option<Decision> {
    let stopped = run.hooks.as_ref().and_then(|hooks| hooks.stopped.clone());
    if let Some(StoppedRun { result, reason, message }) = stopped {
        let mut outcome = Outcome::stopped(Fault::new(reason, message));
        outcome.report.result = result;
        return Some(Step::Finish(outcome).into());
    }
    let fault = hook_state::refusal(run, situation.hooks?)?;
    Some(Step::Finish(Outcome::stopped(fault)).into())
}

/// Inserts the hooks of a run before a step that was decided without them. Unless the try has ended, its pods are
/// stopped before `after` starts, and the result of the run is recorded.
pub(super) fn around(
    situation: &Situation<'_>,
    run: &ActiveRun,
    is_over: bool,
    Decision { step, again }: Decision,
) -> Decision {
    let Some(hooks) = situation.hooks else { return step.again(again) };
    match step {
        Step::Launch if awaited(situation, run).is_some() => step.again(again),
        Step::Launch if !hook_state::may_start(run) && hooks.before.is_some() => {
            Step::Hook(HookStep::begin(Point::Before)).into()
        }
        Step::Launch if !hook_state::may_start(run) => Step::Hook(HookStep::Open).into(),
        step if ends_turn(&step) && hook_state::owes_after(run, hooks) => {
            let stopped = if is_over { None } else { verdict(&step).map(Box::new) };
            Step::Hook(HookStep::Begin { point: Point::After, stops: !is_over, stopped }).into()
        }
        Step::Finish(outcome) => Step::Finish(judge_hooks::judged(outcome, run, hooks)).again(again),
        step => step.again(again),
    }
}

/// Returns the hook `before` for which the pods of a run wait.
fn awaited<'a>(situation: &Situation<'a>, run: &ActiveRun) -> Option<&'a Hook> {
    let is_captured = situation.demand.as_ref().is_ok_and(|demand| demand.capture_timeout.is_some());
    hook_state::awaited(run, situation.hooks?, is_captured)
}

/// Begins the hook for which the running pods of a run wait, as soon as all of them have found their volumes free.
pub(super) fn of_waiting_pods(situation: &Situation<'_>, run: &ActiveRun) -> Option<Decision> {
    awaited(situation, run)?;
    let begin = Step::Hook(HookStep::begin(Point::Before));
    Some(if situation.is_free { begin.into() } else { Step::Start(None).into() })
}

/// Returns the halt for which the pods of a run were stopped before its hook `after`: that they are gone is no failure
/// of the run.
pub(super) fn halted(situation: &Situation<'_>, run: &ActiveRun, outcome: &Outcome) -> Option<Step> {
    run.hooks.as_ref().filter(|hooks| hooks.after.is_some() && hooks.stopped.is_none())?;
    let is_deleted = outcome.report.reason == Some(Reason::JobDeleted);
    match &situation.lost {
        Some(LostClaim { side: Side::Sink, fault }) if is_deleted => Some(Step::Halt(fault.clone())),
        _ => None,
    }
}

fn verdict(step: &Step) -> Option<StoppedRun> {
    let Step::Finish(outcome) = step else { return None };
    let Report { result, reason, message, .. } = outcome.report.clone();
    Some(StoppedRun { result, reason: reason.unwrap_or_default(), message })
}

/// Returns whether a run ends with this step, or waits for an indefinite time.
fn ends_turn(step: &Step) -> bool {
    matches!(
        step,
        Step::Finish(_)
            | Step::Postpone(..)
            | Step::Halt(_)
            | Step::Block(_)
            | Step::Wait(_)
            | Step::Claim(_)
            | Step::Begin(_)
            | Step::Suspend
    )
}
