//! How much of the destination a plan deletes.

use contract::{DeleteLimit, RunParams};

use crate::{
    measure::monitor::Monitor,
    plan::planned::{Planned, deletes_in},
    session_error::{SessionError, go_on},
};

/// The deletes of a plan, and what they are measured by.
#[derive(Debug, Clone, Copy)]
pub(super) struct CountedDeletes {
    /// The number of deleted entries.
    pub count: u64,
    /// The number of entries at the destination.
    pub of: u64,
}

impl CountedDeletes {
    /// Counts the deletes of a plan, of which there are none unless `params` ask for deletes.
    pub(super) fn of(params: &RunParams, plan: &Planned, monitor: &Monitor) -> Result<Self, SessionError> {
        let Planned { compared, sink, .. } = plan;
        let mut count = 0;
        for dir in compared.dirs.iter().filter(|_| params.delete) {
            go_on(monitor)?;
            count += deletes_in(dir, sink, &compared.kept);
        }
        Ok(Self { count, of: sink.totals.entries })
    }

    /// Returns whether they are more than a limit lets.
    pub(super) fn exceed(self, limit: DeleteLimit) -> bool {
        self.count * 100 > self.of * u64::from(limit.0)
    }
}
