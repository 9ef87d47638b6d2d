//! The tree of an archive while it is read: directories in memory, contents in the store already.

use std::collections::{BTreeMap, btree_map::Entry::Vacant};

use crate::{
    attrs::AttrsBuf,
    entry::{Entry, Kind, Meta},
    path::RelPath,
    snapshot::{
        browse::{Node, What},
        create::write_folder,
        store::{FolderBuilder, FolderRef, FolderRow, Packing, Store},
    },
};

/// Why an entry is refused.
pub(crate) type WhyRefused = &'static str;

/// The number of directories that an archive may have without entries of them, and how many more for each entry: paths
/// of 4 KiB name 2000 directories, which take much more memory than the archive has bytes.
const UNLISTED: usize = 4096;
const UNLISTED_FOR_ENTRY: usize = 32;

/// A directory of an archive.
#[derive(Debug)]
pub(crate) struct ImportedDir {
    pub meta: Meta,
    pub attrs: AttrsBuf,
    entries: BTreeMap<Box<[u8]>, ImportedEntry>,
    /// Whether the archive has an entry of it.
    is_listed: bool,
}

/// An entry of a directory of an archive. Directories are known by their numbers.
pub(crate) type ImportedEntry = Node<usize>;

/// The tree of an archive.
#[derive(Debug)]
pub(crate) struct ImportedTree {
    /// Directories, each after the one that it is in. The first is the root.
    dirs: Vec<ImportedDir>,
    /// Further names, by the path at which the archive has the entry itself.
    links: BTreeMap<RelPath, Vec<RelPath>>,
    /// The number of entries that the archive has so far.
    listed: usize,
}

impl ImportedTree {
    pub(crate) fn new() -> Self {
        Self { dirs: vec![ImportedDir::unknown()], links: BTreeMap::new(), listed: 0 }
    }

    /// Adds an entry that is no directory.
    pub(crate) fn put(&mut self, path: &RelPath, entry: ImportedEntry) -> Result<(), WhyRefused> {
        let Some((dir, name)) = path.split_last() else { return Err("is the root, and no folder") };
        let dir = self.dir_at(&dir)?;
        let Vacant(place) = self.dirs[dir].entries.entry(name.into()) else {
            return Err("is in it twice");
        };
        place.insert(entry);
        Ok(())
    }

    /// Adds a directory. Those above it, and entries in it, may come before or after it.
    pub(crate) fn dir(&mut self, path: &RelPath, meta: Meta, attrs: AttrsBuf) -> Result<(), WhyRefused> {
        let number = self.dir_at(path)?;
        let dir = &mut self.dirs[number];
        if std::mem::replace(&mut dir.is_listed, true) {
            return Err("is in it twice");
        }
        (dir.meta, dir.attrs) = (meta, attrs);
        Ok(())
    }

    /// Adds a further name of an entry that is there already.
    pub(crate) fn link(&mut self, path: &RelPath, to: &RelPath) -> Result<(), WhyRefused> {
        let first = match self.entry(to).map(|entry| &entry.what) {
            None => return Err("is a hard link to an entry that the archive does not have before it"),
            Some(What::Dir(_)) => return Err("is a hard link to a folder"),
            Some(What::HardLink(first)) => RelPath::parse(first).map_err(|_| "is a hard link to no path")?,
            Some(_) => to.clone(),
        };
        self.put(path, link_to(&first))?;
        self.links.entry(first).or_default().push(path.clone());
        Ok(())
    }

    /// Returns the directory at a path. Makes it and those above it if they are missing so far.
    fn dir_at(&mut self, path: &RelPath) -> Result<usize, WhyRefused> {
        let mut at = 0;
        self.listed += 1;
        for name in path.names() {
            let new = self.dirs.len();
            if new > self.listed.saturating_mul(1 + UNLISTED_FOR_ENTRY).saturating_add(UNLISTED) {
                return Err("is in more folders than an archive may have without entries of them");
            }
            let dir = || bare(What::Dir(new));
            match self.dirs[at].entries.entry(name.into()).or_insert_with(dir).what {
                What::Dir(dir) => at = dir,
                _ => return Err("is a folder, or in one, where the archive has something else"),
            }
            if at == new {
                self.dirs.push(ImportedDir::unknown());
            }
        }
        Ok(at)
    }

