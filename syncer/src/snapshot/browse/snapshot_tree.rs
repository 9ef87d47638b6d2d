//! Looks up a path in a snapshot, compares two snapshots, and finds the versions of a path.

use std::{cmp::Ordering, collections::HashMap};

use super::{
    content::ContentRef,
    folder::{Folder, FolderRef, FolderRow},
    roots::Snapshot,
    snapshot_error::SnapshotError,
    store::Store,
};
use crate::{
    attrs::AttrsBuf,
    entry::{Entry, Kind, Meta},
    path::RelPath,
    tree::stamps::IN_MOTION,
};

/// The longest chain of hard links that is followed. A link leads to a file, never to another link.
const MAX_HOPS: usize = 2;

/// An entry of a snapshot, or its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its kind.
    pub what: What,
    /// Mode, time and owner. Those of a hard link are at the file that it leads to.
    pub meta: Meta,
    /// Extended attributes.
    pub attrs: AttrsBuf,
    /// Whether another process may have been writing to the file while it was read, so that its content may be a mix.
    pub in_motion: bool,
}

/// The kind of an entry, with the data that only that kind has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A regular file; an empty one has no content.
    File {
        /// Length in bytes.
        len: u64,
        /// The place of its content.
        content: Option<ContentRef>,
    },
    /// A directory.
    Dir(FolderRef),
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

impl Node {
    /// Returns whether two nodes have the same content and metadata, wherever the store has their content.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        change(Some(self), Some(other)).is_none()
    }

    /// Returns the entry that a listing has for it under this name.
    pub fn entry<'a>(&'a self, name: &'a [u8]) -> Entry<'a> {
        let kind = match &self.what {
            What::File { len, .. } => Kind::File { size: *len },
            What::Dir(_) => Kind::Dir,
            What::Symlink(target) => Kind::Symlink { target },
            What::HardLink(to) => Kind::HardLink { to },
            What::Fifo => Kind::Fifo,
            What::CharDevice(rdev) => Kind::CharDevice { rdev: *rdev },
            What::BlockDevice(rdev) => Kind::BlockDevice { rdev: *rdev },
        };
        Entry { name, kind, meta: self.meta, attrs: self.attrs.as_attrs() }
    }
}

