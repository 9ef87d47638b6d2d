//! Finds, creates, writes and deletes the SyncRuns of a SyncJob, which are the records of its runs.

use contract::Reason;
use kube::ResourceExt;

use super::{
    old_runs,
    record::{self, Record},
    stages::step::{HookStep, Step, StorageStep},
    write_record::{self, RecordError},
};
use crate::{
    api::{ActiveRun, Run, Stage, SyncJob, SyncJobStatus, SyncRun, SyncRunStatus},
    controller::{context::Context, dereference::Dereferenced, error::Error, view::View},
    fault::Fault,
};

/// Returns whether the SyncRun of a run still has to be created or completed before this step: it owns all objects that
/// are created for the run, and records how the run ends. A started run that goes back to waiting needs it, too:
/// another operator that does not know this yet then cannot create it, and looks again.
fn needs_record(step: &Step, run: &ActiveRun, record: &Record) -> bool {
    let is_needed = match step {
        Step::Launch | Step::Hook(HookStep::Open | HookStep::Begin { .. }) | Step::Finish(_) => true,
        Step::Capture(StorageStep::Begin(_) | StorageStep::Wait(_)) => true,
        Step::Wait(_)
        | Step::Block(_)
        | Step::Claim(_)
        | Step::Halt(_)
        | Step::Begin(_)
        | Step::Postpone(..) => run.is_started(),
        _ => false,
    };
    is_needed && matches!(record, Record::Missing | Record::Asked)
}

/// Creates the SyncRun of the run under way if a step needs it, and deletes one that was made from an older spec. If
/// the API server rejects it, the reason is stored in `found`, so that the status shows it as for any other child, and
/// false is returned. Fails on all other errors.
pub(crate) async fn make_record(
    context: &Context,
    job: &SyncJob,
    found: &mut Dereferenced,
    step: &Step,
) -> Result<bool, Error> {
    if let Record::Outdated(old) = &found.facts.record {
        write_record::delete(&context.client, old).await?;
    }
    let run = job.status.as_ref().and_then(|status| status.active_run.as_ref());
    let Some(run) = run.filter(|run| needs_record(step, run, &found.facts.record)) else {
        return Ok(true);
    };
    match write_record::make(&context.client, job, run, found.run.as_ref()).await {
        Ok(made) => {
            context.known.runs.wrote(&made);
            (found.facts.record, found.run) = (Record::Kept, Some(made));
            Ok(true)
        }
        Err(error) => {
            let fault = error.refusal().ok_or(error)?;
            (found.facts.record, found.run) = (Record::Taken(fault), None);
            Ok(false)
        }
    }
}

/// Writes the stage that this step brings a run to into its SyncRun, before the step is carried out. Writes nothing
/// that the run's pods report themselves.
pub(crate) async fn report_stage(context: &Context, view: &View<'_>, step: &Step) -> Result<(), RecordError> {
    let (Some(run), Some(kept)) = (view.active(), &view.found.run) else { return Ok(()) };
    let is_told = matches!(step, Step::Begin(_) | Step::Admit | Step::Finish(_));
    if view.found.facts.record != Record::Kept || is_told {
        return Ok(());
    }
    let old = kept.status.clone().unwrap_or_default();
    // Only the status of the SyncJob has the position in the queue.
    // A run that waits for its next try still has the words of the last one.
    let waits = matches!(step, Step::Await).then(|| Some((run.reason.clone()?, run.message.clone()?)));
    let waits = waits.flatten().map(|(reason, message)| Fault::new(reason, message));
    let why = step.obstacle().or(waits.as_ref()).filter(|why| why.reason != Reason::Queued);
    let stage = step.stage(run.stage);
    let mut new = record::under_way(&old, run, stage, why, generation(kept), view.now);
    view.absent_ends(step).for_each(|side| record::forget_end(&mut new, side));
    if (&new.contacts, &new.free) == (&old.contacts, &old.free)
        && record::is_told_by_agents(&old, run, stage, why)
    {
        return Ok(());
    }
    context.write_run_status(kept, &new).await
}

/// Notes the UID of the SyncRun of the run under way in a status that is to be written anyway.
pub(crate) fn note_record(status: &mut SyncJobStatus, found: &Dereferenced) {
    if let Some(run) = status.active_run.as_mut().filter(|_| found.facts.record == Record::Kept) {
        run.uid = found.run.as_ref().and_then(ResourceExt::uid);
    }
}

/// Deletes the SyncRun of a run that was removed before it started, after the status says so.
pub(crate) async fn drop_record(
    context: &Context,
    step: &Step,
    found: &Dereferenced,
) -> Result<(), RecordError> {
    let kept = found.run.as_ref().filter(|_| found.facts.record == Record::Kept);
    match (step, kept) {
        (Step::Suspend | Step::Yield, Some(kept)) => write_record::delete(&context.client, kept).await,
        _ => Ok(()),
    }
}

/// Writes into the SyncRuns of the last run, the last benchmark and earlier ones how these ended, and deletes the
/// SyncRuns that the history no longer keeps. Returns whether the ended runs are done: their objects are removed, or
/// kept for readers of logs, and their SyncRuns say so. A run can only be done if `is_known`: all objects that were
/// created are known.
pub(crate) async fn settle_runs(
    context: &Context,
    view: &View<'_>,
    status: &SyncJobStatus,
    is_known: bool,
) -> Result<bool, RecordError> {
    let runs = view.found.runs.iter().map(|run| &**run);
    let newest = [&status.last_run, &status.last_benchmark].into_iter().flatten();
    // The next run may have ended before all objects of an earlier one were removed.
    let earlier = runs.clone().filter_map(|run| finishing(run.status.as_ref()?));
    let earlier = earlier.filter(|run| newest.clone().all(|newest| newest.number != run.number));
    let mut is_settled = true;
    for last in newest.clone().chain(earlier) {
        let is_its = |run: &&SyncRun| run.spec.number == Some(last.number);
        let fresh =
            view.found.run.as_ref().filter(|run| view.found.facts.record == Record::Kept && is_its(run));
        let Some(run) = fresh.or_else(|| runs.clone().find(is_its)) else { continue };
        let old = run.status.clone().unwrap_or_default();
        // A run stays done, even if objects that were kept for readers of logs have to be removed later.
        let is_swept = is_known && view.is_swept(status);
        let is_swept = old.stage == Some(Stage::Done) || is_swept;
        is_settled &= is_swept;
        context
            .write_run_status(run, &record::ended(&old, last, is_swept, generation(run), view.now))
            .await?;
    }
    let forgotten = old_runs::forgotten(status, runs.clone()).into_iter();
    for run in forgotten.chain(old_runs::forgotten_benchmarks(status, runs)) {
        write_record::delete(&context.client, run).await?;
    }
    Ok(is_settled)
}

/// Returns how a run ended of whose objects some may be left.
fn finishing(status: &SyncRunStatus) -> Option<&Run> {
    status.report.as_ref().filter(|_| status.stage == Some(Stage::Finishing))
}

fn generation(run: &SyncRun) -> i64 {
    run.metadata.generation.unwrap_or(1)
}
