//! Decides how long a run waits for an endpoint to accept its key. Pure.

use super::{
    situation::{Situation, after},
    step::{Decision, Step},
};
use crate::{
    api::ActiveRun,
    run::{outcome::Outcome, retry},
};

/// How often a run looks whether an endpoint accepts its key: about a month long.
const MOST_LOOKS: i32 = 8_640;

/// Returns whether a try ended because the endpoint does not list the key, and the run goes on asking. The other side
/// may list it at any time, and a run that ended would not notice.
pub(super) fn is_awaited(run: &ActiveRun, outcome: &Outcome) -> bool {
    outcome.is_stranger() && run.postponed < MOST_LOOKS
}

/// Returns the step until the next look, which costs no retry.
pub(super) fn next(situation: &Situation<'_>, run: &ActiveRun, outcome: Outcome) -> Decision {
    let at = after(situation, retry::wait(run.postponed.saturating_add(1)));
    Step::Postpone(outcome, at.unwrap_or(situation.now)).again(at)
}
