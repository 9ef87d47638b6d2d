//! The state of a run that every worker of the sink's end shares.

use crate::{
    apply::Destination,
    monitor::Monitor,
    report::{Counters, Failures},
};

/// What every worker of the sink's end needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub destination: &'a Destination,
    pub failures: &'a Failures,
    pub counters: &'a Counters,
    pub monitor: &'a Monitor,
}
