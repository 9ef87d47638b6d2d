//! The stage Starting, in which the pods of a try exist, and not all of them run: decides when the end that runs gives
//! its node up, because its partner cannot start. Pure.

use jiff::{SignedDuration, Timestamp};

use super::step::Step;
use crate::{
    fault::Fault,
    human,
    pods::pod_state::EndState,
    run::shard_pairs::{self, Pair},
};

/// How long an end waits on its node for a partner that cannot start.
const PARTNER_PATIENCE: SignedDuration = SignedDuration::from_secs(30);

/// Returns the next step while an end cannot start. That end is left to Kubernetes; its partner does not wait for it on
/// a node.
pub(super) fn next(pairs: &[Pair], fault: Option<Fault>, try_time: Timestamp, now: Timestamp) -> Step {
    let (Some(side), Some(fault)) = (shard_pairs::partner_of_stuck(pairs), fault.clone()) else {
        return Step::Start(fault);
    };
    let is_there = pairs.iter().any(|pair| *pair.of(side) != EndState::Absent);
    if is_there && now.duration_since(try_time) < PARTNER_PATIENCE {
        return Step::Start(Some(fault));
    }
    let other = shard_pairs::other(side);
    let message = format!(
        "{} Until the {other} runs there is no {side} pod, which would hold room on its node for nothing.",
        human::sentence(&fault.message)
    );
    let fault = Fault::new(fault.reason, message);
    if is_there { Step::Dismiss(side, fault) } else { Step::Start(Some(fault)) }
}
