//! Sets `Ready`, `Reconciling` and `Stalled`, by which programs know whether a job needs a person, and the phase. Pure.
//!
//! A run that a person or the spec asked for is `Reconciling`. A run of the schedule leaves the conditions as the last
//! run left them, so that tools which read them see no change each night.

use contract::{Reason, RunResult};
use jiff::Timestamp;

use super::printer_columns;
use crate::{
    api::{
        ActiveRun, Run, RunCause, Stage, SyncJobPhase, SyncJobStatus,
        conditions::{self, Cause},
    },
    fault::Fault,
    hooks::hook_state,
    human,
    run::{benchmark, restore},
    volumes::claims::Blocked,
};

/// Records what the run under way does or what is in its way.
pub(crate) fn under_way(status: &mut SyncJobStatus, phase: SyncJobPhase, doing: &Fault, now: Timestamp) {
    let Some(run) = &status.active_run else { return };
    let generation = run.generation;
    if run.is_routine() {
        stand(status, true, generation, now);
    } else {
        conditions::reconciling(&mut status.conditions, doing.cause(generation), now);
    }
    status.phase = Some(phase);
}

/// Records what is in the way of the run under way, for those who look at it; `None` if nothing is.
pub(crate) fn hindered(status: &mut SyncJobStatus, by: Option<&Fault>) {
    let Some(run) = &mut status.active_run else { return };
    (run.reason, run.message) = by.map(|fault| (fault.reason.clone(), fault.message.clone())).unzip();
}

/// Records that nothing is due: the last run decides about the conditions.
pub fn rest(status: &mut SyncJobStatus, generation: i64, now: Timestamp) {
    stand(status, status.next_run_time.is_some(), generation, now);
    status.phase = Some(status.last_run.as_ref().map_or(SyncJobPhase::Pending, |run| run.result.into()));
}

/// Sets the conditions as the last run left them.
fn stand(status: &mut SyncJobStatus, is_scheduled: bool, generation: i64, now: Timestamp) {
    let is_stalled = failed(status, is_scheduled).is_some();
    let standing = standing(status, is_stalled);
    let set = if is_stalled { conditions::stalled } else { conditions::ready };
    set(&mut status.conditions, standing.cause(generation), now);
    status.observed_generation = Some(generation);
}

/// Returns the reason and the message of `Ready` between runs.
fn standing(status: &SyncJobStatus, is_stalled: bool) -> Fault {
    let next = status.next_run_time.as_ref().map(|time| human::seconds(time.0));
    let Some(run) = &status.last_run else {
        let first = |next| format!("The first run starts at {next}.");
        let message = next.map_or_else(|| "No run has ended yet.".into(), first);
        return Fault::new(Reason::Scheduled, message);
    };
    let ahead = match (run.result, next) {
        (RunResult::Succeeded, _) => String::new(),
        (_, Some(next)) => format!(" The next run starts at {next}."),
        (_, None) if run.cause == Some(RunCause::Restore) => {
            " To try again, restore again (`kubectl volferry restore`); another run would sync forward."
                .into()
        }
        (_, None) if run.reason == Some(Reason::DeleteLimitExceeded) => {
            " The limit is spec.files.deleteLimit; a change of the spec runs the job again.".into()
        }
        (_, None) => " Change spec.trigger to run again.".into(),
    };
    let is_over = run.result == RunResult::Succeeded || is_stalled;
    let reason = if is_over { standing_reason(run) } else { Reason::Scheduled };
    Fault::new(reason, standing_message(run) + &ahead)
}

/// Returns the last run if it failed, and no run follows that may end otherwise without a person.
fn failed(status: &SyncJobStatus, is_scheduled: bool) -> Option<&Run> {
    let failed = status.last_run.as_ref().filter(|run| run.result != RunResult::Succeeded);
    failed.filter(|run| run.needs_person || !is_scheduled)
}

/// Records that the job is suspended. The last run decides about `Ready` and `Stalled`, as without the suspension.
pub fn suspended(status: &mut SyncJobStatus, is_scheduled: bool, generation: i64, now: Timestamp) {
    let last = status.last_run.as_ref().map(|run| format!(" {}", standing_message(run)));
    let message =
        format!("No run is started while spec.suspend is true.{}", last.as_deref().unwrap_or_default());
    let stalled = failed(status, is_scheduled).map(standing_reason);
    let cause = |reason| Cause { reason, message: &message, generation };
    let conditions = &mut status.conditions;
    conditions::set(conditions, conditions::READY, stalled.is_none(), cause(&Reason::Suspended), now);
    restore::resume(conditions);
    conditions::remove(conditions, conditions::RECONCILING);
    match &stalled {
        Some(reason) => conditions::set(conditions, conditions::STALLED, true, cause(reason), now),
        None => conditions::remove(conditions, conditions::STALLED),
    }
    status.phase = Some(SyncJobPhase::Suspended);
    status.observed_generation = Some(generation);
    let dropped = status.active_run.take();
    if dropped.is_some_and(|run| run.cause == Some(RunCause::Trigger)) {
        // Nothing answered the trigger, so that the job runs for it once it is resumed.
        status.last_trigger = None;
    }
}

