//! The stage Running: tells what an endpoint lets a run wait for, and that the ends do not meet. Pure.

use contract::{Phase, Reason};
use jiff::{SignedDuration, Timestamp};

use super::{
    situation::{Situation, after},
    step::{Decision, Step},
};
use crate::{
    api::ActiveRun, fault::Fault, human, names::LABEL_SIDE, pods::job::PORT, run::shard_pairs::Stand,
    status::readiness,
};

/// The longest answer of an endpoint that a message repeats, in bytes.
const MAX_ANSWER_BYTES: usize = 512;

/// How long both ends usually run at most until they are connected.
const USUAL_MEETING: SignedDuration = SignedDuration::from_mins(1);

/// The same for a run that first lists what the storage says has changed, which may take ten minutes.
const USUAL_LISTING: SignedDuration = SignedDuration::from_mins(11);

/// The time after which it is looked again whether they are: that alone brings no event.
const MEETING_PERIOD: SignedDuration = SignedDuration::from_secs(10);

/// Returns the next step while all ends run.
pub(super) fn next(situation: &Situation<'_>, run: &ActiveRun) -> Decision {
    if let Some(fault) = waits_at_endpoint(situation, run) {
        return Step::Start(Some(fault)).into();
    }
    if have_met(situation) {
        return Step::Run.into();
    }
    match meeting_is_late_at(situation, run) {
        Some(late) if late <= situation.now => {
            let fault = Fault::new(Reason::PeerNotMet, not_met());
            Step::Start(Some(fault)).again(after(situation, MEETING_PERIOD))
        }
        late => Step::Run.again(late),
    }
}

fn meeting_is_late_at(situation: &Situation<'_>, run: &ActiveRun) -> Option<Timestamp> {
    // Its source makes a tree first, of any size.
    if run.benchmark.is_some() {
        return None;
    }
    let lists_changes = run.capture.is_some() && situation.status.change_base.is_some();
    let usual = if lists_changes { USUAL_LISTING } else { USUAL_MEETING };
    // The pods wait for the hook.
    let hook = run.hooks.as_ref().and_then(|hooks| hooks.before.as_ref()?.completion_time.as_ref());
    let since = hook.map(|time| time.0).max(run.pods_ready_time.as_ref().map(|time| time.0));
    since?.checked_add(usual).ok()
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
