//! Whole runs of the program, local and over the network: the copies, the counts, the ends' reports and exit codes, and
//! the state after an interruption.
//!
//! All tests are in one program, because each program would link the whole engine again; there is one module per
//! behaviour.

#![allow(clippy::unwrap_used)] // clippy does not take the helpers of tests for tests

#[path = "../common/mod.rs"]
mod common;

mod arrived;
mod attributes;
mod attributes_too_large;
mod backup_dir;
mod bench;
mod bottleneck;
mod bound;
mod busy_source;
mod case_folding;
mod changed_blocks;
mod changing_source;
mod contents;
mod copies;
mod crash;
mod defaults;
mod demands;
mod devices;
mod devices_refused;
mod disks;
mod doctor;
mod doubt;
mod enroll;
mod exchange;
mod fidelity;
mod files_from;
mod filter_rules;
mod filters;
mod guards;
mod hard_links;
mod hostile_content;
mod hostile_devices;
mod hostile_far_end;
mod hostile_links;
mod hostile_sink;
mod hostile_source;
mod identities;
mod in_motion;
mod in_place;
mod interrupted;
mod joined;
mod judge;
mod kept_back;
mod kept_times;
mod large_folders;
mod library;
mod links;
mod lost_found;
mod mounts;
mod moved_away;
mod moved_onto_itself;
mod new_folders;
mod no_exchange;
mod one_file_system;
mod own_folder;
mod own_folder_names;
mod places;
mod refusals;
mod rehearsals;
mod remote;
mod remote_cuts;
mod reuse;
mod room;
mod secrets;
mod selection;
mod service;
mod service_demands;
mod service_peers;
mod service_unit;
mod serving;
mod sessions;
mod several;
mod several_peers;
mod shards;
mod single_files;
mod terminal;
mod two_machines;
mod unprivileged;
