//! Observes a run: counts and times it, shows it to its user, and stops it.

pub(crate) mod cpu_throttling;
pub mod failures;
pub mod monitor;
pub mod report;
pub(crate) mod thread_time;
