//! What the operator tells of itself: log, metrics, probes, events and traces.

mod bounded_listener;
pub mod events;
pub mod job_gauges;
mod log_format;
pub mod metrics;
pub mod probes;
pub mod ready;
pub(crate) mod spans;
pub mod traces;

pub use log_format::{LogFormat, init};
