//! Tests on the kind cluster that `e2e/run` brings up, a file a behaviour. One program has them all, so that they run
//! side by side.
#![allow(clippy::unwrap_used)] // clippy does not take the helpers of tests for tests

mod benchmark;
mod chain;
mod create;
mod deleted;
mod destination;
mod devices;
mod drained;
mod fsgroup;
mod guard;
mod hooks;
mod image;
mod local;
mod operator_killed;
mod ownership;
mod problems;
mod rerun;
mod shards;
mod snapshots;
mod sync;
mod syncer_killed;
mod tutorials;
mod uninstalled;
