//! Names the objects of a store: its head, and the folders of those that need one another, since lists name indexes,
//! and these the packs.

/// The object by which a store is known: magic, version, id, and the magic once more, sealed.
pub(crate) const HEAD: &str = "volferry";

/// Its copy, since nothing can be read without the id.
pub(crate) const HEAD_COPY: &str = "volferry-copy";

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
