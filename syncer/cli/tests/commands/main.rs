//! The program's commands as a script sees them, but for whole runs and snapshots, which link the engine: those are the
//! programs beside this one.

#![allow(clippy::unwrap_used)] // clippy does not take the helpers of tests for tests

mod cli;
mod generate;
mod page;
mod report;
