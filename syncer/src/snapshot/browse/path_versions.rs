//! Finds the versions of a path, and the paths that match a pattern, in all snapshots of a volume at once.

use std::collections::{BTreeMap, HashMap, hash_map::Entry::Vacant};

use super::{
    compare_snapshots::{Change, change},
    snapshot_tree::{LinkedFiles, Node, What, linked_node_at, nodes},
};
use crate::{
    filter::{Pattern, read_pattern},
    path::RelPath,
    snapshot::store::{FolderId, FolderRef, ReadObjects, Snapshot, SnapshotError},
};

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
pub fn path_versions<'s>(
    store: &dyn ReadObjects,
    snapshots: impl Iterator<Item = &'s Snapshot>,
    path: &RelPath,
) -> Result<Vec<Version<'s>>, SnapshotError> {
    let mut versions: Vec<Version<'s>> = Vec::new();
    for snapshot in snapshots {
        let node = linked_node_at(store, snapshot, path)?;
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

/// A row of snapshots, by the numbers of the first and the last one, with what all of them have.
#[derive(Debug, Clone)]
struct SnapshotSpan<T> {
    first: usize,
    last: usize,
    what: T,
}

/// Reads a pattern, as `.gitignore` has it.
///
/// # Errors [`SnapshotError::Invalid`], if no path can match it.
pub fn pattern(text: &str) -> Result<Pattern, SnapshotError> {
    if text.starts_with('!') {
        let message = format!(
            "{text} begins with !, which takes back what other patterns find: write \\{text} for names that do"
        );
        return Err(SnapshotError::Invalid(message));
    }
    read_pattern(text).map_err(|error| SnapshotError::Invalid(error.to_string()))
}

/// Passes every path that matches the pattern on, in the order of paths, with its versions in these snapshots. Reads
/// each directory once, however many snapshots have it in this place.
///
/// # Errors
/// If a directory cannot be read.
pub fn find_paths<'s>(
    store: &dyn ReadObjects,
    snapshots: &[&'s Snapshot],
    pattern: &Pattern,
    report: &mut dyn FnMut(&RelPath, &[Version<'s>]),
) -> Result<(), SnapshotError> {
    let is_same = |one: &FolderRef, other: &FolderRef| one.id == other.id;
    let mut roots: Vec<SnapshotSpan<FolderRef>> = Vec::new();
    for (nth, snapshot) in snapshots.iter().enumerate() {
        push(&mut roots, SnapshotSpan { first: nth, last: nth, what: snapshot.tree }, is_same);
    }
    let mut stack = vec![(RelPath::root(), roots, Vec::new())];
    while let Some((path, runs, versions)) = stack.pop() {
        if !versions.is_empty() {
            report(&path, &versions);
        }
        let mut below: Vec<_> = Vec::new();
        for (name, runs) in entries(store, snapshots, &runs, &path, pattern)? {
            let Ok(path) = path.join(&name) else { continue };
            let is_match = |node: &Node| pattern.matches(path.as_bytes(), matches!(node.what, What::Dir(_)));
            let matching = runs.iter().filter(|run| is_match(&run.what));
            let versions = matching.map(|run| Version {
                first: snapshots[run.first],
                last: snapshots[run.last],
                node: Some(run.what.clone()),
                change: None,
            });
            let versions: Vec<Version<'s>> = versions.collect();
            let dirs = runs.into_iter().filter_map(|SnapshotSpan { first, last, what }| match what.what {
                What::Dir(folder) => Some(SnapshotSpan { first, last, what: folder }),
                _ => None,
            });
            let mut folders = Vec::new();
            dirs.for_each(|run| push(&mut folders, run, is_same));
            if !(versions.is_empty() && folders.is_empty()) {
                below.push((path, folders, versions));
            }
        }
        stack.extend(below.into_iter().rev());
    }
    Ok(())
}

/// Returns the entries of a directory in a row of snapshots that match or may have matches below.
fn entries(
    store: &dyn ReadObjects,
    snapshots: &[&Snapshot],
    runs: &[SnapshotSpan<FolderRef>],
    path: &RelPath,
    pattern: &Pattern,
) -> Result<BTreeMap<Vec<u8>, Vec<SnapshotSpan<Node>>>, SnapshotError> {
    let mut read: HashMap<FolderId, Vec<(Vec<u8>, Node)>> = HashMap::new();
    let mut entries: BTreeMap<Vec<u8>, Vec<SnapshotSpan<Node>>> = BTreeMap::new();
    for SnapshotSpan { first, last, what } in runs {
        if let Vacant(unread) = read.entry(what.id) {
            let folder = store.folder(what)?;
            let matters = |(name, node): &(&[u8], Node)| {
                let path = path.join(name);
                matches!(node.what, What::Dir(_))
                    || path.is_ok_and(|path| pattern.matches(path.as_bytes(), false))
            };
            let matter = nodes(&folder).filter(matters).map(|(name, node)| (name.to_vec(), node)).collect();
            unread.insert(matter);
        }
        for (name, node) in read.get(&what.id).into_iter().flatten() {
            let runs = entries.entry(name.clone()).or_default();
            let mut extend = |first, last, what| {
                let is_same = |one: &Node, other: &Node| change(Some(one), Some(other)).is_none();
                push(runs, SnapshotSpan { first, last, what }, is_same);
            };
            if !matches!(node.what, What::HardLink(_)) {
                extend(*first, *last, node.clone());
                continue;
            }
            // A further name of a file may stay as it is while the file, which is elsewhere, changes.
            for (nth, snapshot) in (*first..).zip(&snapshots[*first..=*last]) {
                extend(nth, nth, LinkedFiles::new(store, snapshot).of(node)?);
            }
        }
    }
    Ok(entries)
}

/// Appends what snapshots have, or extends the last row if that has the same and they follow it.
fn push<T>(runs: &mut Vec<SnapshotSpan<T>>, next: SnapshotSpan<T>, is_same: impl Fn(&T, &T) -> bool) {
    match runs.last_mut() {
        Some(run) if run.last + 1 == next.first && is_same(&run.what, &next.what) => run.last = next.last,
        _ => runs.push(next),
    }
}
