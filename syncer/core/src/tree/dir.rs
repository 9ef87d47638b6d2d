//! One directory of a scanned tree, and sums over all of them.

use std::sync::Arc;

use super::{
    entry::{Kind, Time},
    listing::Listing,
    path::RelPath,
    stamps::Stamps,
};
use crate::hash::TreeDigest;

/// The number of a directory in its tree; the root is 0.
pub type DirId = u32;

/// The root's number.
pub const ROOT: DirId = 0;

/// A scanned directory.
#[derive(Debug, Default)]
pub struct Dir {
    /// Its entries.
    pub listing: Listing,
    /// The number of its first subdirectory, greater than its own. The others follow in the order of their names.
    pub first_child: DirId,
    /// Of this directory and everything below it.
    pub digest: TreeDigest,
    /// The text of its ignore files, if the run uses them; empty if it has none.
    pub rules: Box<[u8]>,
    /// Whether some of its entries are excluded from the run, and so not listed.
    pub leaves_out: bool,
    /// Its inode number.
    pub inode: u64,
    /// Where it is, seen from the root.
    pub beyond: Beyond,
    /// The stamp of each entry, if the scan takes stamps; else empty. See `ScanOptions::stamps`.
    pub stamps: Arc<[u64]>,
    /// The inode of each entry, [folded](fold_inode), if the scan takes stamps; else empty. 0 for one that it has not
    /// looked at.
    pub inodes: Arc<[u32]>,
    /// The stamps of all files in it and below.
    pub seen: Stamps,
    /// The bytes of the files that it lists.
    pub bytes: u64,
}

impl Dir {
    /// Yields the names of its subdirectories, with their numbers.
    pub fn children(&self) -> impl Iterator<Item = (&[u8], DirId)> {
        let dirs = self.listing.iter().filter(|entry| entry.kind == Kind::Dir);
        dirs.map(|entry| entry.name).zip(self.first_child..)
    }

    /// Yields the stamps of its files that have content; 0 for those without a stamp.
    pub fn stamps_of_files(&self) -> impl Iterator<Item = u64> {
        let stamps = self.stamps.iter().copied().chain(std::iter::repeat(0));
        self.listing.iter().zip(stamps).filter(|(entry, _)| entry.kind.has_content()).map(|(_, stamp)| stamp)
    }

    /// Returns the inode of the entry at an index, [folded](fold_inode), if the scan has looked at it.
    pub fn inode_at(&self, index: u32) -> Option<u32> {
        self.inodes.get(index as usize).copied().filter(|inode| *inode != 0)
    }

    /// Combines the stamps of its files with those of its subdirectories, `below`.
    pub fn stamps_with(&self, below: impl Iterator<Item = Stamps>) -> Stamps {
        if self.listing.is_complete() { Stamps::of(self.stamps_of_files(), below) } else { Stamps::unknown() }
    }
}

/// Folds an inode number into half its bits, to remember that of each entry. Different numbers may become equal.
pub fn fold_inode(inode: u64) -> u32 {
    (inode ^ inode >> 32) as u32
}

/// What lies between a directory and the root of its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Beyond {
    /// Whether it is on another file system than the root.
    pub file_system: bool,
    /// Whether it is seen through another mount than the root, which may show the same file system.
    pub mount: bool,
}

impl Beyond {
    /// Returns whether it is on the root's file system and in the root's mount.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// Sums over a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Entries, without the root.
    pub entries: u64,
    /// Bytes of regular files.
    pub bytes: u64,
    /// Sockets, which are never synced.
    pub skipped: u64,
    /// Bytes of files that have holes, each rounded up to 64 KiB.
    pub sparse: u64,
    /// The latest modification of any entry, including the root.
    pub newest: Time,
}

/// The file systems that are mounted below the root of a tree, without those below another one; or entries in them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mounts {
    /// Their number.
    pub count: u64,
    /// The first of them, by its path; the root if there are none.
    pub first: RelPath,
}

impl Mounts {
    /// Counts the one at `path`.
    pub fn add(&mut self, path: RelPath) {
        self.merge(Self { count: 1, first: path });
    }

    /// Adds the count of another part of the same tree.
    pub fn merge(&mut self, other: Self) {
        let is_first = self.count == 0 || other.first < self.first;
        self.count = self.count.saturating_add(other.count);
        if other.count > 0 && is_first {
            self.first = other.first;
        }
    }
}
