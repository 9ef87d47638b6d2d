//! The stage Finishing: a try has ended, and either is followed by another or ends the run. Pure.

use std::time::Duration;

use contract::ExitCode;
use jiff::Timestamp;

use super::situation::{Situation, Step, deadline, moment};
use crate::{
    api::{ActiveRun, RunCause, conditions::reason},
    fault::Fault,
    model::{
        outcome::{self, Outcome},
        pairs,
        record::Record,
        retry,
    },
};

pub(super) fn next(
    situation: &Situation<'_>,
    run: &ActiveRun,
    outcome: Outcome,
) -> (Step, Option<Timestamp>) {
    if outcome.found_in_use() {
        let at =
            situation.now.checked_add(retry::wait(run.postponed.saturating_add(1))).unwrap_or(Timestamp::MAX);
        return (Step::Postpone(outcome, at), Some(at));
    }
    let limit = situation.demand.as_ref().map_or(0, |demand| demand.retries);
    let next = retry::next(run.retries, limit, deadline(situation, run), situation.now);
    match next.filter(|_| outcome.may_retry) {
        Some(at) => (Step::Retry(outcome, at), Some(at)),
        None => (Step::Finish(outcome), None),
    }
}

/// Decides when to report a run whose ends have all reported success: at once, or, while many runs go on, after the
/// pods have had a moment to end, so that one write reports both.
pub(super) fn told(
    situation: &Situation<'_>,
    outcome: Outcome,
    deadline: Timestamp,
) -> (Step, Option<Timestamp>) {
    let told = outcome.report.completion_time.parse().ok();
    match told.and_then(|told| moment(situation, told)).filter(|_| situation.now < deadline) {
        Some(until) => (Step::Linger, Some(until.min(deadline))),
        None => (Step::Report(outcome), None),
    }
}

/// Waits until the kubelet confirms the end of all pods of a run whose ends have reported success. If the kubelet
/// contradicts the reports, the try is judged as if they did not exist.
pub(super) fn confirm(situation: &Situation<'_>, run: &ActiveRun) -> (Step, Option<Timestamp>) {
    if situation.record == Record::Deleted {
        return (Step::Confirm, None);
    }
    let deadline = deadline(situation, run);
    match pairs::confirmed(&situation.pairs) {
        Some(outcome) if outcome.exit == ExitCode::Done => (Step::Confirm, None),
        Some(outcome) => next(situation, run, outcome),
        None if situation.now < deadline => (Step::Linger, Some(deadline)),
        None => {
            let timeout = situation.demand.as_ref().map_or(Duration::ZERO, |demand| demand.timeout);
            let fault = outcome::timed_out(timeout, " All ends reported success, and a pod has not ended.");
            (Step::Finish(Outcome::stopped(fault)), None)
        }
    }
}

/// Returns the fault of a run that is stopped because the next one falls due.
pub(super) fn replaced(run: &ActiveRun, cause: RunCause) -> Fault {
    let why = match cause {
        RunCause::Trigger => "spec.trigger changed",
        RunCause::Schedule => "the next one fell due by the schedule",
        _ => "the spec changed",
    };
    let message = format!(
        "Run {} was stopped, because {why} and spec.concurrencyPolicy is Replace. The next run follows.",
        run.id
    );
    Fault::new(reason::REPLACED, message)
}

pub(super) fn deleted(run: &ActiveRun) -> Fault {
    let message = format!(
        "The SyncRun {} was deleted, which ends the run. Change spec.trigger, or create a SyncRun, to run again.",
        run.id
    );
    Fault::new("RunDeleted", message)
}
