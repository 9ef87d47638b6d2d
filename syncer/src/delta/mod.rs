//! Sending what changed inside of files, and nothing else.
//!
//! # The idea
//!
//! A file is cut into chunks where its content says so ([`chunk`]); a chunk is called by its BLAKE3 hash ([`name`]); the
//! chunks of a file are its list ([`list`]). The sink has lists of its own files, from its index or from reading
//! them; the source gets those that matter as a [`basis`], goes through its file and says in steps how to make it
//! from what is there ([`diff`]); the sink follows the steps and checks what comes of them ([`patch`]). Where
//! large chunks are too coarse, a second round with small ones looks at the holes only ([`refine`]).
//! Whether any of it is worth it is a matter of cost ([`strategy`]).
//!
//! ```text
//! sink    ChunkList::short ──────────────▶ Basis          source
//!                                            │ Differ ◀── bytes of its file, once
//!         Assembly ◀──── Op, Piece ──────────┘
//!            │ Task ◀─── literal bytes
//!            ▼
//!         the target's ChunkList, if the Root is the source's
//! ```
//!
//! # What holds
//!
//! - A file is read and hashed once at each end, by any number of threads. There is no separate hash of the whole file:
//!   the [`Root`](list::Root) is made from the chunks' hashes, and no target is complete whose root differs.
//! - The cuts of a file depend on its content and the [`ChunkSizes`](chunk::ChunkSizes) and on nothing else: not on how
//!   the bytes arrive, on the machine's vector width, or on the basis.
//! - Everything is bounded by arguments and by the largest chunk. What a peer sends is checked before it is used.
//!
//! Nothing here opens a file, a socket or a thread, or reads a clock.

pub mod basis;
pub mod chunk;
pub mod diff;
pub mod digest;
mod filter;
pub mod granules;
pub mod list;
mod marks;
pub mod name;
pub mod patch;
pub mod refine;
pub mod strategy;
#[cfg(test)]
mod testing;
pub mod window;
