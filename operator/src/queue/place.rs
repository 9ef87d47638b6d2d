//! The places of waiting runs, which form one total order over all namespaces. Pure.

use std::cmp::Reverse;

use jiff::Timestamp;
use kube::ResourceExt as _;

use crate::api::{ActiveRun, SyncJob};

/// The place of a run, ordered by highest priority, round, time, and finally by the job's name and UID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    priority: Reverse<i32>,
    round: i64,
    since: Timestamp,
    job: String,
    uid: String,
}

impl Place {
    /// Returns the place of `run`, which belongs to the job of that name and UID; `None` if it is not queued.
    pub fn of(run: &ActiveRun, name: &str, uid: &str) -> Option<Self> {
        let since = run.queue_time.as_ref()?.0;
        let priority = Reverse(run.priority);
        Some(Self { priority, round: run.queue_round, since, job: name.into(), uid: uid.into() })
    }

    /// Returns the round in which the run gets its turn.
    pub fn round(&self) -> i64 {
        self.round
    }

    /// Returns the UID of the run's job.
    pub fn uid(&self) -> &str {
        &self.uid
    }
}

/// A run that a job records.
pub struct Recorded<'a> {
    /// Its place.
    pub place: Place,
    /// The run.
    pub run: &'a ActiveRun,
}

/// Returns the run that a job records. A run that is neither started nor queued blocks no other, and
/// neither does one of a deleted job, whose record nobody ends any more: its pods are waited for as long as they run.
pub fn recorded(job: &SyncJob) -> Option<Recorded<'_>> {
    let run =
        job.status.as_ref()?.active_run.as_ref().filter(|_| job.metadata.deletion_timestamp.is_none())?;
    let (name, uid) = (job.name_any(), job.uid().unwrap_or_default());
    let place = Place::of(run, &name, &uid);
    if run.is_started() {
        let priority = Reverse(i32::MAX);
        let first = Place { priority, round: i64::MIN, since: Timestamp::MIN, job: name, uid };
        return Some(Recorded { place: place.unwrap_or(first), run });
    }
    place.map(|place| Recorded { place, run })
}
