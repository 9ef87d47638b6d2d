//! Counts the runs under way, and lowers the load of each on the API server when they are many. Pure.

use crate::api::SyncJob;

/// The number of runs from which on the load on the API server matters more than the latency of one run.
const DENSE: usize = 10;
/// The total rate at which the pods of all runs together write progress, in writes per second.
const PROGRESS_RATE: usize = 10;
/// The longest interval between two progress writes of a run, in seconds.
const LONGEST_PERIOD_S: usize = 30;

/// The numbers of runs under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Crowd {
    /// The number of started runs.
    pub started: usize,
    /// The number of runs that wait for their turn.
    pub waiting: usize,
}

impl Crowd {
    /// Counts the runs of these jobs.
    pub fn of<'a>(jobs: impl IntoIterator<Item = &'a SyncJob>) -> Self {
        let runs = jobs.into_iter().filter_map(|job| job.status.as_ref()?.active_run.as_ref());
        runs.fold(Self::default(), |crowd, run| match run.is_started() {
            true => Self { started: crowd.started + 1, ..crowd },
            false => Self { waiting: crowd.waiting + 1, ..crowd },
        })
    }

    /// Returns whether runs are so many that the load of each on the API server matters more than a second of delay.
    pub fn is_dense(self) -> bool {
        self.started + self.waiting >= DENSE
    }

    /// Returns the minimum interval between two progress writes of a run that starts now, in seconds (1 to 30).
    pub fn progress_period_s(self) -> u32 {
        let seconds = self.started.div_ceil(PROGRESS_RATE).clamp(1, LONGEST_PERIOD_S);
        u32::try_from(seconds).unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{
        api::{ActiveRun, SyncJobSpec, SyncJobStatus},
        model::status,
    };

    #[test]
    fn runs_that_have_started_and_runs_that_wait_are_told_apart() {
        let job = |run: Option<ActiveRun>| {
            let status = SyncJobStatus { active_run: run, ..SyncJobStatus::default() };
            SyncJob { status: Some(status), ..SyncJob::new("web", SyncJobSpec::default()) }
        };
        let started = status::new_run("web", 1, 1, None, Timestamp::UNIX_EPOCH);
        let waiting = ActiveRun { start_time: None, ..started.clone() };
        let jobs =
            [job(Some(started)), job(Some(waiting)), job(None), SyncJob::new("new", SyncJobSpec::default())];
        assert_eq!(Crowd::of(&jobs), Crowd { started: 1, waiting: 1 });
    }

    #[test]
    fn the_more_runs_the_longer_each_waits_to_write_its_progress() {
        let seconds =
            [0, 1, 10, 11, 50, 100_000].map(|started| Crowd { started, waiting: 9 }.progress_period_s());
        assert_eq!(seconds, [1, 1, 1, 2, 5, 30]);
        let is_dense = |started, waiting| Crowd { started, waiting }.is_dense();
        assert!(!is_dense(4, 5) && is_dense(1, 9) && is_dense(10, 0));
    }
}
