//! Listings of directories that are too large to be built in memory.

use std::io;

use super::{Listing, ListingBuilder};
use crate::{entry::Entry, spool::Spool};

/// What is built is put where there is more room by so many bytes, so all but the largest directories are built in memory.
const STEP_BYTES: usize = 1 << 20;

/// The parts of a listing, each in a row of its own until it is whole.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) entries: Spool,
    pub(super) owners: Spool,
    pub(super) attrs: Spool,
}

/// A [`ListingBuilder`] for directories of any size.
#[derive(Debug, Default)]
pub struct SpillingBuilder {
    builder: ListingBuilder,
    spilled: Option<Box<Parts>>,
}

impl SpillingBuilder {
    /// As [`ListingBuilder::push`].
    ///
    /// # Errors
    /// When there is no room for more.
    pub fn push(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        self.builder.push(entry);
        match self.builder.held() < STEP_BYTES {
            true => Ok(()),
            false => self.builder.spill(self.spilled.get_or_insert_default()),
        }
    }

    /// As [`ListingBuilder::len`].
    pub fn len(&self) -> u32 {
        self.builder.len()
    }

    /// As [`ListingBuilder::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    /// As [`ListingBuilder::mark_incomplete`].
    pub fn mark_incomplete(&mut self) {
        self.builder.mark_incomplete();
    }

    /// As [`ListingBuilder::finish`].
    ///
    /// # Errors
    /// When there is no room for all of it.
    pub fn finish(self) -> io::Result<Listing> {
        match self.spilled {
            None => Ok(self.builder.finish()),
            Some(parts) => self.builder.finish_spilled(*parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        attrs::{Attrs, put_attr},
        entry::{Kind, Meta, Owner},
        spool::SPILL_BYTES,
    };

    #[test]
    fn a_listing_is_the_same_however_it_was_built() {
        for count in [0, 3, 20_000, 60_000] {
            let (mut small, mut large) = (ListingBuilder::default(), SpillingBuilder::default());
            for number in 0..count {
                let name = format!("{number:0200}");
                let mut attrs = Vec::new();
                put_attr(&mut attrs, b"user.number", &[(number % 251) as u8]);
                let owner = Owner { uid: number / 2, gid: 0 };
                let meta = Meta { mode: (number % 7) as u16, owner, ..Meta::default() };
                let attrs = Attrs::trusted(if number % 3 == 0 { &attrs } else { &[] });
                let kind = Kind::File { size: number.into() };
                let entry = Entry { name: name.as_bytes(), kind, meta, attrs };
                small.push(&entry);
                large.push(&entry).unwrap();
            }
            assert_eq!(large.spilled.is_some(), count >= 20_000);
            let listing = large.finish().unwrap();
            assert_eq!(listing.encoded_len() > SPILL_BYTES, count == 60_000);
            assert_eq!(listing, small.finish(), "{count}");
        }
    }
}
