//! Counts the runs under way, and lowers the load of each on the API server when they are many. Pure.

use jiff::{SignedDuration, Timestamp};

use crate::api::{SyncJob, SyncJobStatus};

/// The number of runs from which on the load on the API server matters more than the latency of one run.
const DENSE: usize = 10;
/// The total rate at which the pods of all runs together write progress, in writes per second.
const PROGRESS_RATE: usize = 10;
/// The longest interval between two progress writes of a run, in seconds.
const LONGEST_PERIOD_S: usize = 30;

/// How long a run counts after its end, so that the last of many runs are treated as those before them.
const COUNTED_AFTER_END: SignedDuration = SignedDuration::from_secs(10);

/// The numbers of runs under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Crowd {
    /// The number of started runs.
    pub started: usize,
    /// The number of runs that wait for their turn.
    pub waiting: usize,
    /// The number of runs that have ended a moment ago, of SyncJobs without a run under way.
    pub ended: usize,
}

impl Crowd {
    /// Counts the runs of these jobs.
    pub fn of<'a>(jobs: impl IntoIterator<Item = &'a SyncJob>, now: Timestamp) -> Self {
        let mut crowd = Self::default();
        for status in jobs.into_iter().filter_map(|job| job.status.as_ref()) {
            match &status.active_run {
                Some(run) if run.is_started() => crowd.started += 1,
                Some(_) => crowd.waiting += 1,
                None => crowd.ended += usize::from(has_just_ended(status, now)),
            }
        }
        crowd
    }

    /// Returns whether there are enough runs that their load on the API server matters more than a second of delay.
    pub fn is_dense(self) -> bool {
        self.started + self.waiting + self.ended >= DENSE
    }

    /// Returns the minimum interval between two progress writes of a run that starts now, in seconds (1 to 30).
    pub fn progress_period_s(self) -> u32 {
        let seconds = self.started.div_ceil(PROGRESS_RATE).clamp(1, LONGEST_PERIOD_S);
        u32::try_from(seconds).unwrap_or(1)
    }
}

fn has_just_ended(status: &SyncJobStatus, now: Timestamp) -> bool {
    let ended = status.last_run.as_ref().and_then(|run| run.completion_time.as_ref());
    ended.is_some_and(|ended| now.duration_since(ended.0).abs() < COUNTED_AFTER_END)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::{
        api::{ActiveRun, Run, SyncJobSpec},
        status::run_status,
    };

    #[test]
    fn runs_that_have_started_and_runs_that_wait_are_told_apart() {
        let job = |run: Option<ActiveRun>| {
            let status = SyncJobStatus { active_run: run, ..SyncJobStatus::default() };
            SyncJob { status: Some(status), ..SyncJob::new("web", SyncJobSpec::default()) }
        };
        let started = run_status::new_run("web", 1, 1, None, Timestamp::UNIX_EPOCH);
        let waiting = ActiveRun { start_time: None, ..started.clone() };
        let jobs =
            [job(Some(started)), job(Some(waiting)), job(None), SyncJob::new("new", SyncJobSpec::default())];
        let crowd = Crowd::of(&jobs, Timestamp::UNIX_EPOCH);
        assert_eq!(crowd, Crowd { started: 1, waiting: 1, ended: 0 });
    }

    #[test]
    fn a_run_counts_for_a_moment_after_its_end() {
        let completion_time = Some(Time(Timestamp::UNIX_EPOCH));
        let last_run = Some(Run { completion_time, ..Run::default() });
        let status = SyncJobStatus { last_run, ..SyncJobStatus::default() };
        let job = SyncJob { status: Some(status), ..SyncJob::new("web", SyncJobSpec::default()) };
        let ended = |second| Crowd::of([&job], Timestamp::from_second(second).unwrap()).ended;
        assert_eq!([ended(0), ended(9), ended(10)], [1, 1, 0]);
    }

    #[test]
    fn the_more_runs_the_longer_each_waits_to_write_its_progress() {
        let seconds = [0, 1, 10, 11, 50, 100_000]
            .map(|started| Crowd { started, waiting: 9, ended: 9 }.progress_period_s());
        assert_eq!(seconds, [1, 1, 1, 2, 5, 30]);
        let is_dense = |started, waiting, ended| Crowd { started, waiting, ended }.is_dense();
        assert!(!is_dense(4, 5, 0) && is_dense(1, 9, 0) && is_dense(10, 0, 0) && is_dense(1, 0, 9));
    }
}