/// Removes a run that has not started. What it was asked for by is not made up for.
pub fn leave(status: &mut SyncJobStatus, generation: i64, now: Timestamp) {
    status.active_run = None;
    rest(status, generation, now);
}

/// Records that no run can start until a person has acted.
pub fn refused(status: &mut SyncJobStatus, fault: &Fault, generation: i64, now: Timestamp) {
    blocked(status, &Blocked::Stalled(fault.clone()), generation, now);
}

/// Records that a run is due, but cannot start.
pub fn blocked(status: &mut SyncJobStatus, why: &Blocked, generation: i64, now: Timestamp) {
    let (Blocked::Waiting(fault) | Blocked::Stalled(fault)) = why;
    let cause = fault.cause(generation);
    match why {
        Blocked::Waiting(_) => {
            conditions::reconciling(&mut status.conditions, cause, now);
            status.phase = Some(SyncJobPhase::Preparing);
        }
        Blocked::Stalled(_) => {
            conditions::stalled(&mut status.conditions, cause, now);
            status.phase = Some(SyncJobPhase::Stalled);
        }
    }
    hindered(status, Some(fault));
    status.observed_generation = Some(generation);
    leave_queue(status);
}

/// Marks a job whose run was stopped for the next one as progressing, so that it is not stalled for a moment.
pub fn give_way(status: &mut SyncJobStatus, now: Timestamp) {
    let Some(run) = &status.last_run else { return };
    let is_stalled = conditions::is_true(&status.conditions, conditions::STALLED);
    if run.reason != Some(Reason::Replaced) || !is_stalled {
        return;
    }
    let message = run.message.clone().unwrap_or_default();
    let cause = Cause { reason: &Reason::Replaced, message: &message, generation: run.generation };
    conditions::reconciling(&mut status.conditions, cause, now);
    status.phase = Some(SyncJobPhase::Preparing);
}

/// Removes a run that cannot use its place from the queue, so that it keeps no other run waiting.
pub(crate) fn leave_queue(status: &mut SyncJobStatus) {
    if let Some(run) = &mut status.active_run {
        (run.queue_time, run.start_time, run.try_time) = (None, None, None);
        (run.hooks, run.capture) = (None, None);
    }
}

/// Returns the obstacle of the run under way, if any.
pub fn obstacle(status: &SyncJobStatus) -> Option<&str> {
    let run = status.active_run.as_ref()?;
    run.reason.as_ref().filter(|reason| ![Reason::Preparing, Reason::Retrying].contains(reason))?;
    run.message.as_deref()
}

/// Returns what people are told of a job, as a reason and a message: its run under way, what it waits for or needs, or
/// how its last run ended.
pub fn told(status: &SyncJobStatus) -> Option<Fault> {
    if let Some(run) = &status.active_run {
        let message = run.message.clone().unwrap_or_else(|| stage_message(run, run.stage));
        return Some(Fault::new(run.reason.clone().unwrap_or_else(|| run.stage.reason()), message));
    }
    let ready = conditions::find(&status.conditions, conditions::READY)?;
    let synced = conditions::find(&status.conditions, conditions::SYNCED);
    let missed = synced.filter(|synced| {
        ready.status == "True"
            && ready.reason == *Reason::Scheduled
            && synced.status != "True"
            && synced.reason != *Reason::NoCopyYet
    });
    let said = missed.unwrap_or(ready);
    Some(Fault::new(said.reason.as_str(), said.message.clone()))
}

/// Returns the message for a run in that stage without an obstacle.
pub fn stage_message(run: &ActiveRun, stage: Stage) -> String {
    if let Some(point) = hook_state::in_progress(run) {
        return hook_state::message(run, point);
    }
    let id = &run.id;
    match stage {
        Stage::Queued => format!("Run {id} waits for its turn."),
        Stage::Preparing => format!("Run {id} has its turn, and waits for its next try."),
        Stage::Capturing => format!("The source of run {id} is captured at one instant."),
        Stage::Starting => format!("The pods of run {id} start."),
        Stage::Running => format!("Run {id} is under way."),
        Stage::Finishing | Stage::Done => format!("Run {id} has ended."),
    }
}

/// Returns the message on how a run ended.
pub fn standing_message(run: &Run) -> String {
    let what =
        run.message.as_deref().map(|message| format!(" {}", human::sentence(message))).unwrap_or_default();
    if let Some(figures) = run.benchmark.as_ref().filter(|_| run.result == RunResult::Succeeded) {
        return benchmark::message(run, figures);
    }
    if run.result == RunResult::Succeeded {
        let summary = printer_columns::summary_of(run);
        let took = summary.duration.unwrap_or_default();
        let (files, bytes) = (summary.files, summary.transferred);
        return format!("Run {}: {files} entries changed, {bytes} bytes, in {took}.{what}", run.id);
    }
    let tries = match run.retries {
        0 => String::new(),
        1 => " after 1 retry".into(),
        retries => format!(" after {retries} retries"),
    };
    format!("Run {} did not succeed{tries}.{what}", run.id)
}

/// Returns the condition reason for how a run ended.
pub fn standing_reason(run: &Run) -> Reason {
    match run.result {
        RunResult::Succeeded => Reason::Succeeded,
        _ => run.reason.clone().unwrap_or(Reason::Failed),
    }
}

#[cfg(test)]
mod tests;
