//! The stage Finishing: a try has ended, and either is followed by another or ends the run. Pure.

use contract::Reason;

use super::{
    hook_stage, key_not_accepted,
    situation::{Situation, deadline},
    step::{Decision, Step},
    volume_in_use,
};
use crate::{
    api::{ActiveRun, RunCause},
    fault::Fault,
    run::{outcome::Outcome, retry},
};

pub(super) fn next(situation: &Situation<'_>, run: &ActiveRun, mut outcome: Outcome) -> Decision {
    if let Some(halt) = hook_stage::halted(situation, run, &outcome) {
        return halt.into();
    }
    let endpoint = run.folders().find(|folder| folder.address.is_some() && !folder.is_object_storage());
    if let Some(endpoint) = endpoint {
        outcome = outcome.with_endpoint(endpoint);
    }
    if outcome.found_in_use() {
        return volume_in_use::next(situation, run, outcome);
    }
    if key_not_accepted::is_awaited(run, &outcome) {
        return key_not_accepted::next(situation, run, outcome);
    }
    let limit = situation.demand.as_ref().map_or(0, |demand| demand.retries);
    let next = retry::next(run.retries, limit, deadline(situation, run), situation.now);
    match next.filter(|_| outcome.may_retry) {
        Some(at) => Step::Retry(outcome, at).again(Some(at)),
        None => Step::Finish(outcome).into(),
    }
}

/// Returns the fault of a run that is stopped because the next one falls due.
pub(super) fn replaced(run: &ActiveRun, cause: RunCause) -> Fault {
    let why = match cause {
        RunCause::Restore => {
            let message =
                format!("Run {} was stopped, because a restore was asked for, which goes first.", run.id);
            return Fault::new(Reason::Replaced, message);
        }
        RunCause::Trigger => "spec.trigger changed",
        RunCause::Schedule => "the next one fell due by the schedule",
        _ => "the spec changed",
    };
    let message = format!(
        "Run {} was stopped, because {why} and spec.concurrencyPolicy is Replace. The next run follows.",
        run.id
    );
    Fault::new(Reason::Replaced, message)
}

/// Returns the fault of a run that a person canceled.
pub(super) fn canceled(run: &ActiveRun) -> Fault {
    let message =
        format!("Run {} was canceled. Change spec.trigger, or create a SyncRun, to run again.", run.id);
    Fault::new(Reason::Canceled, message)
}

pub(super) fn deleted(run: &ActiveRun) -> Fault {
    let message = format!(
        "The SyncRun {} was deleted, which ends the run. Change spec.trigger, or create a SyncRun, to run again.",
        run.id
    );
    Fault::new(Reason::RunDeleted, message)
}
