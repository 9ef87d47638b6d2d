//! Parts of the engine that its own tests, benches and fuzzers use. They may change with any commit.

pub use volferry_core::{
    block_sizes, codec, delta, hash,
    tree::{self, attrs, entry, kept_xattrs, listing, owners, path},
    wire,
};

pub use crate::destination::{ClonedAt, JournalEntry, VolumeLock};
