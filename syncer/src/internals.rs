//! Parts of the engine that its own tests, benches and fuzzers use. They may change with any commit.

pub use volferry_core::{
    codec, delta, hash,
    tree::{self, attrs, entry, listing, owners, path},
    wire,
};

pub use crate::{
    apply::{Candidate, ClonedAt, Destination, EntryAt, JournalEntry, Settings, VolumeLock},
    motion::is_in_motion,
    scan::{ScanOptions, scan},
};
