//! Finds the paths of entries and directories of a tree, which are numbered in it.

use std::collections::HashMap;

use crate::tree::{
    dir::{Dir, DirId, ROOT},
    entry::Kind,
    path::RelPath,
};

/// Directory and index of an entry in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryPlace {
    /// The directory that it is in.
    pub dir: DirId,
    /// Its index in the directory's listing.
    pub index: u32,
}

/// Returns the paths of these entries, without those that are longer than a path may be.
pub fn paths(dirs: &[Dir], places: impl Iterator<Item = EntryPlace>) -> HashMap<EntryPlace, RelPath> {
    let mut wanted: HashMap<DirId, Vec<u32>> = HashMap::new();
    places.for_each(|place| wanted.entry(place.dir).or_default().push(place.index));
    let mut dir_paths = dir_paths(dirs, wanted.keys().copied());
    let mut found = HashMap::new();
    for (dir, mut indices) in wanted {
        let Some(path) = dir_paths.remove(&dir) else { continue };
        indices.sort_unstable();
        let mut indices = indices.into_iter().peekable();
        for (index, entry) in (0..).zip(&dirs[dir as usize].listing) {
            if indices.next_if_eq(&index).is_some()
                && let Ok(path) = path.join(entry.name)
            {
                found.insert(EntryPlace { dir, index }, path);
            }
        }
    }
    found
}

/// Returns the paths of these directories and of those above them.
pub fn dir_paths(dirs: &[Dir], wanted: impl Iterator<Item = DirId>) -> HashMap<DirId, RelPath> {
    let parents = parents(dirs);
    let mut needed = vec![false; dirs.len()];
    for mut dir in wanted {
        while !std::mem::replace(&mut needed[dir as usize], true) && dir != ROOT {
            dir = parents[dir as usize];
        }
    }
    let mut paths = HashMap::from([(ROOT, RelPath::root())]);
    // A directory's number is greater than its parent's.
    for (id, dir) in (0..).zip(dirs) {
        let below = dir.first_child..dir.first_child + dir.listing.dirs();
        if !needed[id as usize] || !below.clone().any(|child| needed[child as usize]) {
            continue;
        }
        let Some(path) = paths.get(&id).cloned() else { continue };
        let names = dir.listing.iter().filter(|entry| entry.kind == Kind::Dir);
        for (child, entry) in below.zip(names).filter(|(child, _)| needed[*child as usize]) {
            if let Ok(path) = path.join(entry.name) {
                paths.insert(child, path);
            }
        }
    }
    paths
}

/// Returns the parent of each directory. The root is its own.
pub fn parents(dirs: &[Dir]) -> Vec<DirId> {
    let mut parents = vec![ROOT; dirs.len()];
    for (id, dir) in (0..).zip(dirs) {
        let below = dir.first_child as usize..(dir.first_child + dir.listing.dirs()) as usize;
        parents[below].fill(id);
    }
    parents
}
