//! Finds the paths and entries of directories by their numbers.

use crate::{
    entry::Kind,
    listing::{Entries, EntryIndex},
    path::RelPath,
    tree::{
        Tree,
        dir::{DirId, ROOT},
    },
};

/// The paths of directories, found by way of their parents. Directories are looked up in the order of their parents, so
/// the last parent is kept for its other children.
#[derive(Debug)]
pub(crate) struct Paths<'a> {
    tree: &'a Tree,
    parents: Vec<DirId>,
    last: Option<Parent>,
}

/// The entries of directories, from any index on. The index of the last directory is kept.
#[derive(Debug)]
pub(crate) struct EntriesOf<'a> {
    tree: &'a Tree,
    last: Option<(DirId, EntryIndex<'a>)>,
}

impl<'a> EntriesOf<'a> {
    pub(crate) fn new(tree: &'a Tree) -> Self {
        Self { tree, last: None }
    }

    /// Yields the entries of a directory from the one at `index` on; `None` if there is no such directory.
    pub(crate) fn from(&mut self, dir: DirId, index: u32) -> Option<Entries<'a>> {
        let places = match self.last.take().filter(|(last, _)| *last == dir) {
            Some((_, places)) => places,
            None => EntryIndex::of(&self.tree.dirs.get(dir as usize)?.listing),
        };
        Some(self.last.insert((dir, places)).1.from(index))
    }
}

/// The path of a directory, and the names of the directories in it.
#[derive(Debug)]
struct Parent {
    id: DirId,
    path: RelPath,
    names: Vec<Box<[u8]>>,
}

impl<'a> Paths<'a> {
    pub(crate) fn new(tree: &'a Tree) -> Self {
        let mut parents = vec![ROOT; tree.dirs.len()];
        for (id, dir) in (0..).zip(&tree.dirs) {
            let children = dir.first_child as usize..(dir.first_child + dir.listing.dirs()) as usize;
            parents[children].fill(id);
        }
        Self { tree, parents, last: None }
    }

    /// Returns the path of the directory of this number.
    pub(crate) fn of(&mut self, dir: DirId) -> RelPath {
        if dir == ROOT {
            return RelPath::root();
        }
        let id = self.parents[dir as usize];
        let parent = match self.last.take().filter(|last| last.id == id) {
            Some(parent) => parent,
            None => Parent { id, path: self.of(id), names: self.names_in(id) },
        };
        let nth = (dir - self.tree.dirs[id as usize].first_child) as usize;
        let path = parent.names.get(nth).and_then(|name| parent.path.join(name).ok());
        self.last = Some(parent);
        path.unwrap_or_default()
    }

    fn names_in(&self, dir: DirId) -> Vec<Box<[u8]>> {
        let listing = &self.tree.dirs[dir as usize].listing;
        listing.iter().filter(|entry| entry.kind == Kind::Dir).map(|entry| entry.name.into()).collect()
    }
}
