//! Builds a [`Listing`].

use bytes::Bytes;

use super::{
    encoding::Listing,
    layout::{HARD_LINK, NO_META, SAME_MODE, SAME_SECONDS, SOCKET, WHOLE_SECONDS},
};
use crate::{
    codec::{put_bytes, put_signed, put_varint},
    tree::{
        attrs::Attrs,
        entry::{Entry, Kind, Meta, Owner},
    },
};

/// Builds a [`Listing`]. Entries are pushed in the order of their names.
#[derive(Debug, Default)]
pub struct ListingBuilder {
    len: u32,
    dirs: u32,
    incomplete: bool,
    entries: Vec<u8>,
    owners: Vec<u8>,
    last_mode: u16,
    last_seconds: i64,
    run: Option<(Owner, u64)>,
    attrs: Vec<u8>,
    last_attrs: Vec<u8>,
    /// Entries without attributes since the last one that has some.
    bare: u64,
}

impl ListingBuilder {
    /// Appends an entry, whose name must come after the last one's.
    pub fn push(&mut self, entry: &Entry<'_>) {
        if let Kind::HardLink { to } = entry.kind {
            return self.push_link(entry.name, to);
        }
        let Meta { mode, mtime, owner } = entry.meta;
        let mut flags = code(&entry.kind);
        flags |= if mode == self.last_mode { SAME_MODE } else { 0 };
        flags |= if mtime.seconds == self.last_seconds { SAME_SECONDS } else { 0 };
        flags |= if mtime.nanos == 0 { WHOLE_SECONDS } else { 0 };
        let out = &mut self.entries;
        out.push(flags);
        out.push(entry.name.len() as u8);
        out.extend_from_slice(entry.name);
        if flags & SAME_MODE == 0 {
            put_varint(out, u64::from(mode));
        }
        if flags & SAME_SECONDS == 0 {
            put_signed(out, mtime.seconds.wrapping_sub(self.last_seconds));
        }
        if flags & WHOLE_SECONDS == 0 {
            put_varint(out, u64::from(mtime.nanos));
        }
        match entry.kind {
            Kind::File { size } => put_varint(out, size),
            Kind::Symlink { target } => put_bytes(out, target),
            Kind::CharDevice { rdev } | Kind::BlockDevice { rdev } => put_varint(out, rdev),
            Kind::Dir | Kind::Fifo | Kind::Socket | Kind::HardLink { .. } => {}
        }
        (self.last_mode, self.last_seconds) = (mode, mtime.seconds);
        self.len += 1;
        self.dirs += u32::from(entry.kind == Kind::Dir);
        self.push_owner(owner);
        self.push_attrs(entry.attrs);
    }

    fn push_link(&mut self, name: &[u8], to: &[u8]) {
        self.entries.push(HARD_LINK | NO_META);
        self.entries.push(name.len() as u8);
        self.entries.extend_from_slice(name);
        put_bytes(&mut self.entries, to);
        self.len += 1;
        // It continues the run of owners that it is in.
        self.push_owner(self.run.map_or_else(Owner::default, |(owner, _)| owner));
        self.push_attrs(Attrs::default());
    }

    /// Returns the number of entries that were added.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether there is no entry yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Marks the directory as one with entries that could not be read.
    pub fn mark_incomplete(&mut self) {
        self.incomplete = true;
    }

    /// Returns the listing, without spare memory.
    pub fn finish(mut self) -> Listing {
        self.end_run();
        let Self { len, dirs, incomplete, entries: mut bytes, owners, attrs, .. } = self;
        let owners_at = bytes.len();
        let attrs_at = owners_at + owners.len();
        bytes.extend_from_slice(&owners);
        bytes.extend_from_slice(&attrs);
        let bytes = bytes.into_boxed_slice().into();
        Listing { len, dirs, complete: !incomplete, bytes, owners_at, attrs_at }
    }

    /// Returns the listing of `bytes`, which were taken from it part by part.
    pub(super) fn finish_as(self, bytes: Bytes, owners_at: usize, attrs_at: usize) -> Listing {
        Listing { len: self.len, dirs: self.dirs, complete: !self.incomplete, bytes, owners_at, attrs_at }
    }

    /// Returns the number of bytes that it holds.
    pub(super) fn held(&self) -> usize {
        self.entries.len() + self.owners.len() + self.attrs.len()
    }

    /// Returns its entries, owners and attributes, for a caller that moves them to more room.
    pub(super) fn parts(&mut self) -> [&mut Vec<u8>; 3] {
        [&mut self.entries, &mut self.owners, &mut self.attrs]
    }

    fn push_attrs(&mut self, attrs: Attrs<'_>) {
        if attrs.is_empty() {
            self.bare += 1;
            return;
        }
        put_varint(&mut self.attrs, std::mem::take(&mut self.bare));
        if attrs.bytes() == self.last_attrs {
            self.attrs.push(0);
            return;
        }
        put_bytes(&mut self.attrs, attrs.bytes());
        self.last_attrs.clear();
        self.last_attrs.extend_from_slice(attrs.bytes());
    }

    fn push_owner(&mut self, owner: Owner) {
        match &mut self.run {
            Some((same, count)) if *same == owner => *count += 1,
            _ => {
                self.end_run();
                self.run = Some((owner, 1));
            }
        }
    }

    /// Writes the last run of owners.
    pub(super) fn end_run(&mut self) {
        if let Some((owner, count)) = self.run.take() {
            put_varint(&mut self.owners, count);
            put_varint(&mut self.owners, u64::from(owner.uid));
            put_varint(&mut self.owners, u64::from(owner.gid));
        }
    }
}

fn code(kind: &Kind<'_>) -> u8 {
    match kind {
        Kind::File { .. } => 0,
        Kind::Dir => 1,
        Kind::Symlink { .. } => 2,
        Kind::Fifo => 3,
        Kind::CharDevice { .. } => 4,
        Kind::BlockDevice { .. } => 5,
        Kind::Socket => SOCKET,
        Kind::HardLink { .. } => HARD_LINK,
    }
}
