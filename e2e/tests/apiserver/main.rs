//! Tests on a real API server with a played kubelet, a file a behaviour. One program has them all, so that they share
//! one server.
#![allow(clippy::unwrap_used)] // clippy does not take the helpers of tests for tests

mod benchmark;
mod claims;
mod crds;
mod deletion;
mod devices;
mod gitops;
mod hooks;
mod kills;
mod lease;
mod load;
mod local;
mod names;
mod plugin;
mod queue;
mod reported;
mod rivals;
mod runs;
mod samples;
mod schedule;
mod shards;
mod snapshots;
mod status;
