//! Side-by-side runs of Volferry and its peers, with their tools.
//!
//! `bin/peers` runs them, `bin/snapshots` measures the cost of snapshots, `bin/history` that of their copies,
//! `bin/compare` runs two builds in turn, `bin/profile` draws a flamegraph, and `bin/tables` writes figures into
//! documents.

use std::{fs, path::Path, process::ExitCode};

use anyhow::Context as _;
use serde::Serialize;

pub mod compare;
pub mod comparison_table;
pub mod counted_system_calls;
pub mod document;
pub mod figures;
pub mod machine;
pub mod network_namespaces;
pub mod peers;
pub mod probe;
pub mod runner;
pub mod scenario;
pub mod small_files;
pub mod stats;
pub mod steps;
pub mod suites;
pub mod trees;
pub mod trial;
pub mod workdir;

/// Writes figures to the file that was asked for, as JSON.
pub fn write_json(path: Option<&Path>, figures: &impl Serialize) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(figures)? + "\n";
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// Returns the exit status of a bench: whether its figures are good enough. Errors are printed to standard error.
pub fn exit_code(good_enough: anyhow::Result<bool>) -> ExitCode {
    let told = good_enough.inspect_err(|error| eprintln!("{error:#}"));
    told.map_or(ExitCode::FAILURE, |good| ExitCode::from(u8::from(!good)))
}
