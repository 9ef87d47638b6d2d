//! Files whose content is needed, and the files of the destination that may share content with them.

use std::{
    os::fd::BorrowedFd,
    sync::{Arc, OnceLock},
};

use crate::{
    attrs::AttrsBuf,
    destination::{Destination, EntryAt, StagedDir},
    entry::Meta,
    path::RelPath,
    plan::{fill_out_of_sight::FolderFill, planned::path_in},
    session_error::SessionError,
    tree::dir::DirId,
};

/// A directory that contains needed files.
#[derive(Debug)]
pub(crate) struct NeededDir {
    /// Its number at the source.
    pub source: DirId,
    /// Its path, at both ends.
    pub path: RelPath,
    /// Its inode number in the destination's file system.
    pub inode: u64,
    /// Its state if it is filled out of sight.
    pub fill: Option<FolderFill>,
}

impl NeededDir {
    /// Returns the directory while it is filled out of sight.
    pub(crate) fn hidden(&self, destination: &Destination) -> Option<&Arc<StagedDir>> {
        self.fill.as_ref()?.dir(destination, &self.path)
    }
}

/// A file whose content is needed.
#[derive(Debug, Clone)]
pub(crate) struct Need {
    /// Its directory.
    pub dir: Arc<NeededDir>,
    /// Its place in the source's listing of the directory.
    pub index: u32,
    /// Its name.
    pub name: Box<[u8]>,
    /// Its metadata when the source was scanned.
    pub meta: Meta,
    /// Its length in bytes when the source was scanned.
    pub size: u64,
    /// Its extended attributes when the source was scanned.
    pub attrs: AttrsBuf,
    /// Whether the destination has an entry of this name.
    pub replaces: bool,
    /// A file of the destination that may have some of its content: its older version, or one that looks like a copy of
    /// it.
    pub old: Option<OldVersion>,
    /// Its place in staging, if it replaces a folder.
    pub aside: Option<Arc<Aside>>,
}

impl Need {
    pub(crate) fn path(&self) -> RelPath {
        path_in(&self.dir.path, &self.name)
    }
}

/// The place of an entry that replaces a folder, until the entry has arrived and deletes may begin.
#[derive(Debug)]
pub(crate) struct Aside {
    /// Its name, in staging or beside its place.
    pub name: String,
    /// Whether it is beside its place, because that is on another mount than staging.
    pub beside: bool,
    /// Its inode number, once it has arrived.
    pub arrived: OnceLock<u64>,
}

impl Aside {
    /// Returns the entry's present place; `dir` is the directory that it will be moved to.
    pub(crate) fn at<'e>(&'e self, destination: &'e Destination, dir: BorrowedFd<'e>) -> EntryAt<'e> {
        let place = if self.beside { dir } else { destination.state().staging() };
        EntryAt::staged(place, self.name.as_bytes())
    }

    /// Records that it has arrived, as the entry of this inode number.
    pub(crate) fn has_arrived(&self, inode: u64) {
        let _ = self.arrived.set(inode);
    }
}

/// A file of the destination that may serve as a basis.
#[derive(Debug, Clone)]
pub(crate) struct OldVersion {
    /// Its path.
    pub path: RelPath,
    /// Its length in bytes when the destination was scanned.
    pub len: u64,
    /// Whether it only has the same length as the needed file, or a similar name.
    pub is_guess: bool,
    /// Further files that share content with the needed file.
    pub also: Vec<RelPath>,
    /// Whether it, or one of the further files, is new itself, and can be read once the files that were requested
    /// before are written.
    pub is_coming: bool,
}

impl OldVersion {
    /// Returns an older version of a needed file.
    pub(crate) fn version(path: RelPath, len: u64) -> Self {
        Self { path, len, is_guess: false, also: Vec::new(), is_coming: false }
    }
}

/// Requests the content of files.
pub(crate) trait Fetch {
    /// Requests files of one directory, at most some thousands; other threads write them. Waits while too many are in
    /// flight.
    fn fetch(&mut self, needs: Vec<Need>) -> Result<(), SessionError>;

    /// Waits until every requested file has been written or has failed, then requests the files that are made from
    /// others, and waits for these.
    fn finish(&mut self, made_from_others: Vec<Need>) -> Result<(), SessionError>;
}
