//! Both ends of a session in one process.

use contract::RunParams;

use crate::{
    measure::monitor::Monitor,
    run::{
        local,
        outcome::{Clock, Outcome},
    },
    sink::open_destination::HeldDestination,
    sys::root::TreeLocation,
};

/// A source and a destination of one machine, between which any number of runs go, one after the other. The
/// destination stays locked from the first run until the session is dropped.
///
/// A run that fails or is canceled does not end the session.
#[derive(Debug)]
pub struct LocalSession {
    source: TreeLocation,
    destination: TreeLocation,
    held: HeldDestination,
}

impl LocalSession {
    /// Names both trees. Each run opens them again.
    pub fn new(source: impl Into<TreeLocation>, destination: impl Into<TreeLocation>) -> Self {
        let held = HeldDestination::kept_between_runs();
        Self { source: source.into(), destination: destination.into(), held }
    }

    /// Runs once. Every error is in the outcome. The `monitor` cancels this run only.
    pub fn run(&mut self, params: &RunParams, monitor: &Monitor) -> Outcome {
        let mut clock = Clock::start(monitor);
        let (from, to) = (&self.source, &self.destination);
        let result = local::run(from, to, params, &mut self.held, &mut clock.watch);
        clock.outcome(&params.run, result).with_no_snapshot(params.demands.snapshot.as_ref())
    }
}
