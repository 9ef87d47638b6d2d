//! Decides when a run whose pods do not start gives its place to others. Pure.

use jiff::SignedDuration;

use super::{
    situation::{Situation, after},
    step::{Decision, Step},
};
use crate::{
    api::ActiveRun,
    fault::Fault,
    names::MAX_PAST_TRIES,
    pods::pod_state::EndState,
    run::{
        outcome::{self, Outcome},
        retry,
        shard_pairs::Pair,
    },
};

/// How long a run keeps its place while its pods do not start: longer than an autoscaler takes for a node, and than the
/// pull of an image.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// Returns that a run gives its place up, because for this reason its pods do not start. They are made anew when it has
/// a place again, and it ends once they have not started for as long as it may take. `None` while it keeps its place.
pub(super) fn next(
    situation: &Situation<'_>,
    run: &ActiveRun,
    pairs: &[Pair],
    why: Option<&Fault>,
) -> Option<Decision> {
    let tried = run.try_time.as_ref().map_or(situation.now, |time| time.0);
    let is_stuck = situation.now.duration_since(tried) >= PATIENCE && run.pods_ready_time.is_none();
    let is_at_work = pairs.iter().any(|pair| {
        pair.iter().all(|end| *end == EndState::Running)
            || pair.iter().any(|end| matches!(end, EndState::Ended(_)))
    });
    let gives = is_stuck && !is_at_work && situation.keeps_others_waiting;
    let fault = why.filter(|_| gives && run.past_tries() < MAX_PAST_TRIES)?;
    // Of a spec that cannot be read any more nobody knows how long the run may take.
    let timeout = situation.demand.as_ref().ok()?.timeout;
    let since = run.busy_since.as_ref().map_or(tried, |since| since.0);
    if since.checked_add(timeout).is_ok_and(|limit| situation.now >= limit) {
        let timed_out = outcome::timed_out(timeout, &format!(" {}", fault.message));
        return Some(Step::Finish(Outcome::stopped(timed_out)).into());
    }
    let at = after(situation, retry::wait(run.postponed.saturating_add(1))).unwrap_or(situation.now);
    Some(Step::Postpone(Outcome::stopped(fault.clone()), at).again(Some(at)))
}

/// Returns the decision of a run without pods, unless it gives its place up.
pub(super) fn or(situation: &Situation<'_>, run: &ActiveRun, pairs: &[Pair], decision: Decision) -> Decision {
    let Step::Start(why) = &decision.step else { return decision };
    next(situation, run, pairs, why.as_ref()).unwrap_or(decision)
}
