//! The listing of a directory: its entries sorted by name, in one canonical encoding that is kept in memory, hashed for the directory's
//! digest and sent to the peer as it is.
//!
//! `syncer/doc/wire.md` describes the encoding.

mod build;
mod encoding;
mod layout;
mod places;
mod read;
mod spill;

pub use build::ListingBuilder;
pub use encoding::Listing;
pub use places::Places;
pub use read::Entries;
pub use spill::{Row, SpillingBuilder};
