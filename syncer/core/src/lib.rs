//! What the engine decides and encodes: trees, plans, deltas and messages, all of them bytes or values in memory.
//!
//! The list of dependencies in `Cargo.toml` shows that it does no I/O, starts no thread and reads no clock.
//! Modules stand bottom-up: [`codec`], [`hash`], [`tree`], [`delta`], [`wire`], [`plan`].

pub mod codec;
pub mod delta;
pub mod hash;
pub mod plan;
pub mod tree;
pub mod wire;
