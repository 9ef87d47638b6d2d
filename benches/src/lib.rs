//! Side-by-side runs of Volferry and its peers, with their tools.
//!
//! `bin/peers` runs them, `bin/snapshots` measures the cost of snapshots, `bin/history` that of their copies,
//! `bin/compare` runs two builds in turn, `bin/profile` draws a flamegraph, and `bin/tables` writes figures into
//! documents.

pub mod compare;
pub mod counted_system_calls;
pub mod document;
pub mod ends;
pub mod figures;
pub mod machine;
pub mod peers;
pub mod probe;
pub mod runner;
pub mod scenario;
pub mod small_files;
pub mod stats;
pub mod steps;
pub mod suites;
pub mod table;
pub mod trees;
pub mod trial;
pub mod workdir;

/// Returns the exit status of a bench: whether its figures are good enough. Errors are printed to standard error.
pub fn exit_code(good_enough: anyhow::Result<bool>) -> std::process::ExitCode {
    good_enough
        .inspect_err(|error| eprintln!("{error:#}"))
        .map_or(std::process::ExitCode::FAILURE, |good| std::process::ExitCode::from(u8::from(!good)))
}
