//! The stage Capturing: the storage captures the source at one instant, between the hook `before` and the pods. Pure.

use contract::Reason;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{
    situation::{Situation, after},
    step::{Decision, HookStep, Step, StorageStep},
};
use crate::{
    api::{ActiveRun, Capture},
    fault::Fault,
    hooks::hook_state::{self, Point},
    human,
    names::{self, TryNames},
    run::outcome::Outcome,
    snapshots::source_capture::Captured,
};

/// How soon to look again for what no watch brings.
pub(super) const CAPTURE_PERIOD: SignedDuration = SignedDuration::from_secs(1);

/// Inserts the capture of the source before the pods of a run, and the hook `after` right behind it.
pub(super) fn before_launch(
    situation: &Situation<'_>,
    run: &ActiveRun,
    Decision { step, again }: Decision,
) -> Decision {
    let timeout = situation.demand.as_ref().ok().and_then(|demand| demand.capture_timeout);
    let (Step::Launch, Some(timeout)) = (&step, timeout) else { return step.again(again) };
    // Others may write statuses, so only a name of this job's is believed.
    let own =
        |capture: &&Capture| names::is_capture_of(&capture.name, &situation.job.name, &situation.job.uid);
    let Some(capture) = run.capture.as_ref().filter(own) else {
        let names = TryNames::new(&situation.job.name, &situation.job.uid, run.number, run.past_tries());
        return Step::Capture(StorageStep::Begin(names.capture())).into();
    };
    if capture.taken_time.is_some() {
        let owes_after = situation.hooks.is_some_and(|hooks| hook_state::owes_after(run, hooks));
        let release = Step::Hook(HookStep::begin(Point::After));
        return if owes_after { release.into() } else { step.again(again) };
    }
    match &situation.facts.captured {
        Captured::Taken(_) => Step::Capture(StorageStep::End).into(),
        Captured::Lazy => step.again(again),
        _ if is_late(capture, timeout, situation.now) => late(situation, run, timeout).into(),
        captured => {
            let complaint = captured.complaint().cloned();
            Step::Capture(StorageStep::Wait(complaint)).again(after(situation, CAPTURE_PERIOD))
        }
    }
}

/// Returns whether the storage has had its time.
pub(super) fn is_late(capture: &Capture, timeout: Duration, now: Timestamp) -> bool {
    let began = capture.begin_time.as_ref().map_or(now, |time| time.0);
    began.checked_add(timeout).is_ok_and(|limit| now >= limit)
}

/// Returns what the storage complains of, behind another sentence; empty if it does not.
pub(super) fn complaint_behind(captured: &Captured) -> String {
    captured.complaint().map(|fault| format!(" {}", human::sentence(&fault.message))).unwrap_or_default()
}

/// Returns the step of a run whose source could not be captured in time: its hook `after`, or its end.
fn late(situation: &Situation<'_>, run: &ActiveRun, timeout: Duration) -> Step {
    let (waited, why) = (human::duration(timeout), complaint_behind(&situation.facts.captured));
    let message =
        format!("The source was not captured within {waited} (spec.source.pointInTime.timeout).{why}");
    let outcome = Outcome::stopped(Fault::new(Reason::CaptureFailed, message));
    super::hook_stage::around(situation, run, false, Step::Finish(outcome).into()).step
}
