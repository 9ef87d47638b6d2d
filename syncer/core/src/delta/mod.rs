//! Sends the changes inside of files, and nothing else.
//!
//! # The idea
//!
//! If nothing has moved, a file is compared in [`granules`] of equal size at their offsets. If bytes may have moved, it
//! is cut into chunks at positions that its content chooses ([`cut_chunks`]), which are named by their BLAKE3 hashes
//! ([`short_name`]); the chunks of a file are its [`list`]. The sink sends the names of its granules or chunks. The
//! source reads its file and finds the content that the sink has: by [`Granules::kept`](granules::Granules::kept), or
//! in a [`basis`] by a [`diff`]. The rest crosses as literals.
//!
//! # Guarantees
//!
//! - A file is read and hashed once at each end. There is no separate hash of the whole file: it is made from those of
//!   its granules or chunks, and no file is published that does not have the source's.
//! - The cuts of a file depend only on its content and the [`chunk_sizes`]: not on how the bytes arrive, on the vector
//!   width of the machine, or on the basis.
//! - Everything is bounded by arguments and by the largest chunk. Data from a peer is checked before it is used.
//!
//! Nothing here opens a file, a socket or a thread, or reads a clock.

pub mod basis;
pub mod checked;
mod chunk_offsets;
pub mod chunk_sizes;
pub mod cut_chunks;
mod cut_filter;
pub mod diff;
#[cfg(test)]
mod edits;
pub mod features;
pub mod granules;
pub mod list;
pub mod short_name;
#[doc(hidden)]
pub mod testing;
pub mod window;
