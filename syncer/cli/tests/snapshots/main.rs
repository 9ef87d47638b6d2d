//! Snapshots of volumes, by the program's commands: their content, their restore, and the store after an interruption.

#![allow(unreachable_pub)] // a program has no users
#![allow(clippy::unwrap_used)] // clippy does not take the helpers of tests for tests

#[path = "../common/mod.rs"]
mod common;

mod after_run;
mod commands;
mod crash;
mod damage;
mod formats;
mod full;
mod many;
mod model;
mod network;
mod roundtrip;
mod source;
mod volume;
