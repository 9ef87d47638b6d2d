//! Compares two snapshots.

use std::cmp::Ordering;

use super::snapshot_tree::{LinkedFiles, Node, What, nodes};
use crate::{
    path::RelPath,
    snapshot::store::{Folder, FolderRef, ReadObjects, Snapshot, SnapshotError},
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
/// an added or removed directory. A further name of a file differs as the file does, except in a directory that both
/// have alike.
///
/// # Errors
/// If a directory cannot be read.
pub fn diff_nodes(
    store: &dyn ReadObjects,
    snapshots: [&Snapshot; 2],
    one: Option<&Node>,
    other: Option<&Node>,
    path: &RelPath,
    report: &mut dyn FnMut(Change, &RelPath, &Node),
) -> Result<(), SnapshotError> {
    let linked = snapshots.map(|snapshot| LinkedFiles::new(store, snapshot));
    ComparedNodes { store, linked, report }.of_nodes(one, other, path)
}

struct ComparedNodes<'a, 'r> {
    store: &'a dyn ReadObjects,
    linked: [LinkedFiles<'a>; 2],
    report: &'r mut dyn FnMut(Change, &RelPath, &Node),
}

impl ComparedNodes<'_, '_> {
    fn of_nodes(
        &mut self,
        one: Option<&Node>,
        other: Option<&Node>,
        path: &RelPath,
    ) -> Result<(), SnapshotError> {
        let folder = |node: Option<&Node>| match node {
            Some(Node { what: What::Dir(folder), .. }) => Some(*folder),
            _ => None,
        };
        let (was, is) = (folder(one), folder(other));
        let found = match (one, other) {
            (Some(one), Some(other)) if was.is_some() && is.is_some() => touched(one, other),
            (Some(one), Some(other)) => {
                let [before, after] = &mut self.linked;
                change(Some(&before.of(one)?), Some(&after.of(other)?))
            }
            (one, other) => change(one, other),
        };
        if let Some((found, node)) = found.zip(other.or(one)) {
            (self.report)(found, path, node);
        }
        match (was, is) {
            (None, None) => Ok(()),
            (Some(one), Some(other)) if one.id == other.id => Ok(()),
            (one, other) => self.of_dirs(one, other, path),
        }
    }

    fn of_dirs(
        &mut self,
        one: Option<FolderRef>,
        other: Option<FolderRef>,
        path: &RelPath,
    ) -> Result<(), SnapshotError> {
        let read = |folder: Option<FolderRef>| {
            folder.map_or_else(|| Ok(Folder::default()), |folder| self.store.folder(&folder))
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
            self.of_nodes(from, to, &below)?;
        }
    }
}

/// Returns whether the metadata of two entries differs.
fn touched(before: &Node, now: &Node) -> Option<Change> {
    (before.meta != now.meta || before.attrs != now.attrs).then_some(Change::Metadata)
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
            _ => touched(before, now),
        },
    }
}
