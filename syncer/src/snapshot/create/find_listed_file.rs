//! Finds the file that a scan has listed: by the time that its content is read, its name may lead to another file.

use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::OnceLock,
};

use parking_lot::Mutex;
use rustix::io::Errno;

use super::{read_until_quiet::OpenedFile, store_live_file::LiveFile};
use crate::{
    entry_paths::{EntryPlace, paths},
    path::RelPath,
    root::Root,
    sys::stat::Identity,
    tree::{
        Tree,
        dir::{DirId, fold_inode},
    },
};

/// A listed file to which its name does not lead any more, nor does any other name that the scan has found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Displaced {
    pub place: EntryPlace,
    /// Its inode, [folded](fold_inode).
    pub inode: Option<u32>,
    /// Whether the listings have further names of it, which lead to this one.
    pub leads: bool,
}

/// What was found in the place of a listed file.
pub(crate) enum LocatedFile {
    /// A file to be read: the listed one, or the one that has its name now.
    Open(OpenedFile),
    /// A file that an earlier look has read.
    Read(LiveFile),
}

/// A directory, from its first use on.
pub(crate) type OpenedDir = Option<io::Result<OwnedFd>>;

/// What earlier looks at the same tree have found.
#[derive(Debug, Default)]
pub(crate) struct EarlierReads {
    /// The files that they have read: by directory, and there by ascending names.
    files: HashMap<RelPath, Vec<EarlierRead>>,
    /// Directories to write although the last snapshot has them, with those above them: names are left out there.
    pub written_anew: HashSet<DirId>,
}

/// A file that was read, by its name.
pub(crate) type EarlierRead = (Box<[u8]>, LiveFile);

impl EarlierReads {
    pub(crate) fn add(&mut self, dir: RelPath, files: Vec<EarlierRead>) {
        self.files.insert(dir, files);
    }

    fn get(&self, dir: &RelPath, name: &[u8]) -> Option<&LiveFile> {
        let files = self.files.get(dir)?;
        let at = files.binary_search_by(|(other, _)| (**other).cmp(name)).ok()?;
        Some(&files[at].1)
    }
}

/// The files that a scan has listed.
#[derive(Debug)]
pub(crate) struct ListedFiles<'a> {
    tree: &'a Tree,
    root: &'a Root,
    earlier: &'a EarlierReads,
    /// The further names of each file with several, by the place of the first one.
    other_names: OnceLock<HashMap<EntryPlace, Vec<RelPath>>>,
    displaced: Mutex<Vec<Displaced>>,
}

impl<'a> ListedFiles<'a> {
    pub(crate) fn new(tree: &'a Tree, root: &'a Root, earlier: &'a EarlierReads) -> Self {
        Self { tree, root, earlier, other_names: OnceLock::new(), displaced: Mutex::default() }
    }

    /// Finds the file at a place of the listings: `name` in the directory `dir`, which is opened unless it is. If
    /// another file has its name, takes that one and notes the listed one as displaced, unless that has another name.
    ///
    /// # Errors
    /// If it cannot be opened, or its name leads to no file.
    pub(crate) fn find(
        &self,
        dir: &RelPath,
        name: &[u8],
        place: EntryPlace,
        opened: &mut OpenedDir,
    ) -> io::Result<LocatedFile> {
        let listed = self.tree.dirs[place.dir as usize].inode_at(place.index);
        let folder = opened.get_or_insert_with(|| self.root.dir(dir));
        let folder = folder.as_ref().map_err(|error| {
            error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
        });
        let found = folder.and_then(|folder| OpenedFile::open(folder.as_fd(), name));
        let is_elsewhere = match &found {
            Ok(file) => !is_inode(file, listed),
            Err(error) => leads_elsewhere(error),
        };
        if is_elsewhere {
            if let Some(file) = self.by_other_name(place, listed) {
                return Ok(LocatedFile::Open(file));
            }
            let leads = self.other_names().contains_key(&place);
            self.displaced.lock().push(Displaced { place, inode: listed, leads });
        }
        let found = found?;
        match self.earlier.get(dir, name).filter(|live| live.identity == Identity::of(&found.stat)) {
            Some(live) => Ok(LocatedFile::Read(live.clone())),
            None => Ok(LocatedFile::Open(found)),
        }
    }

    /// Returns the displaced files.
    pub(crate) fn displaced(self) -> Vec<Displaced> {
        self.displaced.into_inner()
    }

    /// Opens the file with several names that is listed at a place by another one of them.
    fn by_other_name(&self, place: EntryPlace, inode: Option<u32>) -> Option<OpenedFile> {
        let open = |path: &RelPath| {
            let (dir, name) = path.split_last()?;
            let file = OpenedFile::open(self.root.dir(&dir).ok()?.as_fd(), name).ok()?;
            (inode.is_some() && is_inode(&file, inode)).then_some(file)
        };
        self.other_names().get(&place)?.iter().find_map(open)
    }

    fn other_names(&self) -> &HashMap<EntryPlace, Vec<RelPath>> {
        self.other_names.get_or_init(|| {
            let groups = || self.tree.groups.iter().filter_map(|group| group.members.split_first());
            let mut paths = paths(&self.tree.dirs, groups().flat_map(|(_, others)| others).copied());
            let mut names = |others: &[EntryPlace]| others.iter().filter_map(|at| paths.remove(at)).collect();
            groups().map(|(first, others)| (*first, names(others))).collect()
        })
    }
}

/// Returns whether an open file has this inode, as far as that is known.
fn is_inode(file: &OpenedFile, folded: Option<u32>) -> bool {
    folded.is_none_or(|folded| fold_inode(file.stat.st_ino) == folded)
}

/// Returns whether an error of opening a file says that its name leads to something else, or to nothing.
fn leads_elsewhere(error: &io::Error) -> bool {
    match Errno::from_io_error(error) {
        Some(errno) => matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO),
        // A directory, pipe or device.
        None => error.kind() == io::ErrorKind::Other,
    }
}
