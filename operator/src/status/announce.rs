//! Writes the status of a SyncJob, and announces the change in the log, events, metrics and traces.

use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};

use super::merge_patch;
use crate::{
    api::{ActiveRun, SyncJob, SyncJobStatus, conditions},
    controller::{context::Context, error::Error},
    names::FIELD_MANAGER,
    run::schedule::Schedule,
    telemetry::{
        events::{self, Note},
        metrics::{JobLabels, Standing},
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

fn standing(job: &SyncJob, status: &SyncJobStatus) -> Standing {
    let stalled = conditions::is_true(&status.conditions, conditions::STALLED);
    let reconciling = conditions::is_true(&status.conditions, conditions::RECONCILING);
    let last_run = status.last_run.as_ref();
    let queued =
        status.active_run.as_ref().filter(|run| !run.is_started()).and_then(|run| run.queue_time.as_ref());
    let is_active = status.active_run.as_ref().is_some_and(ActiveRun::is_started);
    Standing {
        active: is_active,
        waiting: !is_active && !stalled && (reconciling || status.active_run.is_some()),
        failed: last_run.is_some_and(|run| run.result.is_failure()),
        stalled,
        incomplete: conditions::is_true(&status.conditions, conditions::INCOMPLETE),
        regressed: conditions::is_true(&status.conditions, conditions::PERFORMANCE_REGRESSED),
        suspended: job.spec.suspend,
        held: conditions::is_true(&status.conditions, conditions::RESTORED),
        owners_not_kept: last_run
            .map_or(0, |run| i64::try_from(run.work.owners_not_kept).unwrap_or(i64::MAX)),
        queued_since_s: queued.map(|time| time.0.as_second() as f64),
        newest_snapshot_s: newest_snapshot(status).map(|time| time.as_second() as f64),
        destination_free_bytes: last_run.and_then(|run| i64::try_from(run.free_bytes?).ok()),
        last_success_s: status.last_success_time.as_ref().map(|time| time.0.as_second() as f64),
        damaged_snapshot_objects: status.snapshots.as_ref().and_then(|snapshots| snapshots.damaged),
        success_deadline_s: success_deadline(job, status).map(|time| time.as_second() as f64),
    }
}

/// Returns the time by which a job with a schedule has to succeed, first or again, for the metrics; `None` while the
/// job is suspended, because no run starts then.
fn success_deadline(job: &SyncJob, status: &SyncJobStatus) -> Option<Timestamp> {
    let since = status.last_success_time.as_ref().or(job.metadata.creation_timestamp.as_ref())?;
    let schedule = job.spec.schedule.as_ref().filter(|_| !job.spec.suspend)?;
    Schedule::new(schedule).ok()?.deadline(&job.uid().unwrap_or_default(), since.0)
}

fn newest_snapshot(status: &SyncJobStatus) -> Option<Timestamp> {
    let items = &status.snapshots.as_ref()?.items;
    items.iter().filter_map(|snapshot| snapshot.time.as_ref()).map(|time| time.0).max()
}

#[cfg(test)]
mod tests {
    use contract::RunResult;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::api::SyncJobSpec;

    #[test]
    fn the_gauges_of_a_job_tell_a_failed_run_and_by_when_it_has_to_succeed() {
        let schedule = crate::api::Schedule { cron: Some("@daily".into()), ..Default::default() };
        let spec = SyncJobSpec { schedule: Some(schedule), ..SyncJobSpec::default() };
        let mut job = SyncJob::new("web", spec);
        let run = |result| Some(crate::api::Run { result, ..crate::api::Run::default() });
        let success: Timestamp = "2027-01-06T05:00:00Z".parse().unwrap();
        let status = SyncJobStatus {
            last_run: run(RunResult::Failed),
            last_success_time: Some(Time(success)),
            ..SyncJobStatus::default()
        };
        let deadline: Timestamp = "2027-01-08T00:00:00Z".parse().unwrap();
        let there = standing(&job, &status);
        assert_eq!((there.failed, there.success_deadline_s), (true, Some(deadline.as_second() as f64)));
        job.spec.suspend = true;
        let corrected = SyncJobStatus { last_run: run(RunResult::Succeeded), ..status };
        let there = standing(&job, &corrected);
        assert_eq!((there.failed, there.success_deadline_s), (false, None));
        assert!(there.suspended);
    }

    #[test]
    fn a_job_that_never_succeeded_has_a_deadline_from_its_creation_on() {
        let schedule = crate::api::Schedule { cron: Some("@daily".into()), ..Default::default() };
        let spec = SyncJobSpec { schedule: Some(schedule), ..SyncJobSpec::default() };
        let mut job = SyncJob::new("web", spec);
        job.metadata.creation_timestamp = Some(Time("2027-01-06T05:00:00Z".parse().unwrap()));
        let deadline: Timestamp = "2027-01-08T00:00:00Z".parse().unwrap();
        let there = standing(&job, &SyncJobStatus::default());
        assert_eq!(there.success_deadline_s, Some(deadline.as_second() as f64));
    }

    #[test]
    fn a_run_that_left_files_out_counts_as_failed_and_a_canceled_one_does_not() {
        let failed = |result| {
            let last_run = Some(crate::api::Run { result, ..crate::api::Run::default() });
            standing(
                &SyncJob::new("web", SyncJobSpec::default()),
                &SyncJobStatus { last_run, ..Default::default() },
            )
            .failed
        };
        assert!(failed(RunResult::PartiallyFailed) && failed(RunResult::Failed));
        assert!(!failed(RunResult::Canceled) && !failed(RunResult::Succeeded));
    }
}
