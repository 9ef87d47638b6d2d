//! Decides the values of the gauges of a SyncJob. Pure.

use jiff::Timestamp;
use kube::ResourceExt as _;

use crate::{
    api::{ActiveRun, SyncJob, SyncJobStatus, conditions},
    run::due_times::Schedule,
};

/// The state of a SyncJob, as its gauges show it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct JobState {
    /// Whether a run is under way.
    pub active: bool,
    /// How long both ends of the last run ran, all tries together, in seconds.
    pub last_run_s: Option<f64>,
    /// Whether a run is due and has not started.
    pub waiting: bool,
    /// Whether the last run failed, or left files or its snapshot out.
    pub failed: bool,
    /// Whether the job needs a person to go on.
    pub stalled: bool,
    /// Whether the last completed run left files out.
    pub incomplete: bool,
    /// Whether the last runs took longer than usual.
    pub regressed: bool,
    /// Whether the spec holds back all runs.
    pub suspended: bool,
    /// Whether a restore in place holds back the runs that no person asks for.
    pub held: bool,
    /// How many entries of the copy have another owner than at the source, at least.
    pub owners_not_kept: i64,
    /// When the run that waits took its place in the queue, in seconds since 1970.
    pub queued_since_s: Option<f64>,
    /// When the newest snapshot of the job was taken, in seconds since 1970.
    pub newest_snapshot_s: Option<f64>,
    /// The bytes that were free on the destination when the last run ended there.
    pub destination_free_bytes: Option<i64>,
    /// The number of damaged objects that the last verification of the destination's snapshots found; `None` without
    /// verifications.
    pub damaged_snapshot_objects: Option<i64>,
    /// The end of the last successful run, in seconds since 1970.
    pub last_success_s: Option<f64>,
    /// The time of the second scheduled run after that one, or after the job was created, in seconds since 1970.
    pub success_deadline_s: Option<f64>,
}

/// Returns the state of a SyncJob with that status.
pub(crate) fn standing(job: &SyncJob, status: &SyncJobStatus) -> JobState {
    let stalled = conditions::is_true(&status.conditions, conditions::STALLED);
    let reconciling = conditions::is_true(&status.conditions, conditions::RECONCILING);
    let last_run = status.last_run.as_ref();
    let queued =
        status.active_run.as_ref().filter(|run| !run.is_started()).and_then(|run| run.queue_time.as_ref());
    let is_active = status.active_run.as_ref().is_some_and(ActiveRun::is_started);
    JobState {
        active: is_active,
        last_run_s: last_run.map(|run| run.timings.running() as f64 / 1000.0),
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
/// job is suspended or held back by a restore, because its schedule starts no run then.
fn success_deadline(job: &SyncJob, status: &SyncJobStatus) -> Option<Timestamp> {
    let since = status.last_success_time.as_ref().or(job.metadata.creation_timestamp.as_ref())?;
    let is_held = job.spec.suspend || conditions::is_true(&status.conditions, conditions::RESTORED);
    let schedule = job.spec.schedule.as_ref().filter(|_| !is_held)?;
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
    use serde_json::json;

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
    fn a_job_that_a_restore_holds_back_has_no_deadline_until_it_is_resumed() {
        let schedule = crate::api::Schedule { cron: Some("@daily".into()), ..Default::default() };
        let job = SyncJob::new("web", SyncJobSpec { schedule: Some(schedule), ..SyncJobSpec::default() });
        let success: Timestamp = "2027-01-06T05:00:00Z".parse().unwrap();
        let held = |status: &str| {
            let condition = json!({"type": "Restored", "status": status, "reason": "R", "message": "m",
                "lastTransitionTime": "2027-01-06T05:00:00Z"});
            let conditions = vec![serde_json::from_value(condition).unwrap()];
            let last_success_time = Some(Time(success));
            let status = SyncJobStatus { last_success_time, conditions, ..SyncJobStatus::default() };
            let there = standing(&job, &status);
            (there.held, there.success_deadline_s.is_some())
        };
        assert_eq!((held("True"), held("False")), ((true, false), (false, true)));
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
