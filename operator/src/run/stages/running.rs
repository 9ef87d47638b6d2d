//! The stage Running: decides when to record it, and explains why a run exceeded its timeout. Pure.

use contract::{Phase, Reason};
use jiff::Timestamp;

use super::{
    situation::{Situation, moment},
    step::Step,
};
use crate::{
    api::ActiveRun, fault::Fault, human, names::LABEL_SIDE, pods::job::PORT, run::shard_pairs::Stand,
    status::readiness,
};

/// The longest answer of an endpoint that a message repeats, in bytes.
const MAX_ANSWER_BYTES: usize = 512;

/// Decides when to record that all ends run: at once, or, of many runs, after a moment, because most are over by then.
pub(super) fn next(situation: &Situation<'_>, run: &ActiveRun) -> (Step, Option<Timestamp>) {
    if let Some(fault) = waits_at_endpoint(situation, run) {
        return (Step::Start(Some(fault)), None);
    }
    let is_known = |node: &String| run.nodes.contains(node);
    let may_wait = run.pods_ready_time.is_none() && situation.is_told_by_agents;
    let since = situation.ran_since.filter(|_| may_wait && situation.nodes.iter().all(is_known));
    match since.and_then(|since| moment(situation, since)) {
        Some(until) => (Step::Linger, Some(until)),
        None => (Step::Run, None),
    }
}

/// Returns the fault of a run that an endpoint lets wait for others.
fn waits_at_endpoint(situation: &Situation<'_>, run: &ActiveRun) -> Option<Fault> {
    run.outside()?;
    let told = situation.progress?.waiting.as_deref()?;
    let told = human::clipped(told, MAX_ANSWER_BYTES);
    let message = format!("The endpoint is {told}. Run {} begins when it is its turn.", run.id);
    Some(Fault::new(Reason::WaitingForEndpoint, message))
}

/// Returns a sentence about the obstacle of a run that took too long, with a leading space; empty if none is known.
pub(super) fn obstacle(situation: &Situation<'_>, stand: &Stand) -> String {
    let known = match stand {
        Stand::Starting(Some(fault)) => Some(fault.message.clone()),
        Stand::Absent => {
            let status = || readiness::obstacle(situation.status).map(Into::into);
            situation.leftovers.clone().or_else(status)
        }
        Stand::Running => (!have_met(situation)).then(not_met),
        _ => None,
    };
    known.map(|message| format!(" {message}")).unwrap_or_default()
}

/// Returns whether the ends of the run are known to be connected; a run in one pod needs no connection.
fn have_met(situation: &Situation<'_>) -> bool {
    let is_alone = situation.status.active_run.as_ref().is_some_and(|run| run.only_side().is_some());
    is_alone || situation.progress.is_some_and(|it| it.progress.phase != Phase::Connect)
}

fn not_met() -> String {
    format!(
        "Source and sink run, and have not said that they met: a NetworkPolicy may keep the pods labelled {LABEL_SIDE}=source \
         from port {PORT} (UDP, or TCP) of those labelled {LABEL_SIDE}=sink; config/samples/networkpolicy.yaml is one that lets them."
    )
}
