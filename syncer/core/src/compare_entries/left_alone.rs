//! Decides which entries of the sink are left alone. Some stay although the source lacks them: what the rules and sizes
//! of a run leave out, and what is on another mount or file system than the sink's root. Some stay although the source
//! has others: all that exist, or files that are newer, where the run is told so, and what the owner of the sink's tree
//! excludes.

use super::count_as_equal::Policy;
use crate::tree::{
    dir::Beyond,
    entry::{Entry, Kind},
    filter::{Filter, Rules, SizeLimits},
    path::RelPath,
};

impl Policy {
    /// Returns whether the entries of a sink's directory stay, because of where it is.
    pub fn spares(&self, beyond: Beyond) -> bool {
        beyond.mount && !self.cross_mounts || beyond.file_system && self.one_file_system
    }

    /// Returns whether the sink's entry is left alone because it is there. Folders are entered all the same.
    pub fn spares_existing(&self, source: &Entry<'_>, sink: &Entry<'_>) -> bool {
        self.ignore_existing && (source.kind, sink.kind) != (Kind::Dir, Kind::Dir)
    }

    /// Returns whether the sink's file is left alone because it is newer.
    pub fn spares_newer(&self, source: &Entry<'_>, sink: &Entry<'_>) -> bool {
        let are_files = matches!((source.kind, sink.kind), (Kind::File { .. }, Kind::File { .. }));
        self.update && are_files && sink.meta.mtime.of_the_file() > self.kept_times.kept(source.meta.mtime)
    }
}

/// The entries of one of the sink's directories that the run must leave alone.
#[derive(Debug, Clone, Copy)]
pub struct Spared<'a> {
    /// The directory.
    pub dir: &'a RelPath,
    /// The source's rules for it.
    pub rules: Option<&'a Rules>,
    /// The sizes of files that take part.
    pub sizes: SizeLimits,
    /// Patterns that the owner of the sink's tree excludes.
    pub owner: &'a Filter,
}

impl Spared<'_> {
    /// Returns whether an entry of the source must not be written: its name, or the file that it links to, is excluded
    /// here.
    pub fn forbids(&self, entry: &Entry<'_>) -> bool {
        self.owner.excludes(self.dir, entry.name, entry.kind == Kind::Dir) || self.forbids_target(entry)
    }

    /// Returns whether an entry of the source is a hard link to a file that is excluded here.
    pub fn forbids_target(&self, entry: &Entry<'_>) -> bool {
        let Kind::HardLink { to } = entry.kind else { return false };
        !self.owner.is_empty() && RelPath::parse(to).is_ok_and(|path| self.owner.excludes_path(&path))
    }

    /// Returns whether these rules spare no entry.
    pub fn is_nothing(&self) -> bool {
        self.rules.is_none() && self.sizes == SizeLimits::default()
    }

    /// Returns whether an entry of the sink stays that the source does not have, or has as one of another kind.
    pub fn holds(&self, entry: &Entry<'_>) -> bool {
        self.sizes.exclude(entry.kind) || self.by_rules(entry)
    }

    fn by_rules(&self, entry: &Entry<'_>) -> bool {
        let Some(rules) = self.rules else { return false };
        self.dir.join(entry.name).is_ok_and(|path| rules.excludes(&path, entry.kind == Kind::Dir))
    }
}
