//! Decides how a scan looks at a tree.

use crate::{
    attrs::Classes,
    entry::Time,
    filter::{Filter, SizeLimits},
    path_list::PathList,
};

/// Decides how a scan looks at a tree.
#[derive(Debug, Default)]
pub struct ScanOptions {
    /// The entries to exclude.
    pub filter: Filter,
    /// The only entry of the root that is scanned, by its name.
    pub only: Option<Box<[u8]>>,
    /// The only paths that are scanned. A directory above them is incomplete.
    pub paths: Option<PathList>,
    /// Read ignore files, and exclude their matches.
    pub ignore_files: bool,
    /// List folders of other file systems than the root's as empty, with rules that exclude everything in them.
    pub leave_mounts: bool,
    /// Leave modes out of the comparison.
    pub ignore_permissions: bool,
    /// Leave out pipes, devices and sockets.
    pub ignore_specials: bool,
    /// List sockets, which are otherwise counted and left out.
    pub list_sockets: bool,
    /// Find the names that are hard links of one another.
    pub hard_links: bool,
    /// Files of other sizes are listed, but never as hard links.
    pub sizes: SizeLimits,
    /// The extended attributes to read.
    pub attrs: Classes,
    /// Files that were changed at this time or later get a time that no file has, because their content may be damaged.
    pub doubt: Option<Time>,
    /// List the `user.*` attributes of unreadable files without values. Otherwise such a file is an error.
    pub unreadable_attrs: bool,
    /// Take stamps of regular files that were last changed before this time. A file keeps its stamp until its inode or
    /// its content changes; 0 is no stamp.
    pub stamps: Option<Time>,
    /// The time that the scan takes is the source's.
    pub is_source: bool,
}

impl ScanOptions {
    /// Whether the scan lists every entry that a run may change, so that a directory with an empty listing is empty.
    /// Directories above [`ScanOptions::paths`] are known by their incomplete listings.
    pub(crate) fn lists_all(&self) -> bool {
        // Each option is named, so that a new one has to be judged here.
        #[rustfmt::skip]
        let Self {
            filter, only, paths: _, ignore_files, leave_mounts, ignore_specials, sizes,
            ignore_permissions: _, list_sockets: _, hard_links: _, attrs: _, doubt: _, unreadable_attrs: _, stamps: _,
            is_source: _,
        } = self;
        let takes_any = filter.is_empty() && only.is_none() && *sizes == SizeLimits::default();
        takes_any && !ignore_files && !leave_mounts && !ignore_specials
    }

    /// Whether the scan sees everything of the entries that a copy can keep.
    pub(crate) fn sees_all(&self) -> bool {
        !self.ignore_permissions && self.hard_links && self.attrs == Classes::ALL
    }
}
