//! The status of a SyncJob after a step of its reconciliation.

use jiff::Timestamp;

use super::{context::Context, dereference::Found, view::View};
use crate::{
    api::{ActiveRun, RunCause, Stage, SyncJobStatus},
    fault::Fault,
    model::{
        self, claims::Blocked, creation, destination, growth, outcome::Outcome, status, trend,
        validate::ValidatedSyncJob,
    },
    stages::situation::{Step, Turn},
};

/// Starts a run that was just recorded if nothing seems to block it, and notes in the status what blocks it otherwise.
/// In both cases, this is checked again once the SyncRun exists, before any object is created for the run.
pub(super) fn start_or_wait(context: &Context, status: &mut SyncJobStatus, view: &View<'_>, now: Timestamp) {
    let Some(run) = status.active_run.clone() else { return };
    match view.turn_of(&run) {
        Turn::Free => status::admit(status, now),
        Turn::Taken(fault) => status::wait(status, &fault, now),
        Turn::Queued(queued) => {
            status::wait(status, &queued.fault, now);
            // The status keeps this position, too, until a new one is due.
            let again = now.checked_add(queued.patience()).unwrap_or(now);
            context.positions.put(view.uid(), again);
        }
        Turn::Unknown => {}
    }
}

/// Returns the status before a step. If the step tells that the run is under way or how its try ended, this status has
/// the time since when all pods ran, because the record of that may have been left out.
pub(super) fn before(step: &Step, view: &View<'_>, now: Timestamp) -> SyncJobStatus {
    let mut status = view.status.clone();
    let tells =
        matches!(step, Step::Run | Step::Retry(..) | Step::Postpone(..) | Step::Report(_) | Step::Finish(_));
    if let Some(since) = view.ran_since().filter(|_| tells) {
        status::ran_since(&mut status, since.min(now));
    }
    status
}

/// Updates the status to the state of the job after `step`.
pub(super) fn turn(
    status: &mut SyncJobStatus,
    step: &Step,
    valid: &Result<ValidatedSyncJob, Fault>,
    found: &Found,
    generation: i64,
    now: Timestamp,
) {
    match step {
        Step::Rest => status::rest(status, generation, now),
        Step::Suspend => {
            let is_scheduled = valid.as_ref().is_ok_and(|valid| valid.schedule.is_some());
            status::suspended(status, is_scheduled, generation, now);
        }
        Step::Refuse(fault) => status::refused(status, fault, generation, now),
        Step::Block(blocked) => status::blocked(status, blocked, generation, now),
        Step::Create => {
            let claim = valid.as_ref().ok().and_then(|valid| creation::due(valid, &found.claims));
            let why = claim.as_ref().map(creation::announced).map(Blocked::Waiting);
            why.iter().for_each(|why| status::blocked(status, why, generation, now));
        }
        Step::Grow => {
            let create = valid.as_ref().ok().and_then(|valid| valid.create.as_ref());
            let why = growth::wanted(create, &found.claims);
            let why = why.as_ref().map(growth::announced).map(Blocked::Waiting);
            why.iter().for_each(|why| status::blocked(status, why, generation, now));
        }
        Step::Begin(run) => status::begin(status, run.clone(), now),
        Step::Queue => status::queue(status, found.round, &found.nodes, now),
        Step::Wait(fault) => status::wait(status, fault, now),
        Step::Admit => status::admit(status, now),
        Step::Launch => {
            status::preparing(status, None, now);
            status.fs_groups = found.fs_groups;
        }
        Step::Start(fault) => status::preparing(status, fault.as_ref(), now),
        Step::Dismiss(_, fault) => status::preparing(status, Some(fault), now),
        Step::Halt(why) => status::halt(status, why, now),
        Step::Run => {
            status::running(status, now);
            status::stand_on(status, &found.nodes);
        }
        Step::OpenHooks => model::hooks::open(status),
        Step::BeginHook { point, stopped, .. } => {
            model::hooks::begin(status, *point, stopped.as_deref(), now);
        }
        Step::EndHook(point, failure) => model::hooks::end(status, *point, failure.clone(), now),
        Step::Await | Step::Linger | Step::Withdraw | Step::AwaitHook(_) => {}
        Step::Retry(outcome, at) => status::retry(status, outcome, *at, now),
        Step::Postpone(outcome, at) => {
            let suspects = found.suspects(status.active_run.as_ref(), outcome.volume_in_use());
            status::postpone(status, outcome, &suspects, *at, now);
        }
        Step::Report(outcome) | Step::Finish(outcome) => {
            let benchmark = status.active_run.clone().filter(|run| run.benchmark.is_some());
            let outcome = &placed(outcome, benchmark.as_ref(), found);
            let limit = valid.as_ref().ok().map(|valid| valid.history_limit);
            let is_confirmed = matches!(step, Step::Finish(_));
            let end = if is_confirmed { status::finish } else { status::report };
            end(status, outcome, limit, now);
            if benchmark.is_none() {
                status::give_way(status, now);
                conclude(status, outcome, valid, found, (generation, now));
            }
            if let Some((_, fault)) = found.lost() {
                status::refused(status, &fault, generation, now);
            }
        }
        Step::Confirm => status.active_run = None,
    }
    if valid.as_ref().is_ok_and(|valid| valid.regression.is_none()) {
        trend::forget(status);
    }
}

/// Updates the parts of the status about the job as a whole once its run has ended: the remembered destination, and the
/// usual duration of runs.
fn conclude(
    status: &mut SyncJobStatus,
    outcome: &Outcome,
    valid: &Result<ValidatedSyncJob, Fault>,
    found: &Found,
    (generation, now): (i64, Timestamp),
) {
    if let Ok(valid) = valid {
        destination::remember(status, valid, found.destination_uid(), &outcome.report);
        let judged = status.last_run.as_ref().filter(|run| run.cause != Some(RunCause::Restore));
        if let Some(rule) = valid.regression.filter(|_| judged.is_some()) {
            trend::judge(status, rule, generation, now);
        }
    }
}

/// Returns the outcome of a benchmark with its figures completed by the cluster's knowledge of both ends; any other
/// outcome has no figures.
fn placed(outcome: &Outcome, benchmark: Option<&ActiveRun>, found: &Found) -> Outcome {
    let mut outcome = outcome.clone();
    let figures = outcome.report.benchmark.take();
    outcome.report.benchmark = figures.zip(benchmark).map(|(figures, run)| {
        Box::new(model::benchmark::placed(*figures, run, &found.claims, &found.children.pods))
    });
    outcome
}

/// Notes the stage of the run under way in the status. A run that has got its turn and has no hooks starts at once.
pub(super) fn note_stage(status: &mut SyncJobStatus, step: &Step, view: &View<'_>) {
    let Some(run) = &mut status.active_run else { return };
    let is_admitted = matches!(step, Step::Begin(_) | Step::Admit) && run.is_started();
    run.stage = if is_admitted && view.is_without_hooks() { Stage::Starting } else { step.stage(run.stage) };
}
