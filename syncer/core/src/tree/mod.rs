//! A directory tree in memory: entries, their listings and digests, and the patterns that exclude some of them.

pub mod attrs;
pub mod dir;
pub mod entry;
pub mod entry_paths;
pub mod filter;
pub mod kept_mode_bits;
pub mod kept_times;
pub mod kept_xattrs;
pub mod lead_hard_links;
pub mod listing;
pub mod noted_in_motion;
pub mod owners;
pub mod path;
pub mod path_list;
pub mod reshape;
pub mod seek;
pub mod stamps;
pub mod whereabouts;

use crate::hash::TreeDigest;
use attrs::AttrsBuf;
use dir::{Dir, DirId, Mounts, ROOT, Totals};
use entry::{Kind, Meta, Time};
use filter::PatternUse;
use lead_hard_links::Group;
use owners::Owners;
use path::RelPath;

/// A scanned tree. It takes about 25 bytes of memory and a name for each entry, and 80 bytes for each directory.
#[derive(Debug, Default)]
pub struct Tree {
    /// All directories, indexed by [`DirId`].
    pub dirs: Vec<Dir>,
    /// The root directory's own metadata.
    pub root_meta: Meta,
    /// The root directory's own extended attributes.
    pub root_attrs: AttrsBuf,
    /// Sums over the tree.
    pub totals: Totals,
    /// The file systems that are mounted in it.
    pub mounts: Mounts,
    /// Whether a directory is on another file system or mount than the root.
    pub has_mounts: bool,
    /// Counts of the synced entries by owner, without the root.
    pub owners: Owners,
    /// When the scan began, by the clock that local file systems use. Later changes have this time or a later one.
    pub since: Time,
    /// Whether it lists sockets, or files whose attributes cannot be read, which a snapshot cannot contain.
    pub has_unstorable: bool,
    /// Files with more than one name, if hard links are kept.
    pub groups: Vec<Group>,
    /// What the patterns of the run matched in it, if it was scanned.
    pub patterns: Option<PatternUse>,
}

impl Tree {
    /// Returns whether any entry, or the root, has extended attributes.
    pub fn has_attrs(&self) -> bool {
        let bare = |dir: &Dir| dir.digest.attrs == TreeDigest::NO_ATTRS;
        !self.root_attrs.as_attrs().is_empty() || !self.dirs.first().is_none_or(bare)
    }

    /// Finds the directory at `path`.
    pub fn find(&self, path: &RelPath) -> Option<DirId> {
        path.names().try_fold(ROOT, |at, name| {
            let dir = &self.dirs[at as usize];
            let mut dirs = dir.listing.iter().filter(|entry| entry.kind == Kind::Dir);
            Some(dir.first_child + dirs.position(|entry| entry.name == name)? as DirId)
        })
    }

    /// Returns the tree of a root that does not exist: an empty directory.
    pub fn empty() -> Self {
        Self { dirs: vec![Dir::default()], ..Self::default() }
    }
}
