//! The stage Preparing: a run has its turn. Objects of earlier tries are removed and its SyncRun is created before its
//! pods. Pure.

use contract::Reason;
use jiff::SignedDuration;

use super::{
    queued,
    situation::{SLOW_PERIOD, Situation, WARNINGS_PERIOD, after, is_behind, of_claims, wait},
    step::{Decision, Step},
};
use crate::{
    api::ActiveRun, fault::Fault, run::record::Record, snapshots::source_capture::Captured,
    volumes::claims::Blocked,
};

/// How soon to check again for a SyncRun that is being deleted.
const RECORD_PERIOD: SignedDuration = SignedDuration::from_secs(1);

pub(super) fn next(situation: &Situation<'_>, run: &ActiveRun) -> Decision {
    // Another operator may be making the pods, so the start stays.
    let is_launched = run.launched && situation.facts.record == Record::Kept;
    match &situation.demand {
        Err(fault) if is_launched && queued::is_of_namespace(fault) => {
            return Step::Start(Some(fault.clone())).again(after(situation, SLOW_PERIOD));
        }
        Err(fault) => return queued::without_demand(situation, fault),
        Ok(_) => {}
    }
    if let Some(leftovers) = &situation.leftovers {
        let fault = Fault::new(Reason::Preparing, leftovers);
        return Step::Start(Some(fault)).again(after(situation, WARNINGS_PERIOD));
    }
    if is_behind(situation, run) {
        return queued::renew(situation, run);
    }
    match of_claims(situation) {
        Some(Step::Block(Blocked::Waiting(fault) | Blocked::Stalled(fault))) if is_launched => {
            return Step::Start(Some(fault)).again(after(situation, SLOW_PERIOD));
        }
        Some(step) => return step.again(after(situation, SLOW_PERIOD)),
        None if is_launched => return Step::Launch.again(after(situation, WARNINGS_PERIOD)),
        None => {}
    }
    if let Captured::Impossible(fault) = &situation.facts.captured {
        return Step::Block(Blocked::Stalled(fault.clone())).again(after(situation, SLOW_PERIOD));
    }
    // Of runs that were started at the same time, some give way before any of their objects are created.
    if let Some(waiting) = wait(situation, &situation.turn) {
        return waiting;
    }
    match &situation.facts.record {
        // A missing SyncRun is created by the launch, before all other objects.
        Record::Kept | Record::Missing | Record::Asked => {
            Step::Launch.again(after(situation, WARNINGS_PERIOD))
        }
        Record::Taken(fault) => Step::Start(Some(fault.clone())).again(after(situation, WARNINGS_PERIOD)),
        _ => Step::Linger.again(after(situation, RECORD_PERIOD)),
    }
}
