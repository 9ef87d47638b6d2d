//! Builds listings of directories that are too large for memory.

use bytes::Bytes;

use super::{build::ListingBuilder, encoding::Listing};
use crate::tree::entry::Entry;

/// A builder moves its bytes to a row after this many, so only large directories leave memory.
const STEP_BYTES: usize = 1 << 20;

/// Stores consecutive bytes in a place with more room than memory.
pub trait Row: Default {
    /// The reason why it accepts no more.
    type Error;

    /// Returns the number of its bytes.
    fn len(&self) -> usize;

    /// Returns whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// If there is no room for them.
    fn append(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Returns all bytes.
    ///
    /// # Errors
    /// If the last of them cannot be stored, or they cannot be read.
    fn finish(self) -> Result<Bytes, Self::Error>;
}

/// The parts of a listing, each in its own row until it is complete.
#[derive(Debug, Default)]
struct SpillParts<R> {
    entries: R,
    owners: R,
    attrs: R,
}

impl<R: Row> SpillParts<R> {
    /// Takes the bytes that `builder` holds.
    fn take(&mut self, builder: &mut ListingBuilder) -> Result<(), R::Error> {
        let rows = [&mut self.entries, &mut self.owners, &mut self.attrs];
        for (row, held) in rows.into_iter().zip(builder.parts()) {
            row.append(held)?;
            held.clear();
        }
        Ok(())
    }

    /// Returns the listing of all bytes taken, and of those that `builder` still holds.
    fn finish(mut self, mut builder: ListingBuilder) -> Result<Listing, R::Error> {
        builder.end_run();
        self.take(&mut builder)?;
        let Self { entries: mut bytes, owners, attrs } = self;
        let owners_at = bytes.len();
        let attrs_at = owners_at + owners.len();
        bytes.append(&owners.finish()?)?;
        bytes.append(&attrs.finish()?)?;
        Ok(builder.finish_as(bytes.finish()?, owners_at, attrs_at))
    }
}

/// Builds listings of any size like [`ListingBuilder`], and moves the bytes of large ones to rows of the kind `R`.
#[derive(Debug, Default)]
pub struct SpillingBuilder<R> {
    builder: ListingBuilder,
    spilled: Option<Box<SpillParts<R>>>,
}

impl<R: Row> SpillingBuilder<R> {
    /// Appends an entry as [`ListingBuilder::push`] does.
    ///
    /// # Errors
    /// If there is no room for more.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<(), R::Error> {
        self.builder.push(entry);
        if self.builder.held() < STEP_BYTES {
            Ok(())
        } else {
            self.spilled.get_or_insert_default().take(&mut self.builder)
        }
    }

    /// Returns the number of entries, as [`ListingBuilder::len`].
    pub fn len(&self) -> u32 {
        self.builder.len()
    }

    /// Returns whether there is no entry yet, as [`ListingBuilder::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    /// Marks the directory as incomplete, as [`ListingBuilder::mark_incomplete`] does.
    pub fn mark_incomplete(&mut self) {
        self.builder.mark_incomplete();
    }

    /// Returns the listing, as [`ListingBuilder::finish`].
    ///
    /// # Errors
    /// If there is no room for all of it.
    pub fn finish(self) -> Result<Listing, R::Error> {
        match self.spilled {
            None => Ok(self.builder.finish()),
            Some(parts) => parts.finish(self.builder),
        }
    }
}

#[cfg(test)]
impl Row for Vec<u8> {
    type Error = std::convert::Infallible;

    fn len(&self) -> usize {
        self.len()
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Self::Error> {
        self.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self) -> Result<Bytes, Self::Error> {
        Ok(self.into())
    }
}
