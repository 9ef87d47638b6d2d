//! Finishing: a try is over, and either is followed by another or ends the run. Pure.

use jiff::Timestamp;

use super::situation::{Situation, Step, deadline};
use crate::{
    api::ActiveRun,
    fault::Fault,
    model::{outcome::Outcome, retry},
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

pub(super) fn deleted(run: &ActiveRun) -> Fault {
    let message = format!(
        "The SyncRun {} was deleted, which ends the run. Change spec.trigger, or create a SyncRun, to run again.",
        run.id
    );
    Fault::new("RunDeleted", message)
}
