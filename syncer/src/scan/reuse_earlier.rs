//! Reuses the entries of an earlier scan of the same tree that cannot have changed since.

use std::{
    collections::{HashMap, HashSet},
    iter::Peekable,
};

use crate::{
    attrs::Attrs,
    entry::{Entry, Kind, Meta, Time},
    listing::Listing,
    path::RelPath,
    scan::dir_queue::PendingDir,
    sys::spill_to_file::SPILL_BYTES,
    tree::{
        Tree,
        dir::{Beyond, Dir, DirId},
        seek::seek,
    },
};

/// What is known of a tree before it is scanned.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KnownTree<'a> {
    /// An earlier scan of it.
    pub scan: Option<EarlierScan<'a>>,
    /// The files that were written since.
    pub written: Option<&'a dyn WrittenEntries>,
}

/// Knows files that this process has just written, so that a scan lists them without a look.
pub(crate) trait WrittenEntries: std::fmt::Debug + Sync {
    /// Returns the written files of a directory that have one name and no attributes, by ascending names.
    fn files(&self, dir: &RelPath) -> WrittenNames<'_>;
}

/// Written files of one directory, by ascending names.
pub(crate) type WrittenNames<'a> = Box<dyn Iterator<Item = (&'a [u8], WrittenEntry)> + 'a>;

/// A file with one name and without attributes, as it was after the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WrittenEntry {
    /// Its length in bytes.
    pub size: u64,
    /// Its metadata.
    pub meta: Meta,
    /// Its change time.
    pub changed: Time,
    /// Its stamp, however recent the change was.
    pub stamp: u64,
}

impl WrittenEntry {
    /// Returns the listing's entry for the file, which has this name.
    pub(crate) fn entry<'a>(&self, name: &'a [u8]) -> Entry<'a> {
        Entry { name, kind: Kind::File { size: self.size }, meta: self.meta, attrs: Attrs::default() }
    }

    /// Returns its stamp if it was last changed before this time, else 0.
    pub(crate) fn stamp_before(&self, before: Time) -> u64 {
        if self.changed < before { self.stamp } else { 0 }
    }
}

/// An earlier scan of the same tree with the same options, and the directories that may have changed since.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EarlierScan<'a> {
    /// The earlier scan.
    pub tree: &'a Tree,
    /// The directories whose listings may be outdated. A directory that lists one of several names of a file has to be
    /// [`ChangedEntries::All`].
    pub changed: &'a HashMap<DirId, ChangedEntries>,
}

/// The entries of a directory that may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChangedEntries {
    /// All entries, and there may be new ones.
    All,
    /// Only some entries.
    Named {
        /// The names of entries that the directory had.
        names: HashSet<Box<[u8]>>,
        /// Whether there may be new entries, so that the names have to be read again.
        may_have_new: bool,
    },
}

/// A directory that the earlier scan has found.
pub(super) struct KnownDir<'a> {
    pub dir: &'a Dir,
    /// The entries that may have changed; `None` if none have.
    pub changed: Option<&'a ChangedEntries>,
}

impl<'a> KnownDir<'a> {
    /// Returns the listing that has the names of all entries, if no entry can be new.
    pub(super) fn listing_of_names(self) -> Option<&'a Listing> {
        let Dir { listing, leaves_out, .. } = self.dir;
        let is_same = matches!(self.changed, Some(ChangedEntries::Named { may_have_new: false, .. }));
        let has_all = listing.is_complete() && !leaves_out && listing.encoded_len() <= SPILL_BYTES;
        (is_same && has_all).then_some(listing)
    }

    /// Starts to look up entries, by names in ascending order.
    pub(super) fn entries(self) -> KnownEntries<'a> {
        let changed = match self.changed {
            Some(ChangedEntries::Named { names, .. }) => Some(names),
            _ => None,
        };
        let Dir { listing, stamps, inodes, .. } = self.dir;
        let entries = listing.iter().zip(stamps.iter().zip(inodes.iter()));
        let entries = entries.map(|(entry, (&stamp, &inode))| Stamped { entry, stamp, inode });
        KnownEntries { changed, entries: (Box::new(entries) as Box<StampedEntries<'a>>).peekable() }
    }
}

/// An entry with its stamp and its inode.
pub(super) struct Stamped<'a> {
    pub entry: Entry<'a>,
    pub stamp: u64,
    /// See [`Dir::inodes`].
    pub inode: u32,
}

type StampedEntries<'a> = dyn Iterator<Item = Stamped<'a>> + 'a;

/// The entries of a known directory, with their stamps.
pub(super) struct KnownEntries<'a> {
    /// `None` if all may have changed.
    changed: Option<&'a HashSet<Box<[u8]>>>,
    entries: Peekable<Box<StampedEntries<'a>>>,
}

impl<'a> KnownEntries<'a> {
    /// Returns the entry of this name, if it cannot have changed.
    pub(super) fn unchanged(&mut self, name: &[u8]) -> Option<Stamped<'a>> {
        if self.changed?.contains(name) {
            return None;
        }
        seek(&mut self.entries, name, |known| known.entry.name)
    }
}

impl<'a> EarlierScan<'a> {
    /// Returns a directory of this scan, by its number there.
    pub(super) fn dir(&self, id: DirId) -> KnownDir<'a> {
        KnownDir { dir: &self.tree.dirs[id as usize], changed: self.changed.get(&id) }
    }

    /// Finds the subdirectories of a directory of this scan, which are in the order of their names.
    pub(super) fn recognise(&self, id: DirId, below: &mut [PendingDir]) {
        let dirs = &self.tree.dirs;
        let mut children = dirs[id as usize].children().peekable();
        for dir in below {
            let Some(name) = dir.path.names().last() else { continue };
            dir.known = seek(&mut children, name, |(known, _)| known).map(|(_, id)| id);
            dir.beyond = dir.known.map_or(Beyond::default(), |id| dirs[id as usize].beyond);
        }
    }
}
