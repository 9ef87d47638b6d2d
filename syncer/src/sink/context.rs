//! The state of a run that all workers at the sink share.

use crate::{
    destination::Destination,
    measure::{
        monitor::Monitor,
        report::{Counters, Failures},
    },
    snapshot::create::WrittenFiles,
};

/// References to the state of a run that every worker at the sink needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub destination: &'a Destination,
    pub failures: &'a Failures,
    pub counters: &'a Counters,
    pub monitor: &'a Monitor,
    /// Records the files that are written, if the run takes a snapshot.
    pub written: Option<&'a WrittenFiles>,
}
