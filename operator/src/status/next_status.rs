//! The status of a SyncJob after a step of its reconciliation.

use contract::{Reason, Side};
use jiff::Timestamp;

use super::{readiness, run_status, synced};
use crate::{
    api::{ActiveRun, RunCause, Stage, SyncJobStatus},
    controller::{context::Context, dereference::Dereferenced, view::View},
    ends::{destination_identity, source_identity},
    fault::Fault,
    hooks::hook_state,
    queue::turns::Line,
    run::{
        benchmark,
        outcome::Outcome,
        regression,
        stages::{
            situation::Turn,
            step::{ClaimStep, HookStep, Step, StorageStep},
        },
    },
    snapshots::{destination_image, keep_base_snapshot, source_capture},
    volumes::{
        claim_creation, claim_growth,
        claims::{Blocked, LostClaim},
    },
};

/// Starts a run that was just recorded if nothing seems to block it, and notes in the status what blocks it otherwise.
/// In both cases, this is checked again once the SyncRun exists, before any object is created for the run.
pub(crate) fn start_or_wait(context: &Context, status: &mut SyncJobStatus, view: &View<'_>) {
    let (Some(run), now) = (status.active_run.clone(), view.now) else { return };
    match view.turn_of(&run) {
        Turn::Free => run_status::admit(status, now),
        Turn::Taken(fault) => run_status::wait(status, &fault, now),
        Turn::Queued(queued) => {
            run_status::wait(status, &queued.fault, now);
            // The status keeps this position, too, until a new one is due.
            let again = now.checked_add(queued.patience()).unwrap_or(now);
            context.positions.put(view.uid(), again);
        }
        Turn::Unknown => {}
    }
}

/// Returns the status before a step. If the step tells that the run is under way or how its try ended, this status has
/// the time since when all pods ran, because the record of that may have been left out.
pub(crate) fn before(step: &Step, view: &View<'_>) -> SyncJobStatus {
    let mut status = view.status.clone();
    let tells = matches!(step, Step::Run | Step::Retry(..) | Step::Postpone(..) | Step::Finish(_));
    if let Some(since) = view.ran_since().filter(|_| tells) {
        run_status::ran_since(&mut status, since.min(view.now));
    }
    status
}

/// Updates the status to the state of the job after `step`.
pub(crate) fn turn(status: &mut SyncJobStatus, step: &Step, view: &View<'_>) {
    let View { valid, found, now, .. } = *view;
    let generation = view.subject.generation;
    status.captures.retain(|name| !found.gone_captures.contains(name));
    match step {
        Step::Rest => readiness::rest(status, generation, now),
        Step::Suspend => {
            let is_scheduled = valid.as_ref().is_ok_and(|valid| valid.schedule.is_some());
            readiness::suspended(status, is_scheduled, generation, now);
        }
        Step::Yield => readiness::leave(status, generation, now),
        Step::Block(blocked) => readiness::blocked(status, blocked, generation, now),
        Step::Claim(claim) => {
            let why = about_claim(*claim, view).map(Blocked::Waiting);
            why.iter().for_each(|why| readiness::blocked(status, why, generation, now));
        }
        Step::Begin(run) => run_status::begin(status, (**run).clone(), now),
        Step::Queue => run_status::queue(status, found.facts.round, &found.facts.nodes, now),
        Step::Wait(fault) => run_status::wait(status, fault, now),
        Step::Admit => run_status::admit(status, now),
        Step::Launch => launch(status, found, now),
        Step::Start(fault) => run_status::preparing(status, fault.as_ref(), now),
        Step::Dismiss(_, fault) => run_status::preparing(status, Some(fault), now),
        Step::Halt(fault) => run_status::halt(status, fault, now),
        Step::Run => {
            run_status::running(status, now);
            run_status::stand_on(status, &found.facts.nodes);
        }
        Step::Capture(StorageStep::Begin(name)) => source_capture::begin(status, name.clone(), now),
        Step::Capture(StorageStep::Wait(fault)) => source_capture::under_way(status, fault.as_ref(), now),
        Step::Capture(StorageStep::End) => source_capture::end(status, &found.facts.captured, now),
        Step::Image(StorageStep::Begin(name)) => destination_image::begin(status, name.clone(), now),
        Step::Image(StorageStep::Wait(fault)) => destination_image::under_way(status, fault.as_ref(), now),
        Step::Hook(hook) => go_on_with_hook(status, hook, now),
        Step::Await | Step::Linger | Step::Withdraw | Step::Image(StorageStep::End) => {}
        Step::Retry(outcome, at) => run_status::retry(status, outcome, *at, now),
        Step::Postpone(outcome, at) => {
            let suspects = found.suspects(status.active_run.as_ref(), outcome.volume_in_use());
            run_status::postpone(status, outcome, &suspects, *at, now);
        }
        Step::Finish(outcome) => finish(status, outcome, view),
    }
    note_identity(status, step, view);
    valid.iter().for_each(|valid| keep_base_snapshot::give_up(status, valid));
    if valid.as_ref().is_ok_and(|valid| valid.regression.is_none()) {
        regression::forget(status);
    }
    let is_routine = status.active_run.as_ref().is_some_and(ActiveRun::is_routine);
    let settles = is_routine || matches!(step, Step::Rest | Step::Suspend | Step::Finish(_));
    synced::set_synced(status, settles, is_copy_gone(status, view), generation, now);
}

