//! Builds a directory of the store row by row.

use super::folder::{Folder, FolderRow};
use crate::listing::ListingBuilder;

/// Builds a [`Folder`]. Rows are pushed in the order of their names.
#[derive(Debug, Default)]
pub(super) struct FolderBuilder {
    listing: ListingBuilder,
    folder: Folder,
}

impl FolderBuilder {
    /// Appends a row, whose name must come after the last one's.
    pub(super) fn push(&mut self, row: &FolderRow<'_>) {
        self.listing.push(&row.entry);
        self.folder.children.extend(row.child);
        if let Some((content, stamp)) = row.content {
            self.folder.contents.push(content);
            self.folder.stamps.push(stamp);
        }
    }

    /// Returns the directory; its listing is marked incomplete unless `is_complete`.
    pub(super) fn finish(mut self, is_complete: bool) -> Folder {
        if !is_complete {
            self.listing.mark_incomplete();
        }
        Folder { listing: self.listing.finish(), ..self.folder }
    }
}
