//! Counts the runs that a simulated kubelet plays.

use std::collections::HashSet;

use parking_lot::Mutex;

/// Counts the runs that have pods.
#[derive(Debug, Default)]
pub struct PlayedRuns(Mutex<Runs>);

#[derive(Debug, Default)]
struct Runs {
    there: HashSet<String>,
    gone: HashSet<String>,
    pods: HashSet<String>,
    most: usize,
}

impl PlayedRuns {
    /// Returns the largest number of runs that had pods at a time.
    pub fn most(&self) -> usize {
        self.0.lock().most
    }

    /// Notes a run's pod; returns whether it is new.
    pub(crate) fn comes(&self, run: &str, pod: &str) -> bool {
        let mut runs = self.0.lock();
        if !runs.gone.contains(run) && runs.there.insert(run.into()) {
            runs.most = runs.most.max(runs.there.len());
        }
        runs.pods.insert(pod.into())
    }

    /// Notes that a run ends; returns whether it had not ended before.
    pub(crate) fn goes(&self, run: &str) -> bool {
        let mut runs = self.0.lock();
        runs.there.remove(run);
        runs.gone.insert(run.into())
    }
}
