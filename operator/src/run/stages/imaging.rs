//! The stage Finishing: the storage takes a VolumeSnapshot of the copy before a run that succeeded ends. Pure.

use contract::{ExitCode, Reason, RunResult};

use super::{
    capturing::{CAPTURE_PERIOD, complaint_behind, is_late},
    situation::{Situation, after},
    step::{Decision, Step, StorageStep},
};
use crate::{
    api::{ActiveRun, Capture},
    human,
    names::{self, TryNames},
    run::outcome::Outcome,
    snapshots::source_capture::Captured,
};

/// Inserts the VolumeSnapshot of the destination before the end of a run that succeeded, so that no other run writes to
/// the destination before it is taken.
pub(super) fn before_end(
    situation: &Situation<'_>,
    run: &ActiveRun,
    Decision { step, again }: Decision,
) -> Decision {
    let timeout = situation.demand.as_ref().ok().and_then(|demand| demand.image_timeout);
    let (Step::Finish(outcome), Some(timeout)) = (&step, timeout) else { return step.again(again) };
    if outcome.report.result != RunResult::Succeeded || !run.is_plain() {
        return step.again(again);
    }
    // Others may write statuses, so only a name of this job's is believed.
    let own = |image: &&Capture| names::is_image_of(&image.name, &situation.job.name, &situation.job.uid);
    let Some(image) = run.image.as_ref().filter(own) else {
        let names = TryNames::new(&situation.job.name, &situation.job.uid, run.number, run.past_tries());
        return Step::Image(StorageStep::Begin(names.image())).into();
    };
    match &situation.facts.imaged {
        Captured::Taken(_) => step.again(again),
        Captured::Impossible(fault) => Step::Finish(without(outcome, &fault.message)).again(again),
        _ if is_late(image, timeout, situation.now) => {
            let (waited, why) = (human::duration(timeout), complaint_behind(&situation.facts.imaged));
            let why =
                format!("It was not taken within {waited} (spec.destination.volumeSnapshots.timeout).{why}");
            Step::Finish(without(outcome, &why)).again(again)
        }
        imaged => {
            let complaint = imaged.complaint().cloned();
            Step::Image(StorageStep::Wait(complaint)).again(after(situation, CAPTURE_PERIOD))
        }
    }
}

/// Returns the outcome of a run whose files are in step, and whose VolumeSnapshot was not taken.
fn without(outcome: &Outcome, why: &str) -> Outcome {
    let mut outcome = outcome.clone();
    outcome.report.result = RunResult::PartiallyFailed;
    outcome.report.reason = Some(Reason::VolumeSnapshotFailed);
    outcome.report.message = format!("The files are in step, and there is no VolumeSnapshot of them. {why}");
    (outcome.may_retry, outcome.exit) = (false, ExitCode::Partial);
    outcome
}
