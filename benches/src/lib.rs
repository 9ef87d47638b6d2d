//! Side-by-side runs of Volferry and its peers, with their tools: reference trees and their edits, a tree comparison
//! that shares no code with the engine, and a UDP relay that behaves like a long, lossy link.
//!
//! `bin/peers` runs them, `bin/relay` is only the relay, `bin/snapshots` measures the cost of snapshots, `bin/history`
//! that of their copies, `bin/compare` runs two builds in turn, `bin/profile` draws a flamegraph, and `bin/tables` writes
//! figures into documents.

pub mod compare;
pub mod document;
pub mod edits;
pub mod ends;
pub mod figures;
pub mod link;
pub mod machine;
pub mod peers;
pub mod probe;
pub mod process;
pub mod relay;
pub mod rng;
pub mod runner;
pub mod scenario;
pub mod small_files;
pub mod stats;
pub mod suites;
pub mod table;
pub mod trees;
pub mod trial;
pub mod verify;
pub mod workdir;

/// Returns the exit status of a bench: whether its figures are good enough. Errors are printed to standard error.
pub fn exit_code(good_enough: anyhow::Result<bool>) -> std::process::ExitCode {
    good_enough
        .inspect_err(|error| eprintln!("{error:#}"))
        .map_or(std::process::ExitCode::FAILURE, |good| std::process::ExitCode::from(u8::from(!good)))
}
