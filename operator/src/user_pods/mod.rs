//! Pods for one command of a user of `kubectl volferry`: the Jobs that make them, and the first process in them. The
//! user starts the engine by `exec`.

pub mod browse_job;
pub mod hold;
mod idle_limit;
pub mod one_off_job;
mod taken_over;
