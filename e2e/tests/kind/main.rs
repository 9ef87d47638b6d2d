//! Tests on the kind cluster that `e2e/run` starts, one file per behaviour. All are in one program, so they run
//! concurrently.
#![allow(clippy::unwrap_used)] // clippy does not take the helpers of tests for tests

/// Tests that stop or change the operator. They come first by their names, so that none waits until others have ended.
mod alone {
    mod uninstalled;
}
mod benchmark;
mod browse;
mod buckets;
mod clusters;
mod create;
mod deleted;
mod destination;
mod devices;
mod drained;
mod endpoint;
mod fsgroup;
mod granted;
mod history;
mod hooks;
mod ipv6;
mod local;
mod ownership;
mod page;
mod pairing;
mod prelude;
mod push;
mod rerun;
mod rwop;
mod shards;
mod snapshots;
mod sync;
mod syncer_killed;
mod tutorials;
