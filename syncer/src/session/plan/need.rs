//! Files whose content is needed, and what the destination has of them.

use std::{
    os::fd::BorrowedFd,
    sync::{Arc, OnceLock},
};

use crate::{
    apply::{Destination, EntryAt, StagedDir},
    attrs::AttrsBuf,
    entry::Meta,
    path::RelPath,
    session::{
        plan::{folder_fill::FolderFill, planned::path_in},
        session_error::SessionError,
    },
    tree::dir::DirId,
};

/// A directory that files are needed for.
#[derive(Debug)]
pub(crate) struct NeededDir {
    /// Its number at the source.
    pub source: DirId,
    /// Where it is, at both ends.
    pub path: RelPath,
    /// The directory's number in the destination's file system.
    pub inode: u64,
    /// Where it is filled out of sight.
    pub fill: Option<FolderFill>,
}

impl NeededDir {
    /// The directory, while nobody sees it.
    pub(crate) fn hidden(&self, destination: &Destination) -> Option<&Arc<StagedDir>> {
        self.fill.as_ref()?.dir(destination, &self.path)
    }
}

/// A file whose content is needed.
#[derive(Debug, Clone)]
pub(crate) struct Need {
    /// Where it goes.
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
    /// Whether the destination has something of the name.
    pub replaces: bool,
    /// A file of the destination that may have some of its content: its older version, or what looks like a copy of it.
    pub old: Option<OldVersion>,
    /// Where it waits in staging, if it replaces a folder.
    pub aside: Option<Arc<Aside>>,
}

impl Need {
    pub(crate) fn path(&self) -> RelPath {
        path_in(&self.dir.path, &self.name)
    }

    /// Whether the destination has an older version of it, and not only something that is like it.
    pub(crate) fn is_version(&self) -> bool {
        self.old.as_ref().is_some_and(|old| old.path == self.path())
    }
}

/// Where an entry waits that replaces a folder: the folder stays until the entry has arrived and deletes may begin.
#[derive(Debug)]
pub(crate) struct Aside {
    /// Its name, in staging or beside its place.
    pub name: String,
    /// It waits beside its place, which is on another mount than staging.
    pub beside: bool,
    /// Its number in the file system, once it has arrived there.
    pub arrived: OnceLock<u64>,
}

impl Aside {
    /// Its place, where `dir` is the directory that it shall come to.
    pub(crate) fn at<'e>(&'e self, destination: &'e Destination, dir: BorrowedFd<'e>) -> EntryAt<'e> {
        let place = if self.beside { dir } else { destination.state().staging() };
        EntryAt::staged(place, self.name.as_bytes())
    }

    /// Takes note that it has arrived there, as the entry of this inode number.
    pub(crate) fn has_arrived(&self, inode: u64) {
        let _ = self.arrived.set(inode);
    }
}

/// A file of the destination.
#[derive(Debug, Clone)]
pub(crate) struct OldVersion {
    /// Where it is.
    pub path: RelPath,
    /// Its length in bytes when the destination was scanned.
    pub len: u64,
    /// It is only of the same length as what is needed, or has a similar name.
    pub is_guess: bool,
    /// Further files that have content of what is needed.
    pub also: Vec<RelPath>,
    /// It, or one of the further files, is new itself: it is there when what was asked for before has been written.
    pub is_coming: bool,
}

impl OldVersion {
    /// An older version of what is needed.
    pub(crate) fn version(path: RelPath, len: u64) -> Self {
        Self { path, len, is_guess: false, also: Vec::new(), is_coming: false }
    }
}

/// Where the content of files comes from.
pub(crate) trait Fetch {
    /// Asks for files, all of one directory and no more than some thousands; they are written by other threads. Waits
    /// while too many are under way.
    fn fetch(&mut self, needs: Vec<Need>) -> Result<(), SessionError>;

    /// Waits until every file that was asked for has been written or has failed; then asks for those that are made from
    /// them, and waits for these.
    fn finish(&mut self, made_from_others: Vec<Need>) -> Result<(), SessionError>;
}

/// Files of at least this length, both before and after, are written in place where a run asks for that. Smaller ones
/// are replaced: that is quicker than two trips to the disk.
pub(crate) const MIN_IN_PLACE_BYTES: u64 = 1 << 20;
