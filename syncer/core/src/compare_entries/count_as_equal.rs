//! Decides when two entries count as equal, by the rules of a run: contents, times, modes, owners and attributes.

use crate::{
    hash::TreeDigest,
    tree::{
        entry::{Entry, Kind, Owner},
        filter::SizeLimits,
        kept_mode_bits::kept_mode,
        kept_times::KeptTimes,
        kept_xattrs::Classes,
    },
};

/// The rules by which two entries count as equal.
#[derive(Debug, Clone, Copy, Default)]
pub struct Policy {
    /// Whether to remove entries that the source does not have.
    pub delete: bool,
    /// Whether entries on other file systems than the sink's root stay.
    pub one_file_system: bool,
    /// Whether sockets stay, and folders below the root that have a folder `.volferry`, with everything in them.
    pub spares_foreign: bool,
    /// Whether deletes cross into other mounts than the one of the sink's root.
    pub cross_mounts: bool,
    /// Whether owner and group are compared.
    pub owners: bool,
    /// The user of the process that writes. A file that another user can write to gets an owner, set-id bits or
    /// capabilities only with new content.
    pub user: Owner,
    /// Whether modes are compared.
    pub permissions: bool,
    /// Whether modification times are kept. If not, only a file's time is compared, because it shows whether the
    /// content may differ.
    pub times: bool,
    /// The times that the sink's file system can keep.
    pub kept_times: KeptTimes,
    /// The kinds of extended attributes that are compared.
    pub attrs: Classes,
    /// The sizes of files that take part.
    pub sizes: SizeLimits,
    /// Whether files that are newer at the sink are left alone.
    pub update: bool,
    /// Whether no new entries are made.
    pub existing: bool,
    /// Whether entries that the sink has are left alone, apart from directories.
    pub ignore_existing: bool,
    /// How far metadata decides that contents are equal.
    pub content: Content,
}

/// How far equal metadata proves that contents are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Content {
    /// Equal size and modification time mean equal content.
    #[default]
    Trusted,
    /// Equal size means equal content.
    BySize,
    /// Different sizes mean different content; with equal sizes, contents are compared.
    Compared,
    /// Contents are compared regardless of the metadata.
    Verified,
}

impl Policy {
    /// Returns whether two directories are equal with everything below them.
    pub fn same(&self, a: &TreeDigest, b: &TreeDigest) -> bool {
        // Digests do not cover contents. They differ where the sink's file system does not keep a time; the listings
        // then decide.
        matches!(self.content, Content::Trusted | Content::BySize)
            && a.entries == b.entries
            // What could not be read, or is not all of a folder, has none.
            && a.entries != TreeDigest::default().entries
            && (!self.owners || a.owners == b.owners)
            // If some kinds of attributes cannot be set, their digests may differ for ever. The listings then decide.
            && (self.attrs.is_empty() || a.attrs == b.attrs)
    }

    /// Returns whether the sink's entry has the source's time, as far as the sink's file system keeps it.
    pub(super) fn same_time(&self, source: &Entry<'_>, sink: &Entry<'_>) -> bool {
        source.meta.mtime == sink.meta.mtime || self.kept_times.kept(source.meta.mtime) == sink.meta.mtime
    }

    /// Returns whether the sink's mode may stay. Where owners are not kept, set-id bits may stay on a file that has the
    /// source's owner nevertheless: an equal directory is not looked into.
    pub(super) fn same_mode(&self, source: &Entry<'_>, sink: &Entry<'_>) -> bool {
        // A link's mode is always 0777, and is not compared.
        matches!(source.kind, Kind::Symlink { .. })
            || self.mode_of(source) == sink.meta.mode
            || source.meta.mode == sink.meta.mode && source.meta.owner == sink.meta.owner
    }

    /// Returns the mode that an entry gets.
    pub(super) fn mode_of(&self, entry: &Entry<'_>) -> u16 {
        kept_mode(entry.kind, &entry.meta, self.owners || entry.meta.owner == self.user)
    }
}
