//! Sets the conditions about the copy: `Synced`, `Incomplete`, and `OwnersNotKept`. Pure.

use contract::{Reason, RunResult, human::plural};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{readiness, text_bounds::MAX_MESSAGE_BYTES};
use crate::{
    api::{
        Run, RunCause, SyncJobStatus,
        conditions::{self, Cause},
    },
    fault::Fault,
    human, names,
};

/// The number of left-out entries that a condition names.
const NAMED: usize = 3;

/// Sets `Synced`. While what the present spec asked for is outstanding (`settles` is false), the condition is about the
/// generation before, so that `kubectl wait` goes on waiting. `is_gone` tells that the destination's claim was lost or
/// made anew since the last success.
pub fn set_synced(status: &mut SyncJobStatus, settles: bool, is_gone: bool, generation: i64, now: Timestamp) {
    let Judged { is_synced, why } = judged(status, is_gone);
    let known = conditions::find(&status.conditions, conditions::SYNCED);
    let known = known.and_then(|known| known.observed_generation).filter(|_| !settles);
    let generation = known.or(status.observed_generation).unwrap_or(generation);
    conditions::set(&mut status.conditions, conditions::SYNCED, is_synced, why.cause(generation), now);
}

/// Whether the copy is in step, and why.
struct Judged {
    is_synced: bool,
    why: Fault,
}

impl Judged {
    fn no(reason: Reason, message: impl Into<String>) -> Self {
        Self { is_synced: false, why: Fault::new(reason, message) }
    }
}

fn judged(status: &SyncJobStatus, is_gone: bool) -> Judged {
    let restore = status.active_run.as_ref().filter(|run| run.restore.is_some()).map(|run| &run.id);
    let last = status.last_run.as_ref();
    let restored = last.filter(|run| run.cause == Some(RunCause::Restore)).map(|run| &run.id);
    if let Some(id) = restore.or(restored) {
        let message = format!(
            "Run {id} brings the destination back to a snapshot, and no run that copies the source has followed."
        );
        return Judged::no(Reason::RestoredInPlace, message);
    }
    let Some(run) = last else {
        return Judged::no(Reason::NoCopyYet, "No run has made a copy yet.");
    };
    if is_gone {
        let message = "The destination's claim was lost or made anew since the last success.";
        return Judged::no(Reason::CopyGone, message);
    }
    if is_copied(run) {
        let at = run.completion_time.as_ref().map(|at| format!(" at {}", human::seconds(at.0)));
        let message = format!("Run {} made the copy{}.", run.id, at.unwrap_or_default());
        return Judged { is_synced: true, why: Fault::new(Reason::Succeeded, message) };
    }
    let success = status.last_success_time.as_ref().map(|at| human::seconds(at.0));
    let before = success
        .map_or_else(|| "No run has succeeded yet.".into(), |at| format!("The last success was at {at}."));
    Judged::no(readiness::standing_reason(run), format!("{} {before}", readiness::standing_message(run)))
}

/// Returns whether a run made the copy, even if it found damage in old snapshots.
pub(crate) fn is_copied(run: &Run) -> bool {
    run.result == RunResult::Succeeded || run.reason == Some(Reason::SnapshotsDamaged)
}

/// Sets or removes the condition about the entries that a completed run left out.
pub(crate) fn report_left_out(conditions: &mut Vec<Condition>, run: &Run, now: Timestamp) {
    let count = run.work.files_failed;
    if count == 0 {
        return conditions::remove(conditions, conditions::INCOMPLETE);
    }
    let named = run.failures.iter().take(NAMED);
    let mut named: Vec<String> =
        named.map(|it| format!("{} ({}: {})", it.path, it.operation, it.error)).collect();
    if count > named.len() as u64 {
        named.push("…".into());
    }
    let entries = plural(count, "entry", "entries");
    let message =
        format!("Run {} left out {entries}; missing or old in the copy: {}", run.id, named.join(", "));
    let message = human::clipped(&message, MAX_MESSAGE_BYTES);
    let cause = Cause { reason: &Reason::FilesLeftOut, message: &message, generation: run.generation };
    conditions::set(conditions, conditions::INCOMPLETE, true, cause, now);
}

/// Sets or removes the condition about the owners that a completed run could not keep.
pub(crate) fn report_owners(conditions: &mut Vec<Condition>, run: &Run, now: Timestamp) {
    let count = run.work.owners_not_kept;
    if count == 0 {
        return conditions::remove(conditions, conditions::OWNERS_NOT_KEPT);
    }
    let entries = plural(count, "entry does", "entries do");
    let message = format!(
        "At least {entries} not have the owner that the source says: to keep owners, annotate the destination's namespace with \
         `{}: \"true\"`; to do without, set spec.files.preserve.ownership to Never.",
        names::ANNOTATION_PRIVILEGED
    );
    let cause = Cause { reason: &Reason::OtherOwners, message: &message, generation: run.generation };
    conditions::set(conditions, conditions::OWNERS_NOT_KEPT, true, cause, now);
}

#[cfg(test)]
mod tests;
