//! Decides what the failure of a hook means for the result of its run. Pure.

use contract::{ExitCode, Reason, RunResult};

use super::outcome::Outcome;
use crate::{
    api::{ActiveRun, Hook, Hooks, OnHookFailure},
    hooks::hook_state::{self, Point},
    human,
};

/// Returns the outcome of a run with the effects of its hooks' failures.
#[must_use]
pub(super) fn judged(mut outcome: Outcome, run: &ActiveRun, asked: &Hooks) -> Outcome {
    let goes_on =
        |hook: &Option<Hook>| hook.as_ref().is_none_or(|it| it.on_failure == OnHookFailure::Continue);
    if let Some(failure) = hook_state::failure(run, Point::Before).filter(|_| goes_on(&asked.before)) {
        outcome.report.notes.push(failure.into());
    }
    let Some(failure) = hook_state::failure(run, Point::After) else { return outcome };
    if goes_on(&asked.after) {
        outcome.report.notes.push(failure.into());
    } else if outcome.report.result == RunResult::Succeeded {
        outcome.report.result = RunResult::PartiallyFailed;
        outcome.report.reason = Some(Reason::HookFailed);
        outcome.report.message = format!("The files are in step, and {}", lower_first(failure));
        (outcome.may_retry, outcome.exit) = (false, ExitCode::Partial);
    } else {
        let message = human::sentence(&outcome.report.message);
        outcome.report.message = format!("{message} {failure}").trim_start().into();
    }
    outcome
}

fn lower_first(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}
