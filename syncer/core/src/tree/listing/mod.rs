//! The listing of a directory: its entries sorted by name, in one canonical encoding that is kept in memory, hashed for
//! the directory's digest and sent to the peer as it is.
//!
//! `syncer/doc/wire.md` describes the encoding.

mod build;
mod encoding;
mod entry_index;
mod layout;
mod read;
mod spill;

pub use build::ListingBuilder;
pub use encoding::Listing;
pub use entry_index::EntryIndex;
pub use read::Entries;
pub use spill::{Row, SpillingBuilder};
