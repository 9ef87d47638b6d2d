//! The folders of a store whose objects need one another: lists name indexes, and these the packs.

/// The folder of the lists.
pub(crate) const LISTS: &str = "lists";

/// The folder of the indexes.
pub(crate) const INDEXES: &str = "indexes";

/// The folder of the packs.
pub(crate) const PACKS: &str = "packs";

/// Returns whether an object is in a folder.
pub(crate) fn is_in(folder: &str, object: &str) -> bool {
    object.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}
