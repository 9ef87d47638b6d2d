//! Tests on a real API server with a simulated kubelet, one file per behaviour. All are in one program, so they share
//! one server, except those that change what the others rely on.
#![allow(clippy::unwrap_used)] // clippy does not take the helpers of tests for tests

mod agent_accounts;
mod benchmark;
mod browse;
mod buckets;
mod captures;
mod changed_blocks;
mod chart;
mod claims;
// The clock of a process is shifted by code for this architecture.
#[cfg(target_arch = "x86_64")]
mod clocks;
mod crds;
mod deletion;
mod devices;
mod endpoint_crowd;
mod endpoint_kills;
mod endpoint_rules;
mod endpoints;
mod endpoints_stage;
mod gitops;
mod granted;
mod granted_kills;
mod granted_tricks;
mod groups;
mod grow;
mod hooks;
mod images;
mod ipv6;
mod kills;
mod lease;
mod load;
mod local;
mod moving;
mod moving_stage;
mod names;
mod namespaced;
mod pair;
mod pairing;
mod placement;
mod plugin;
mod pods_that_do_not_start;
mod populated;
mod prelude;
mod prometheus;
mod push;
mod queue;
mod remote_ends;
mod remote_more;
mod remote_stage;
mod reported;
mod restarted;
mod rivals;
mod rules_abroad;
mod runs;
mod samples;
mod schedule;
mod sets;
mod shards;
mod snapshots;
mod status;
mod traces;
mod unreadable;
mod versions;
mod workload;
