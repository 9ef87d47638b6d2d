//! Writes the status of a SyncJob, and announces the change in the log, events, metrics and traces.

use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};

use super::merge_patch;
use crate::{
    api::{SyncJob, SyncJobStatus},
    controller::{context::Context, error::Error},
    names::FIELD_MANAGER,
    telemetry::{
        events::{self, Note},
        job_gauges::standing,
        metrics::JobLabels,
        traces,
    },
};

/// Writes what differs from the job's status, and returns the job as it is then; `None` if nothing does.
pub(crate) async fn write_status(
    context: &Context,
    job: &SyncJob,
    new: &SyncJobStatus,
) -> Result<Option<SyncJob>, Error> {
    let version = job.resource_version().unwrap_or_default();
    let old = job.status.clone().unwrap_or_default();
    let Some(patch) = merge_patch::patch(&old, new, &version).map_err(Error::Render)? else {
        return Ok(None);
    };
    let api = Api::<SyncJob>::namespaced(context.client.clone(), &job.namespace().unwrap_or_default());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let written =
        api.patch_status(&job.name_any(), &params, &Patch::Merge(patch)).await.map_err(Error::Status)?;
    context.known.jobs.wrote(&written);
    Ok(Some(written))
}

/// Announces a status change that has been written: in the log, events and metrics, and in a trace if a run has ended.
pub(crate) async fn announce(context: &Context, job: &SyncJob, old: &SyncJobStatus, new: &SyncJobStatus) {
    let labels = JobLabels { namespace: job.namespace().unwrap_or_default(), name: job.name_any() };
    let metrics = &context.health.metrics;
    if let (Some(before), Some(after)) = (&old.active_run, &new.active_run)
        && after.retries > before.retries
    {
        metrics.retried(&labels);
    }
    let ended = old.active_run.as_ref().filter(|run| run.benchmark.is_none());
    if let (Some(_), None, Some(run)) = (ended, &new.active_run, &new.last_run) {
        metrics.run_ended(&labels, run);
    }
    if let (Some(ended), None, Some(run)) = (ended, &new.active_run, &new.last_run) {
        context.traces.send(|| traces::of_run(&labels.namespace, &labels.name, ended, run));
    }
    metrics.stands(&labels, standing(job, new));
    let notes = events::of_change(old, new).into_iter().chain(events::of_trend(old, new));
    for note in notes
        .chain(events::of_hooks(old, new))
        .chain(events::of_damage(old, new))
        .chain(events::of_owners(old, new))
    {
        let Note { reason, message, .. } = &note;
        tracing::info!(
            namespace = labels.namespace,
            name = labels.name,
            reason = reason.as_str(),
            "{message}"
        );
        context.events.publish(job, &note).await;
    }
}
