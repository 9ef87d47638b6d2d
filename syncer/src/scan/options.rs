//! The options of a scan.

use std::sync::Arc;

use crate::{
    entry::Time,
    filter::{Filter, FilterRules, SizeLimits},
    kept_xattrs::Classes,
    path_list::PathList,
    reshape::Reshape,
    tree::noted_in_motion::NotedFiles,
};

/// The options of a scan.
#[derive(Debug, Default)]
pub(crate) struct ScanOptions {
    /// The entries to exclude.
    pub filter: Filter,
    /// Whether a directory of which an entry is excluded counts as incomplete.
    pub marks_excluded: bool,
    /// The only entry of the root that is scanned, by its name.
    pub only: Option<Box<[u8]>>,
    /// The only paths that are scanned. A directory above them is incomplete.
    pub paths: Option<PathList>,
    /// Whether to read ignore files, and exclude their matches.
    pub ignore_files: bool,
    /// Rules that look for files of further rules in each directory.
    pub merges: Option<Arc<FilterRules>>,
    /// Whether to list folders of other file systems than the root's as empty, with rules that exclude all their
    /// entries.
    pub leave_mounts: bool,
    /// Whether to leave modes out of the comparison.
    pub ignore_permissions: bool,
    /// The changes of permissions and owners with which entries are listed.
    pub reshape: Reshape,
    /// Whether to leave out pipes, devices and sockets.
    pub ignore_specials: bool,
    /// Whether to list sockets, which are otherwise counted and left out.
    pub list_sockets: bool,
    /// Whether to find the names that are hard links of one another.
    pub hard_links: bool,
    /// The sizes of files that may be hard links; files of other sizes are listed without.
    pub sizes: SizeLimits,
    /// The extended attributes to read.
    pub attrs: Classes,
    /// Files that were changed at this time or later get a time that no file has, because their content may be damaged.
    pub doubt: Option<Time>,
    /// Files whose listed times are [marked](Time::to_compare), because their content may not be the source's.
    pub noted: Arc<NotedFiles>,
    /// Whether to list the `user.*` attributes of unreadable files without values. Otherwise such a file is an error.
    pub unreadable_attrs: bool,
    /// Take stamps of regular files that were last changed before this time. A file keeps its stamp until its inode or
    /// its content changes; 0 is no stamp.
    pub stamps: Option<Time>,
    /// Whether the scan's time counts as the source's.
    pub is_source: bool,
}

impl ScanOptions {
    /// Returns whether the scan lists every entry that a run may change, so that a directory with an empty listing is
    /// empty. Directories above [`ScanOptions::paths`] are recognised by their incomplete listings.
    pub(crate) fn lists_all(&self) -> bool {
        // Each option is named, so that a new one has to be judged here.
        #[rustfmt::skip]
        let Self {
            filter, only, paths: _, ignore_files, merges, leave_mounts, ignore_specials, sizes,
            marks_excluded: _, ignore_permissions: _, reshape: _, list_sockets: _, hard_links: _, attrs: _, doubt: _, noted: _, unreadable_attrs: _,
            stamps: _, is_source: _,
        } = self;
        let takes_any = filter.is_empty() && only.is_none() && *sizes == SizeLimits::default();
        takes_any && !ignore_files && merges.is_none() && !leave_mounts && !ignore_specials
    }

    /// Returns whether the scan reads all properties of entries that a copy can keep.
    pub(crate) fn sees_all(&self) -> bool {
        !self.ignore_permissions && self.hard_links && self.attrs == Classes::ALL
    }
}
