//! Logs peers that were refused, so that they cannot fill the log.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::run_log::RUNS;

/// The least time between two lines about refused peers.
const EVERY: Duration = Duration::from_secs(1);

/// The peers that were refused, of which at most one in a second is logged.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// When one was logged, and how many were refused since.
    told: Mutex<(Option<Instant>, u64)>,
}

impl Refused {
    /// Logs a peer, unless one was logged just before.
    pub(crate) fn add(&self, peer: Option<SocketAddr>, cause: &str) {
        if let Some(others) = self.others() {
            let peer = peer.map(tracing::field::display);
            tracing::warn!(target: RUNS, peer, cause, others, "a peer was refused");
        }
    }

    /// Counts a peer. Returns the number of others since the last line, if a line is due.
    fn others(&self) -> Option<u64> {
        let mut told = self.told.lock();
        if told.0.is_some_and(|at| at.elapsed() < EVERY) {
            told.1 += 1;
            return None;
        }
        let others = told.1;
        *told = (Some(Instant::now()), 0);
        Some(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_that_are_refused_few_are_logged() {
        let refused = Refused::default();
        let told: Vec<u64> = (0..100).filter_map(|_| refused.others()).collect();
        assert!(told.len() < 100 && told[0] == 0, "{told:?}");
    }
}