fn launch(status: &mut SyncJobStatus, found: &Dereferenced, now: Timestamp) {
    run_status::preparing(status, None, now);
    status.fs_groups = found.fs_groups;
    // A claim that was made anew since is not what was launched on.
    if status.active_run.as_ref().is_some_and(|run| run.launched) {
        return;
    }
    let uid = source_identity::uid(&found.claims).map(Into::into);
    status.active_run.iter_mut().for_each(|run| run.source_uid.clone_from(&uid));
}

/// Returns what is told of a claim that is made to fit.
fn about_claim(step: ClaimStep, view: &View<'_>) -> Option<Fault> {
    let (valid, claims) = (view.valid.as_ref().ok()?, &view.found.claims);
    match step {
        ClaimStep::Create => claim_creation::due(valid, claims).as_ref().map(claim_creation::announced),
        ClaimStep::Grow => {
            claim_growth::wanted(valid.create.as_ref(), claims).as_ref().map(claim_growth::announced)
        }
    }
}

fn go_on_with_hook(status: &mut SyncJobStatus, step: &HookStep, now: Timestamp) {
    match step {
        HookStep::Open => hook_state::open(status),
        HookStep::Begin { point, stopped, .. } => {
            run_status::hook_begun(status, *point, stopped.as_deref(), now);
        }
        HookStep::Await(_) => {}
        HookStep::End(point, failure) => hook_state::end(status, *point, failure.clone(), now),
    }
}

/// Ends the run under way. That of a benchmark says nothing of the job as a whole.
fn finish(status: &mut SyncJobStatus, outcome: &Outcome, view: &View<'_>) {
    let View { valid, found, now, .. } = *view;
    let run = status.active_run.clone().unwrap_or_default();
    let benchmark = Some(&run).filter(|run| run.benchmark.is_some());
    let outcome = &placed(outcome, benchmark, found);
    let limit = valid.as_ref().ok().map(|valid| valid.history_limit);
    run_status::finish(status, outcome, limit, now);
    if benchmark.is_none() {
        readiness::give_way(status, now);
        conclude(status, outcome, &run, view);
    }
    if let Some(lost) = found.lost() {
        readiness::refused(status, &lost.fault, view.subject.generation, now);
    }
}

/// Notes the key of a job with an endpoint, which the run's pod tells. A key that is lost is made anew by the next pod.
fn note_identity(status: &mut SyncJobStatus, step: &Step, view: &View<'_>) {
    let is_lost = matches!(step, Step::Retry(outcome, _) | Step::Finish(outcome)
        if outcome.report.reason == Some(Reason::KeyNotStored));
    match view.valid {
        Ok(valid) if valid.remote().is_none() || is_lost => status.identity = None,
        Ok(_) => status.identity = view.identity().or(status.identity),
        Err(_) => {}
    }
}

/// Returns whether the claim with the copy was lost or made anew since the last success.
fn is_copy_gone(status: &SyncJobStatus, view: &View<'_>) -> bool {
    let View { valid, found, .. } = *view;
    let is_lost = |lost: LostClaim| lost.side == Side::Sink && lost.fault.reason != Reason::ClaimTerminating;
    found.lost().is_some_and(is_lost)
        || valid
            .as_ref()
            .is_ok_and(|valid| destination_identity::is_new(status, valid, found.destination_uid()))
}

/// Updates the parts of the status about the job as a whole once its run has ended: the remembered destination, and the
/// usual duration of runs.
fn conclude(status: &mut SyncJobStatus, outcome: &Outcome, run: &ActiveRun, view: &View<'_>) {
    let (found, report) = (view.found, &outcome.report);
    if let Some(folder) = &run.destination {
        let job = view.valid.as_ref().ok();
        destination_identity::remember(status, folder, job, found.destination_uid(), report);
    }
    source_identity::remember(status, run, report.result);
    if let Ok(valid) = view.valid {
        destination_image::remember(status, run, &found.facts.imaged, report.result);
        let has_room = found.line.as_ref().is_none_or(Line::has_room_for_base);
        keep_base_snapshot::remember(status, valid, run, has_room, report);
        let judged = status.last_run.as_ref().filter(|run| run.cause != Some(RunCause::Restore));
        if let Some(rule) = valid.regression.filter(|_| judged.is_some()) {
            regression::judge(status, rule, view.subject.generation, view.now);
        }
    }
}

/// Returns the outcome with what the cluster knows: a benchmark's figures with both ends (any other outcome has none),
/// and a note about other SyncJobs with the same destination.
fn placed(outcome: &Outcome, benchmark: Option<&ActiveRun>, found: &Dereferenced) -> Outcome {
    let mut outcome = outcome.clone();
    outcome.report.notes.extend(found.shared.clone());
    let figures = outcome.report.benchmark.take();
    outcome.report.benchmark = figures.zip(benchmark).map(|(figures, run)| {
        Box::new(benchmark::placed(*figures, run, &found.claims, &found.children.pods))
    });
    outcome
}

/// Notes the stage of the run under way in the status, and whether it is launched. A run that has got its turn and has
/// no hooks starts at once.
pub(crate) fn note_stage(status: &mut SyncJobStatus, step: &Step, view: &View<'_>) {
    let Some(run) = &mut status.active_run else { return };
    run.launched = run.is_started() && (*step == Step::Launch || run.launched && !step.ends_launch());
    let is_admitted = matches!(step, Step::Begin(_) | Step::Admit) && run.is_started();
    run.stage = if is_admitted && view.is_without_hooks() { Stage::Starting } else { step.stage(run.stage) };
}