impl What {
    /// Returns the word for the kind.
    pub fn name(&self) -> &'static str {
        match self {
            Self::File { .. } => "file",
            Self::Dir(_) => "directory",
            Self::Symlink(_) => "symlink",
            Self::HardLink(_) => "hardLink",
            Self::Fifo => "fifo",
            Self::CharDevice(_) => "charDevice",
            Self::BlockDevice(_) => "blockDevice",
        }
    }

    /// Returns whether it is a pipe or a device.
    pub fn is_special(&self) -> bool {
        matches!(self, Self::Fifo | Self::CharDevice(_) | Self::BlockDevice(_))
    }

    /// Returns whether both have the same kind and content. Any two directories count as equal.
    fn has_same_content(&self, other: &Self) -> bool {
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
pub fn root(snapshot: &Snapshot) -> Node {
    let (meta, attrs) = (snapshot.root_meta, snapshot.root_attrs.clone());
    Node { what: What::Dir(snapshot.tree), meta, attrs, in_motion: false }
}

/// Finds the entry at a path of a snapshot; `None` if there is none.
///
/// # Errors
/// If a directory on the way cannot be read.
pub fn at(store: &Store, snapshot: &Snapshot, path: &RelPath) -> Result<Option<Node>, SnapshotError> {
    let mut at = root(snapshot);
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
pub fn link_counts(store: &Store, snapshot: &Snapshot) -> Result<HashMap<RelPath, u32>, SnapshotError> {
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
pub fn in_motion(store: &Store, snapshot: &Snapshot) -> Result<Vec<RelPath>, SnapshotError> {
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

/// Finds the file at a path, following a hard link.
///
/// # Errors
/// If there is no entry, or one that is no file.
pub fn file(
    store: &Store,
    snapshot: &Snapshot,
    path: &RelPath,
) -> Result<(Option<ContentRef>, u64), SnapshotError> {
    let missing = || SnapshotError::NoPath { id: snapshot.id, path: path.to_string() };
    let mut to = path.clone();
    for _ in 0..MAX_HOPS {
        match at(store, snapshot, &to)?.ok_or_else(missing)?.what {
            What::File { len, content } => return Ok((content, len)),
            What::HardLink(leader) => to = RelPath::parse(&leader).map_err(|_| missing())?,
            other => {
                return Err(SnapshotError::WrongKind {
                    id: snapshot.id,
                    path: path.to_string(),
                    is: other.name(),
                });
            }
        }
    }
    Err(missing())
}

/// How an entry differs between two snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Only the second has it.
    Added,
    /// Only the first has it.
    Removed,
    /// Its content or its kind differs.
    Modified,
    /// Only its mode, owner, time or attributes differ.
    Metadata,
}

impl Change {
    /// Returns the sign that is printed before a path.
    pub fn sign(self) -> char {
        match self {
            Self::Added => '+',
            Self::Removed => '-',
            Self::Modified => 'M',
            Self::Metadata => 'm',
        }
    }
}

/// Reports every entry below `path` that differs between two snapshots, in the order of paths, including each entry of
/// an added or removed directory.
///
/// # Errors
/// If a directory cannot be read.
pub fn diff(
    store: &Store,
    (one, other): (Option<Node>, Option<Node>),
    path: &RelPath,
    tell: &mut dyn FnMut(Change, &RelPath, &Node),
) -> Result<(), SnapshotError> {
    match (&one, &other) {
        (Some(one), Some(other)) if !one.what.has_same_content(&other.what) => {
            tell(Change::Modified, path, other);
        }
        (Some(one), Some(other)) if one.meta != other.meta || one.attrs != other.attrs => {
            tell(Change::Metadata, path, other);
        }
        (Some(_), Some(_)) | (None, None) => {}
        (None, Some(other)) => tell(Change::Added, path, other),
        (Some(one), None) => tell(Change::Removed, path, one),
    }
    let folder = |node: &Option<Node>| match node {
        Some(Node { what: What::Dir(folder), .. }) => Some(*folder),
        _ => None,
    };
    match (folder(&one), folder(&other)) {
        (None, None) => Ok(()),
        (Some(one), Some(other)) if one.id == other.id => Ok(()),
        (one, other) => diff_dirs(store, (one, other), path, tell),
    }
}

fn diff_dirs(
    store: &Store,
    (one, other): (Option<FolderRef>, Option<FolderRef>),
    path: &RelPath,
    tell: &mut dyn FnMut(Change, &RelPath, &Node),
) -> Result<(), SnapshotError> {
    let read = |folder: Option<FolderRef>| {
        folder.map_or_else(|| Ok(Folder::default()), |folder| store.folder(&folder))
    };
    let (one, other) = (read(one)?, read(other)?);
    let (mut ones, mut others) = (nodes(&one).peekable(), nodes(&other).peekable());
    loop {
        let order = match (ones.peek(), others.peek()) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((one, _)), Some((other, _))) => one.cmp(other),
        };
        let from = if order.is_le() { ones.next() } else { None };
        let to = if order.is_ge() { others.next() } else { None };
        let Some(name) = from.as_ref().or(to.as_ref()).map(|(name, _)| *name) else { return Ok(()) };
        let Ok(below) = path.join(name) else {
            let name = crate::path::display(name);
            tracing::warn!(dir = %path, name, "a path is too long to be compared");
            continue;
        };
        diff(store, (from.map(|(_, node)| node), to.map(|(_, node)| node)), &below, tell)?;
    }
}

/// A version of a path: consecutive snapshots with the same entry there.
#[derive(Debug)]
pub struct Version<'s> {
    /// The first snapshot with it.
    pub first: &'s Snapshot,
    /// The last snapshot with it.
    pub last: &'s Snapshot,
    /// The entry; `None` if there is none.
    pub node: Option<Node>,
    /// How it differs from the version before.
    pub change: Option<Change>,
}

/// Finds the versions of a path in `snapshots`, which must be in chronological order.
///
/// # Errors
/// If a directory cannot be read.
pub fn history<'s>(
    store: &Store,
    snapshots: impl Iterator<Item = &'s Snapshot>,
    path: &RelPath,
) -> Result<Vec<Version<'s>>, SnapshotError> {
    let mut versions: Vec<Version<'s>> = Vec::new();
    for snapshot in snapshots {
        let node = at(store, snapshot, path)?;
        let before = versions.last_mut();
        let change = change(before.as_ref().and_then(|before| before.node.as_ref()), node.as_ref());
        match before {
            Some(before) if change.is_none() => before.last = snapshot,
            None if node.is_none() => {}
            _ => versions.push(Version { first: snapshot, last: snapshot, node, change }),
        }
    }
    Ok(versions)
}

fn change(before: Option<&Node>, now: Option<&Node>) -> Option<Change> {
    match (before, now) {
        (None, None) => None,
        (None, Some(_)) => Some(Change::Added),
        (Some(_), None) => Some(Change::Removed),
        (Some(before), Some(now)) => match (&before.what, &now.what) {
            (What::Dir(one), What::Dir(other)) if one.id != other.id => Some(Change::Modified),
            (one, other) if !one.has_same_content(other) => Some(Change::Modified),
            _ => (before.meta != now.meta || before.attrs != now.attrs).then_some(Change::Metadata),
        },
    }
}
