//! Sending what changed inside of files, and nothing else.
//!
//! # The idea
//!
//! Where nothing has moved, a file is compared in [`granules`] of equal size at the offsets that they have. Where bytes
//! may have moved it is cut into chunks where its content says so ([`chunk`]), which are called by their BLAKE3 hashes
//! ([`name`]); the chunks of a file are its [`list`]. The sink sends the names of what it has; the source goes through
//! its file and finds what of it that is: by [`Granules::kept`](granules::Granules::kept), or in a [`basis`] by a
//! [`diff`]. The rest crosses.
//!
//! # What holds
//!
//! - A file is read and hashed once at each end. There is no separate hash of the whole file: it is made from those of
//!   its granules or chunks, and no file is published that does not have the source's.
//! - The cuts of a file depend on its content and the [`ChunkSizes`](chunk::ChunkSizes) and on nothing else: not on how
//!   the bytes arrive, on the machine's vector width, or on the basis.
//! - Everything is bounded by arguments and by the largest chunk. What a peer sends is checked before it is used.
//!
//! Nothing here opens a file, a socket or a thread, or reads a clock.

pub mod basis;
pub mod checked;
pub mod chunk;
mod chunk_offsets;
mod cut_filter;
pub mod diff;
#[cfg(test)]
mod edits;
pub mod features;
pub mod granules;
pub mod list;
pub mod name;
#[doc(hidden)]
pub mod testing;
pub mod window;
