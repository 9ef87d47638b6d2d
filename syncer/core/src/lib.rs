//! The pure part of the engine: trees, plans, deltas and messages, as bytes or values in memory.
//!
//! The dependencies in `Cargo.toml` show that it does no I/O, starts no thread and reads no clock. The modules,
//! bottom-up: [`codec`], [`block_sizes`], [`hash`], [`tree`], [`delta`], [`wire`], [`compare_entries`].

pub mod block_sizes;
pub mod codec;
pub mod compare_entries;
pub mod delta;
pub mod hash;
pub mod tree;
pub mod wire;
