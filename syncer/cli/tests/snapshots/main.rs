//! Snapshots of volumes, by the program's commands: their content, their restore, and the store after an interruption.

#![allow(unreachable_pub)] // a program has no users
#![allow(clippy::unwrap_used)] // clippy does not take the helpers of tests for tests

#[path = "../common/mod.rs"]
mod common;

mod after_run;
mod archive;
mod archive_kills;
mod bucket;
mod bucket_answers;
mod bucket_faults;
mod bucket_indexes;
mod bucket_kills;
mod bucket_lists;
mod bucket_looks;
mod bucket_model;
mod bucket_room;
mod bucket_upkeep;
mod commands;
mod copy;
mod copy_far;
mod copy_service;
mod crash;
mod damage;
mod device;
mod formats;
mod full;
mod history;
mod in_motion;
mod inside;
mod look;
mod many;
mod model;
mod mount;
mod moved_meanwhile;
mod network;
mod offsite;
mod planted;
mod repair;
mod restore;
mod roundtrip;
mod source;
mod volume;