    fn entry(&mut self, path: &RelPath) -> Option<&mut ImportedEntry> {
        let (dir, name) = path.split_last()?;
        let mut at = 0;
        for name in dir.names() {
            match self.dirs[at].entries.get(name)?.what {
                What::Dir(below) => at = below,
                _ => return None,
            }
        }
        self.dirs[at].entries.get_mut(name)
    }

    /// Gives the entry of each file with several names the smallest path, as a scan does.
    fn settle_links(&mut self) {
        for (first, names) in std::mem::take(&mut self.links) {
            let leader = names.iter().min().filter(|leader| **leader < first).unwrap_or(&first).clone();
            let link = link_to(&leader);
            let whole = self.entry(&first).map(|entry| std::mem::replace(entry, link.clone()));
            for name in names {
                self.entry(&name).into_iter().for_each(|entry| *entry = link.clone());
            }
            self.entry(&leader).into_iter().zip(whole).for_each(|(entry, whole)| *entry = whole);
        }
    }

    /// Returns the number of entries, without the root.
    pub(crate) fn entries(&self) -> u64 {
        self.dirs.iter().map(|dir| dir.entries.len() as u64).sum()
    }

    /// Returns the root's own metadata.
    pub(crate) fn root(&self) -> &ImportedDir {
        &self.dirs[0]
    }

    /// Writes the directories into the pack, from the leaves to the root, which it returns.
    pub(crate) fn write(&mut self, store: &Store, packing: &Packing<'_>) -> std::io::Result<FolderRef> {
        self.settle_links();
        let mut written: Vec<Option<FolderRef>> = vec![None; self.dirs.len()];
        for (number, dir) in self.dirs.iter().enumerate().rev() {
            let mut builder = FolderBuilder::default();
            for (name, entry) in &dir.entries {
                builder.push(&self.row(name, entry, &written));
            }
            written[number] = Some(write_folder(&builder.finish(true), None, store, packing)?);
        }
        written[0].ok_or_else(|| std::io::Error::other("the archive has no root"))
    }

    fn row<'a>(
        &'a self,
        name: &'a [u8],
        node: &'a ImportedEntry,
        written: &[Option<FolderRef>],
    ) -> FolderRow<'a> {
        match node.what {
            What::Dir(below) => {
                let dir = &self.dirs[below];
                let entry = Entry { name, kind: Kind::Dir, meta: dir.meta, attrs: dir.attrs.as_attrs() };
                FolderRow { entry, child: written[below], content: None }
            }
            What::File { content, .. } => {
                let content = content.map(|content| (content, 0));
                FolderRow { entry: node.entry(name), child: None, content }
            }
            _ => FolderRow { entry: node.entry(name), child: None, content: None },
        }
    }
}

impl ImportedDir {
    /// Makes a directory that an archive does not list, or lists later.
    fn unknown() -> Self {
        let meta = Meta { mode: 0o755, ..Meta::default() };
        Self { meta, attrs: AttrsBuf::default(), entries: BTreeMap::new(), is_listed: false }
    }
}

/// Makes an entry without metadata.
fn bare(what: What<usize>) -> ImportedEntry {
    ImportedEntry { what, meta: Meta::default(), attrs: AttrsBuf::default(), in_motion: false }
}

/// Makes a further name. Its metadata is at the entry that it leads to.
fn link_to(to: &RelPath) -> ImportedEntry {
    bare(What::HardLink(to.as_bytes().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_imply_many_folders_are_refused_and_those_of_many_entries_are_not() {
        let path = |nth: usize, depth: usize| {
            RelPath::parse(format!("{nth}{}", "/x".repeat(depth)).as_bytes()).unwrap()
        };
        let put = |depth: usize| {
            let mut tree = ImportedTree::new();
            (0..1000)
                .try_for_each(|nth| tree.put(&path(nth, depth), bare(What::Fifo)))
                .map(|()| tree.dirs.len())
        };
        assert_eq!(put(30), Ok(30_001));
        assert!(put(1500).is_err_and(|why| why.contains("more folders")));
    }
}
