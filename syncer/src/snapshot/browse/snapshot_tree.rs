//! Looks up paths in a snapshot.

use std::collections::HashMap;

use crate::{
    attrs::AttrsBuf,
    entry::{Entry, Kind, Meta},
    path::RelPath,
    snapshot::store::{
        ContentRef, Folder, FolderId, FolderRef, FolderRow, ReadObjects, SizedContent, Snapshot,
        SnapshotError,
    },
    tree::stamps::IN_MOTION,
};

/// An entry of a snapshot, or its root. Directories are known by a `D`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node<D = FolderRef> {
    /// Its kind.
    pub what: What<D>,
    /// Mode, time and owner. Those of a hard link are at the file that it leads to.
    pub meta: Meta,
    /// Extended attributes.
    pub attrs: AttrsBuf,
    /// Whether another process may have been writing to the file while it was read, so that its content may be a mix.
    pub in_motion: bool,
}

/// The kind of an entry, with the data that only that kind has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What<D = FolderRef> {
    /// A regular file; an empty one has no content.
    File {
        /// Length in bytes.
        len: u64,
        /// The place of its content.
        content: Option<ContentRef>,
    },
    /// A directory.
    Dir(D),
    /// A symbolic link to this target.
    Symlink(Vec<u8>),
    /// A further name of the file at this path.
    HardLink(Vec<u8>),
    /// A named pipe.
    Fifo,
    /// A character device.
    CharDevice(u64),
    /// A block device.
    BlockDevice(u64),
}

impl<D> Node<D> {
    /// Returns the entry that a listing has for it under this name.
    pub fn entry<'a>(&'a self, name: &'a [u8]) -> Entry<'a> {
        Entry { name, kind: self.what.kind(), meta: self.meta, attrs: self.attrs.as_attrs() }
    }
}

/// Returns the word for a kind.
pub(crate) fn kind_name(kind: Kind<'_>) -> &'static str {
    match kind {
        Kind::File { .. } => "file",
        Kind::Dir => "directory",
        Kind::Symlink { .. } => "symlink",
        Kind::HardLink { .. } => "hardLink",
        Kind::Fifo => "fifo",
        Kind::CharDevice { .. } => "charDevice",
        Kind::BlockDevice { .. } => "blockDevice",
        Kind::Socket => "socket",
    }
}

impl<D> What<D> {
    fn kind(&self) -> Kind<'_> {
        match self {
            Self::File { len, .. } => Kind::File { size: *len },
            Self::Dir(_) => Kind::Dir,
            Self::Symlink(target) => Kind::Symlink { target },
            Self::HardLink(to) => Kind::HardLink { to },
            Self::Fifo => Kind::Fifo,
            Self::CharDevice(rdev) => Kind::CharDevice { rdev: *rdev },
            Self::BlockDevice(rdev) => Kind::BlockDevice { rdev: *rdev },
        }
    }

    /// Returns the word for the kind.
    pub fn name(&self) -> &'static str {
        kind_name(self.kind())
    }

    /// Returns whether it is a pipe or a device.
    pub fn is_special(&self) -> bool {
        matches!(self, Self::Fifo | Self::CharDevice(_) | Self::BlockDevice(_))
    }
}

impl What {
    /// Returns whether both have the same kind and content. Any two directories count as equal.
    pub(crate) fn has_same_content(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dir(_), Self::Dir(_)) => true,
            (Self::File { len, content }, Self::File { len: other_len, content: other }) => {
                len == other_len && content.map(|it| it.id) == other.map(|it| it.id)
            }
            (one, other) => one == other,
        }
    }
}

/// Yields the entries of a directory, in the order of their names.
pub fn nodes(folder: &Folder) -> impl Iterator<Item = (&[u8], Node)> {
    folder.rows().filter_map(|FolderRow { entry, child, content }| {
        let in_motion = content.is_some_and(|(_, stamp)| stamp == IN_MOTION);
        let node = node(&entry, content.map(|(content, _)| content), child)?;
        Some((entry.name, Node { in_motion, ..node }))
    })
}

fn node(entry: &Entry<'_>, content: Option<ContentRef>, child: Option<FolderRef>) -> Option<Node> {
    let what = match entry.kind {
        Kind::File { size } => What::File { len: size, content },
        Kind::Dir => What::Dir(child?),
        Kind::Symlink { target } => What::Symlink(target.into()),
        Kind::HardLink { to } => What::HardLink(to.into()),
        Kind::Fifo => What::Fifo,
        Kind::CharDevice { rdev } => What::CharDevice(rdev),
        Kind::BlockDevice { rdev } => What::BlockDevice(rdev),
        Kind::Socket => return None,
    };
    Some(Node { what, meta: entry.meta, attrs: entry.attrs.into(), in_motion: false })
}

/// Returns the root of a snapshot.
pub fn root_node(snapshot: &Snapshot) -> Node {
    let (meta, attrs) = (snapshot.root_meta, snapshot.root_attrs.clone());
    Node { what: What::Dir(snapshot.tree), meta, attrs, in_motion: false }
}

