//! Decides the next step of a job: the state machine of a run. Pure: all knowledge comes in as arguments, including the
//! time.
//!
//! `operator/doc/design.md` draws it. Each decision is written to the status before anything is created for it, so that
//! an operator that is killed at any point decides the same again.

use std::time::Duration;

use contract::Side;

pub use super::due_run::next_run;
use super::{
    capturing, dismiss_partner, due_run, finishing, give_place, hook_stage, imaging, preparing, queued,
    running,
    situation::{SLOW_PERIOD, Situation, USUAL_START, WARNINGS_PERIOD, after, deadline, is_behind},
    step::{Decision, Step},
};
use crate::{
    api::ActiveRun,
    run::{
        outcome::{self, Outcome},
        record::Record,
        retry,
        shard_pairs::{self, Pair, Stand},
    },
    volumes::claims::{Blocked, LostClaim},
};

/// Returns the next step of a job, and when to decide again if nothing happens until then.
pub fn next(situation: &Situation<'_>) -> Decision {
    match (&situation.status.active_run, &situation.demand) {
        (Some(run), _) => active(situation, run),
        (None, Err(fault)) => {
            Step::Block(Blocked::Stalled(fault.clone())).again(after(situation, SLOW_PERIOD))
        }
        (None, Ok(demand)) => due_run::next(situation, demand),
    }
}

/// Returns the step after one that the API server has refused: an owed hook `after` comes before the end of the run.
pub fn refused(situation: &Situation<'_>, step: Step) -> Step {
    match &situation.status.active_run {
        Some(run) => hook_stage::around(situation, run, false, step.into()).step,
        None => step,
    }
}

fn active(situation: &Situation<'_>, run: &ActiveRun) -> Decision {
    if let Some(waiting) = hook_stage::under_way(situation, run) {
        return waiting;
    }
    let pairs: Vec<Pair> = situation.pairs.iter().map(|pair| pair.settled(run)).collect();
    let stand = shard_pairs::stand(&pairs, situation.now);
    let is_over = matches!(stand, Stand::Over(_));
    let decision = hook_stage::around(situation, run, is_over, of_run(situation, run, &pairs, stand));
    let decision = capturing::before_launch(situation, run, decision);
    imaging::before_end(situation, run, decision)
}

/// Returns the next step of a run, apart from its hooks.
fn of_run(situation: &Situation<'_>, run: &ActiveRun, pairs: &[Pair], stand: Stand) -> Decision {
    if situation.facts.record == Record::Deleted {
        return Step::Finish(Outcome::canceled(finishing::deleted(run))).into();
    }
    if situation.is_canceled {
        return Step::Finish(Outcome::canceled(finishing::canceled(run))).into();
    }
    if let Some(fault) = &situation.refused {
        return Step::Finish(Outcome::stopped(fault.clone())).into();
    }
    if let Some(over) = hook_stage::settled(situation, run) {
        return over;
    }
    if !run.is_started() {
        return queued::next(situation, run);
    }
    // Of a try that lost its pods, that is the cause.
    let is_done = matches!(&stand, Stand::Over(outcome) if !outcome.may_retry);
    if let Some(fault) = situation.facts.withdrawn.as_ref().filter(|_| !is_done) {
        return Step::Finish(Outcome::stopped(fault.clone())).into();
    }
    let due_run::Replacement { cause, due } = due_run::replacing(situation, run);
    if let Some(cause) = cause.filter(|_| !matches!(stand, Stand::Over(_))) {
        return Step::Finish(Outcome::canceled(finishing::replaced(run, cause))).into();
    }
    let deadline = deadline(situation, run);
    let try_time = run.try_time.as_ref().map_or(situation.now, |time| time.0);
    let Decision { step, again } = match stand {
        Stand::Over(outcome) => return finishing::next(situation, run, *outcome),
        stand if situation.now >= deadline => {
            let timeout = situation.demand.as_ref().map_or(Duration::ZERO, |demand| demand.timeout);
            let obstacle = running::obstacle(situation, &stand);
            return Step::Finish(Outcome::stopped(outcome::timed_out(timeout, &obstacle))).into();
        }
        // Files written to a claim that is being deleted are lost, and it is not deleted until no pod uses it.
        _ if let Some(LostClaim { side: Side::Sink, fault }) = &situation.lost => {
            return Step::Halt(fault.clone()).into();
        }
        // A later one than any pause is of a clock that was set back since.
        _ if situation.now < try_time && try_time.duration_since(situation.now) <= retry::LONGEST_WAIT => {
            return Step::Await.again(Some(try_time));
        }
        Stand::Ending(until) => return Step::Linger.again(Some(until)),
        // Before anything is created next to terminating objects, which could take the keys of a launch with them.
        Stand::Stopping => Step::Linger.into(),
        Stand::Absent => return give_place::or(situation, run, pairs, preparing::next(situation, run)),
        Stand::Running if let Some(begin) = hook_stage::of_waiting_pods(situation, run) => begin,
        Stand::Running => running::next(situation, run),
        Stand::Starting(_) if is_behind(situation, run) => return queued::renew(situation, run),
        Stand::Starting(why) if let Some(gives) = give_place::next(situation, run, pairs, why.as_ref()) => {
            return gives;
        }
        Stand::Starting(fault) => {
            let late = try_time.checked_add(USUAL_START).ok().filter(|late| *late > situation.now);
            let again = late.or_else(|| after(situation, WARNINGS_PERIOD));
            dismiss_partner::next(pairs, fault, try_time, situation.now).again(again)
        }
    };
    step.again([again, due, situation.overdue, Some(deadline)].into_iter().flatten().min())
}

#[cfg(test)]
mod tests;
