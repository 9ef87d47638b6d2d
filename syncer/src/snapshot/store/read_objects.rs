//! Names what a store is asked for by those who look into snapshots, wherever it is.

use super::{
    content_id::{ContentRef, VisitData},
    folder::{Folder, FolderRef},
    read_store::{OpenContent, Store},
    snapshot_error::SnapshotError,
};

/// A store whose snapshots are looked into.
pub trait ReadObjects {
    /// Reads a directory.
    ///
    /// # Errors
    /// If it cannot be read or is damaged.
    fn folder(&self, folder: &FolderRef) -> Result<Folder, SnapshotError>;

    /// Opens content of `len` bytes after it was checked. Passes its pieces to `visit` meanwhile, in any order.
    ///
    /// # Errors
    /// If it cannot be read, has another length, or does not have its hash; any error of `visit`.
    fn checked(
        &self,
        content: &ContentRef,
        len: u64,
        visit: &VisitData<'_>,
    ) -> Result<OpenContent, SnapshotError>;

    /// Names content for messages.
    fn name_of(&self, content: &ContentRef) -> String;
}

impl ReadObjects for Store {
    fn folder(&self, folder: &FolderRef) -> Result<Folder, SnapshotError> {
        Self::folder(self, folder)
    }

    fn checked(
        &self,
        content: &ContentRef,
        len: u64,
        visit: &VisitData<'_>,
    ) -> Result<OpenContent, SnapshotError> {
        self.check_visited(content, len, visit)?;
        self.content(content)
    }

    fn name_of(&self, content: &ContentRef) -> String {
        Self::name_of(self, content)
    }
}
