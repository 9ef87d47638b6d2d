//! Decides how long a run waits for a volume that another writer has in use. Such a wait is no try that failed. Pure.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    situation::Situation,
    step::{Decision, Step},
};
use crate::{
    api::ActiveRun,
    human,
    names::MAX_PAST_TRIES,
    run::{outcome::Outcome, retry},
};

/// Waits for a volume that is in use, for as long as a run may take, and no longer than its tries can be counted.
pub(super) fn next(situation: &Situation<'_>, run: &ActiveRun, mut outcome: Outcome) -> Decision {
    let since = run.busy_since.as_ref().map_or(situation.now, |since| since.0);
    let timeout = situation.demand.as_ref().map_or(Duration::ZERO, |demand| demand.timeout);
    let limit = since.checked_add(timeout).unwrap_or(Timestamp::MAX);
    if situation.now >= limit || run.past_tries() >= MAX_PAST_TRIES {
        let message = human::sentence(&outcome.report.message);
        let waited = human::duration(situation.now.duration_since(since).unsigned_abs().min(timeout));
        outcome.report.message = format!("{message} The run has waited for {waited} (spec.limits.timeout).");
        return Step::Finish(outcome).into();
    }
    let pause = retry::wait(run.postponed.saturating_add(1));
    let at = situation.now.checked_add(pause).unwrap_or(limit).min(limit);
    Step::Postpone(outcome, at).again(Some(at))
}
