//! The stage Queued: a run waits for its turn, without any objects. It starts over with each newer spec. Pure.

use contract::Reason;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::{
    situation::{Demand, SLOW_PERIOD, Situation, Turn, WARNINGS_PERIOD, after, is_bare, of_claims, wait},
    step::{Decision, Step},
};
use crate::{
    api::{ActiveRun, Stage},
    fault::Fault,
    run::{outcome::Outcome, record::Record, retry},
    snapshots::source_capture::Captured,
    volumes::claims::Blocked,
};

/// Returns the step of a run without a turn. Existing objects of the run were created from an older spec, and are
/// removed.
pub(super) fn next(situation: &Situation<'_>, run: &ActiveRun) -> Decision {
    if situation.is_restore_asked_for() {
        return Step::Yield.into();
    }
    let demand = match &situation.demand {
        Ok(demand) => demand,
        Err(fault) => return without_demand(situation, fault),
    };
    if demand.suspend {
        return Step::Suspend.into();
    }
    if !is_bare(situation) || run.generation != situation.job.generation {
        return renew(situation, run);
    }
    // A volume was in use: the run has no place meanwhile. A later time than any pause is of a clock that was set back.
    let is_ahead =
        |at: &Timestamp| situation.now < *at && at.duration_since(situation.now) <= retry::LONGEST_WAIT;
    if let Some(at) = run.again_time.as_ref().map(|at| at.0).filter(is_ahead) {
        return Step::Await.again(Some(at));
    }
    if let Some(step) = of_claims(situation) {
        return step.again(after(situation, SLOW_PERIOD));
    }
    // The status of a run that was started and could not be captured stays as it is.
    if let Captured::Impossible(fault) = &situation.facts.captured {
        return Step::Block(Blocked::Stalled(fault.clone())).again(after(situation, SLOW_PERIOD));
    }
    if run.queue_time.is_none() {
        return Step::Queue.into();
    }
    wait(situation, &situation.turn).unwrap_or_else(|| match situation.turn {
        Turn::Unknown => Step::Linger.again(after(situation, WARNINGS_PERIOD)),
        _ => Step::Admit.into(),
    })
}

/// Returns the step of a run that cannot be run as the spec or the namespace is now. One that the namespace's
/// annotations forbid keeps its name, and goes on once they, or the spec, are corrected.
pub(super) fn without_demand(situation: &Situation<'_>, fault: &Fault) -> Decision {
    if !is_of_namespace(fault) {
        return Step::Finish(Outcome::stopped(fault.clone())).into();
    }
    if !is_bare(situation) {
        return Step::Withdraw.again(after(situation, WARNINGS_PERIOD));
    }
    Step::Block(Blocked::Stalled(fault.clone())).again(after(situation, SLOW_PERIOD))
}

/// Returns whether the namespace's annotations may be what keeps a run from going on.
pub(super) fn is_of_namespace(fault: &Fault) -> bool {
    matches!(fault.reason, Reason::InvalidAnnotation | Reason::RootNotAllowed)
}

/// Starts the same run over from the newest spec and trigger, since nothing was done for the older ones. Objects of the
/// older spec are removed first, since the newer one may name other claims.
pub(super) fn renew(situation: &Situation<'_>, run: &ActiveRun) -> Decision {
    if let Ok(demand) = &situation.demand
        && run.generation != situation.job.generation
        && is_bare(situation)
    {
        // Before the run is compared with others on that claim, which would tell of them.
        if let Some(fault) = &situation.not_granted {
            return Step::Block(Blocked::Stalled(fault.clone())).again(after(situation, SLOW_PERIOD));
        }
        let (generation, trigger) = (situation.job.generation, demand.trigger.clone());
        let spec_hash = Some(situation.job.spec_hash.clone());
        // The UID of a SyncRun that a person created is known from the start.
        let uid = run.uid.clone().filter(|_| situation.facts.record == Record::Asked);
        let run = ActiveRun { generation, uid, spec_hash, trigger, ..run.clone() };
        return Step::Begin(Box::new(demanded(situation, demand, run))).into();
    }
    Step::Withdraw.again(after(situation, WARNINGS_PERIOD))
}

/// Returns the run as the spec demands it, in the stage Queued.
pub(super) fn demanded(situation: &Situation<'_>, demand: &Demand, run: ActiveRun) -> ActiveRun {
    ActiveRun {
        stage: Stage::Queued,
        shards: shards(demand),
        local: demand.is_local,
        source: Some(demand.source.clone()),
        destination: Some(demand.destination.clone()),
        queue_time: Some(MicroTime(situation.now)),
        priority: demand.priority,
        queue_round: situation.facts.round,
        nodes: situation.facts.nodes.clone(),
        start_time: None,
        try_time: None,
        again_time: None,
        hooks: None,
        capture: None,
        image: None,
        ..run
    }
}

/// Converts the number of shards to the type of the status.
fn shards(demand: &Demand) -> i32 {
    i32::try_from(demand.shards).unwrap_or(1)
}