/// Finds the entry at a path of a snapshot; `None` if there is none.
///
/// # Errors
/// If a directory on the way cannot be read.
pub fn node_at(
    store: &dyn ReadObjects,
    snapshot: &Snapshot,
    path: &RelPath,
) -> Result<Option<Node>, SnapshotError> {
    let mut at = root_node(snapshot);
    for name in path.names() {
        let What::Dir(dir) = at.what else { return Ok(None) };
        let folder = store.folder(&dir)?;
        let found = nodes(&folder).find(|(other, _)| *other == name).map(|(_, node)| node);
        let Some(node) = found else { return Ok(None) };
        at = node;
    }
    Ok(Some(at))
}

/// Counts the further names of entries of a snapshot, by the paths that hard links lead to.
///
/// # Errors
/// If a directory cannot be read.
pub fn link_counts(
    store: &dyn ReadObjects,
    snapshot: &Snapshot,
) -> Result<HashMap<RelPath, u32>, SnapshotError> {
    let (mut counts, mut left) = (HashMap::new(), vec![snapshot.tree]);
    while let Some(dir) = left.pop() {
        let folder = store.folder(&dir)?;
        for entry in &folder.listing {
            if let Kind::HardLink { to } = entry.kind
                && let Ok(to) = RelPath::parse(to)
            {
                *counts.entry(to).or_default() += 1;
            }
        }
        left.extend(&folder.children);
    }
    Ok(counts)
}

/// Finds the files of a snapshot to which another process may have been writing while they were read. Reads only
/// directories that have a file without a stamp in or below them.
///
/// # Errors
/// If a directory cannot be read.
pub fn files_in_motion(store: &dyn ReadObjects, snapshot: &Snapshot) -> Result<Vec<RelPath>, SnapshotError> {
    let (mut found, mut left) = (Vec::new(), vec![(RelPath::root(), snapshot.tree)]);
    while let Some((path, dir)) = left.pop() {
        if !dir.seen.is_unknown() {
            continue;
        }
        for (name, node) in nodes(&store.folder(&dir)?) {
            let Ok(below) = path.join(name) else { continue };
            match node.what {
                What::Dir(dir) => left.push((below, dir)),
                _ if node.in_motion => found.push(below),
                _ => {}
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Finds the entry at a path of a snapshot as [`node_at`] does, and of a further name of a file the file itself.
///
/// # Errors
/// If a directory on the way cannot be read.
pub fn linked_node_at(
    store: &dyn ReadObjects,
    snapshot: &Snapshot,
    path: &RelPath,
) -> Result<Option<Node>, SnapshotError> {
    let node = node_at(store, snapshot, path)?;
    let Some(Node { what: What::HardLink(to), .. }) = &node else { return Ok(node) };
    RelPath::parse(to).map_or(Ok(None), |to| node_at(store, snapshot, &to))
}

/// Finds the files that hard links lead to, which have the content and the metadata of all their names.
pub(super) struct LinkedFiles<'a> {
    store: &'a dyn ReadObjects,
    snapshot: &'a Snapshot,
    /// The folder of the last one: the links of a folder often lead to one.
    folder: Option<(FolderId, HashMap<Vec<u8>, Node>)>,
}

impl<'a> LinkedFiles<'a> {
    pub(super) fn new(store: &'a dyn ReadObjects, snapshot: &'a Snapshot) -> Self {
        Self { store, snapshot, folder: None }
    }

    /// Returns the file that an entry of the snapshot leads to, or the entry itself.
    ///
    /// # Errors
    /// If a directory on the way cannot be read.
    pub(super) fn of(&mut self, node: &Node) -> Result<Node, SnapshotError> {
        let What::HardLink(to) = &node.what else { return Ok(node.clone()) };
        let Ok(to) = RelPath::parse(to) else { return Ok(node.clone()) };
        let Some((dir, name)) = to.split_last() else { return Ok(node.clone()) };
        let Some(Node { what: What::Dir(dir), .. }) = node_at(self.store, self.snapshot, &dir)? else {
            return Ok(node.clone());
        };
        if self.folder.as_ref().is_none_or(|(id, _)| *id != dir.id) {
            let folder = self.store.folder(&dir)?;
            let entries = nodes(&folder).map(|(name, node)| (name.to_vec(), node)).collect();
            self.folder = Some((dir.id, entries));
        }
        let found = self.folder.as_ref().and_then(|(_, entries)| entries.get(name));
        Ok(found.unwrap_or(node).clone())
    }
}

/// Finds the content of the file at a path, following a hard link; `None` if it is empty.
///
/// # Errors
/// If there is no entry, or one that is no file.
pub fn file_at(
    store: &dyn ReadObjects,
    snapshot: &Snapshot,
    path: &RelPath,
) -> Result<Option<SizedContent>, SnapshotError> {
    let missing = || SnapshotError::NoPath { id: snapshot.id, path: path.to_string() };
    match linked_node_at(store, snapshot, path)?.ok_or_else(missing)?.what {
        What::File { len, content } => Ok(content.map(|content| SizedContent { content, len })),
        other => Err(SnapshotError::WrongKind { id: snapshot.id, path: path.to_string(), is: other.name() }),
    }
}
