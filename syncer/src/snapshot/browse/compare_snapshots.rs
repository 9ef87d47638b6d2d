//! Compares two snapshots.

use std::cmp::Ordering;

use super::snapshot_tree::{Node, What, nodes};
use crate::{
    path::RelPath,
    snapshot::store::{Folder, FolderRef, ReadObjects, SnapshotError},
};

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
pub fn diff_nodes(
    store: &dyn ReadObjects,
    one: Option<&Node>,
    other: Option<&Node>,
    path: &RelPath,
    report: &mut dyn FnMut(Change, &RelPath, &Node),
) -> Result<(), SnapshotError> {
    match (one, other) {
        (Some(one), Some(other)) if !one.what.has_same_content(&other.what) => {
            report(Change::Modified, path, other);
        }
        (Some(one), Some(other)) if one.meta != other.meta || one.attrs != other.attrs => {
            report(Change::Metadata, path, other);
        }
        (Some(_), Some(_)) | (None, None) => {}
        (None, Some(other)) => report(Change::Added, path, other),
        (Some(one), None) => report(Change::Removed, path, one),
    }
    let folder = |node: Option<&Node>| match node {
        Some(Node { what: What::Dir(folder), .. }) => Some(*folder),
        _ => None,
    };
    match (folder(one), folder(other)) {
        (None, None) => Ok(()),
        (Some(one), Some(other)) if one.id == other.id => Ok(()),
        (one, other) => diff_dirs(store, one, other, path, report),
    }
}

fn diff_dirs(
    store: &dyn ReadObjects,
    one: Option<FolderRef>,
    other: Option<FolderRef>,
    path: &RelPath,
    report: &mut dyn FnMut(Change, &RelPath, &Node),
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
        let (from, to) = (from.as_ref().map(|(_, node)| node), to.as_ref().map(|(_, node)| node));
        diff_nodes(store, from, to, &below, report)?;
    }
}

/// Returns how an entry has changed; `None` if not at all.
pub(crate) fn change(before: Option<&Node>, now: Option<&Node>) -> Option<Change> {
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
