//! The stage Finishing: the storage takes a VolumeSnapshot of the copy before a run that succeeded ends. Pure.

use std::time::Duration;

use contract::{ExitCode, Reason, RunResult};

use super::{
    capturing::{CAPTURE_PERIOD, is_late},
    situation::{Situation, after},
    step::{Decision, Step, StorageStep},
};
use crate::{
    api::{ActiveRun, Capture},
    fault::Fault,
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
    let is_plain = run.restore.is_none() && run.benchmark.is_none();
    if outcome.report.result != RunResult::Succeeded || !is_plain {
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
            Step::Finish(without(outcome, &late(situation, timeout))).again(again)
        }
        Captured::Taking(fault) => {
            Step::Image(StorageStep::Wait(fault.clone())).again(after(situation, CAPTURE_PERIOD))
        }
        _ => Step::Image(StorageStep::Wait(None)).again(after(situation, CAPTURE_PERIOD)),
    }
}

fn late(situation: &Situation<'_>, timeout: Duration) -> String {
    let why = match &situation.facts.imaged {
        Captured::Taking(Some(Fault { message, .. })) => format!(" {}", human::sentence(message)),
        _ => String::new(),
    };
    let waited = human::duration(timeout);
    format!("It was not taken within {waited} (spec.destination.volumeSnapshots.timeout).{why}")
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
