//! Decides when a run whose pods do not start gives its place to others. Pure.

use std::time::Duration;

use jiff::SignedDuration;

use super::{
    situation::{Situation, after},
    step::{Decision, Step},
};
use crate::{
    api::ActiveRun,
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

/// Returns the decision, or in place of one that waits for pods, that the run gives its place up. It is made anew when
/// it has one again, and ends once it has not started for as long as it may take.
pub(super) fn instead(
    situation: &Situation<'_>,
    run: &ActiveRun,
    pairs: &[Pair],
    decision: Decision,
) -> Decision {
    let (Step::Start(Some(fault)) | Step::Dismiss(_, fault)) = &decision.step else { return decision };
    let tried = run.try_time.as_ref().map_or(situation.now, |time| time.0);
    let is_stuck = situation.now.duration_since(tried) >= PATIENCE && run.pods_ready_time.is_none();
    let is_at_work = pairs.iter().any(|pair| {
        pair.iter().all(|end| *end == EndState::Running)
            || pair.iter().any(|end| matches!(end, EndState::Ended(_)))
    });
    if !is_stuck || is_at_work || !situation.keeps_others_waiting || run.past_tries() >= MAX_PAST_TRIES {
        return decision;
    }
    let timeout = situation.demand.as_ref().map_or(Duration::ZERO, |demand| demand.timeout);
    let since = run.busy_since.as_ref().map_or(tried, |since| since.0);
    if since.checked_add(timeout).is_ok_and(|limit| situation.now >= limit) {
        let timed_out = outcome::timed_out(timeout, &format!(" {}", fault.message));
        return Step::Finish(Outcome::stopped(timed_out)).into();
    }
    let at = after(situation, retry::wait(run.postponed.saturating_add(1))).unwrap_or(situation.now);
    Step::Postpone(Outcome::stopped(fault.clone()), at).again(Some(at))
}
