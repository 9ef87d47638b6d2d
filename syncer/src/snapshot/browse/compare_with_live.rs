//! Compares the live tree of a volume with a snapshot of it, and changes nothing.

use super::{
    compare_snapshots::Change,
    snapshot_tree::{LinkedFiles, Node, What, kind_name, nodes},
};
use crate::{
    entry::{Entry, Kind, Time},
    failures::Failures,
    monitor::Monitor,
    path::RelPath,
    root::Root,
    scan::scan,
    snapshot::{
        create::options_of,
        store::{Folder, FolderRef, Snapshot, SnapshotError, Store, id_of_file, io_error},
    },
    sys::file_part::Slice,
    tree::{
        Tree,
        dir::{DirId, ROOT},
    },
};
use std::{collections::HashMap, os::fd::AsFd as _};

/// Receives a difference, with its path and the word for the kind of the entry.
pub(crate) type ReportDifference<'t> = dyn FnMut(Change, &RelPath, &'static str) + 't;

/// Reports how the live tree at `root` differs from a snapshot, in the order of paths. A file counts as unchanged by
/// its size and time, unless `contents` asks to read those whose stamps prove nothing. What cannot be read goes to
/// `failures`.
///
/// # Errors
/// If the tree cannot be scanned, or a directory of the snapshot cannot be read.
pub fn live_status(
    store: &Store,
    snapshot: &Snapshot,
    root: &Root,
    contents: bool,
    failures: &Failures,
    report: &mut ReportDifference<'_>,
) -> Result<(), SnapshotError> {
    // Every file gets a stamp: one that equals the snapshot's proves that nothing has changed, whatever the time is.
    let options = options_of(Time { seconds: i64::MAX, nanos: 0 });
    let tree = scan(root, &options, failures, &Monitor::default()).map_err(io_error("scan", store.path()))?;
    if (tree.root_meta, &tree.root_attrs) != (snapshot.root_meta, &snapshot.root_attrs) {
        report(Change::Metadata, &RelPath::root(), "directory");
    }
    let linked = LinkedFiles::new(store, snapshot);
    let live =
        tree.groups.iter().filter_map(|group| Some((group.leader.as_bytes(), group.entry()?))).collect();
    let mut compared = ComparedLive { store, root, tree: &tree, linked, live, contents, failures, report };
    compared.dir(Some(snapshot.tree), Some(ROOT), &RelPath::root())
}

struct ComparedLive<'a, 't> {
    store: &'a Store,
    root: &'a Root,
    tree: &'a Tree,
    /// The files of the snapshot that have several names.
    linked: LinkedFiles<'a>,
    /// Those of the live tree, by the paths of their leaders.
    live: HashMap<&'a [u8], Entry<'a>>,
    contents: bool,
    failures: &'a Failures,
    report: &'a mut ReportDifference<'t>,
}

impl ComparedLive<'_, '_> {
    /// Compares a directory of the snapshot with one of the live tree; either may be missing.
    fn dir(
        &mut self,
        old: Option<FolderRef>,
        live: Option<DirId>,
        path: &RelPath,
    ) -> Result<(), SnapshotError> {
        let dir = live.map(|id| &self.tree.dirs[id as usize]);
        if let (Some(old), Some(dir)) = (old, dir)
            && old.digest == dir.digest
            && (!self.contents || old.seen.proves_same(dir.seen))
        {
            return Ok(());
        }
        let folder = old.map_or_else(|| Ok(Folder::default()), |old| self.store.folder(&old))?;
        let mut olds = nodes(&folder).zip(stamps_of(&folder)).peekable();
        let stamps = dir.into_iter().flat_map(|dir| dir.stamps.iter().copied());
        let entries = dir.into_iter().flat_map(|dir| dir.listing.iter());
        let mut next_dir = dir.map_or(ROOT, |dir| dir.first_child);
        for (entry, stamp) in entries.zip(stamps.chain(std::iter::repeat(0))) {
            while let Some(((name, node), _)) = olds.next_if(|((name, _), _)| *name < entry.name) {
                self.gone(name, &node.what, path)?;
            }
            let old = olds.next_if(|((name, _), _)| *name == entry.name);
            let live = (entry.kind == Kind::Dir).then_some(next_dir);
            next_dir += u32::from(live.is_some());
            let Ok(below) = path.join(entry.name) else { continue };
            let (change, old_dir) = match &old {
                None => (Some(Change::Added), None),
                Some(((_, node), seen)) => {
                    let is_proven = *seen != 0 && *seen == stamp;
                    let old_dir = if let What::Dir(folder) = node.what { Some(folder) } else { None };
                    (self.change(node, &entry, &below, is_proven)?, old_dir)
                }
            };
            if entry.kind != Kind::Socket {
                change.into_iter().for_each(|change| (self.report)(change, &below, kind_name(entry.kind)));
            }
            if live.is_some() || old_dir.is_some() {
                self.dir(old_dir, live, &below)?;
            }
        }
        for ((name, node), _) in olds {
            self.gone(name, &node.what, path)?;
        }
        Ok(())
    }

    /// Reports an entry that the live tree does not have, and of all below it.
    fn gone(&mut self, name: &[u8], what: &What, path: &RelPath) -> Result<(), SnapshotError> {
        let Ok(below) = path.join(name) else { return Ok(()) };
        (self.report)(Change::Removed, &below, what.name());
        match what {
            What::Dir(folder) => self.dir(Some(*folder), None, &below),
            _ => Ok(()),
        }
    }

    /// Returns how an entry differs from what the snapshot has. Each name of a file stands for the file.
    fn change(
        &mut self,
        old: &Node,
        live: &Entry<'_>,
        path: &RelPath,
        is_proven: bool,
    ) -> Result<Option<Change>, SnapshotError> {
        let old = &self.linked.of(old)?;
        let led = if let Kind::HardLink { to } = live.kind { self.live.get(to) } else { None };
        let live = led.unwrap_or(live);
        let before = old.entry(live.name);
        let is_file = matches!(before.kind, Kind::File { .. });
        let is_modified = match (before.kind, live.kind) {
            (one, other) if one != other => true,
            (Kind::File { .. }, _) if is_proven => false,
            (Kind::File { .. }, _) if self.contents => self.has_other_content(&old.what, path),
            _ => is_file && before.meta.mtime != live.meta.mtime,
        };
        let is_touched = before.meta != live.meta || before.attrs != live.attrs;
        Ok(match (is_modified, is_touched) {
            (true, _) => Some(Change::Modified),
            (false, true) => Some(Change::Metadata),
            _ => None,
        })
    }

    fn has_other_content(&self, what: &What, path: &RelPath) -> bool {
        let What::File { len, content } = what else { return false };
        let Some(content) = content else { return false };
        match self.root.file(path).and_then(|file| id_of_file(Slice::all_of(file.as_fd()), *len)) {
            Ok(id) => id != content.id,
            Err(error) => {
                self.failures.add(path, "read", &error);
                false
            }
        }
    }
}

/// Yields the stamp of each node of a directory; 0 for those without.
fn stamps_of(folder: &Folder) -> impl Iterator<Item = u64> {
    let stamps = folder.rows().map(|row| row.content.map_or(0, |(_, stamp)| stamp));
    let listed = folder.listing.iter().map(|entry| entry.kind != Kind::Socket);
    stamps.zip(listed).filter(|(_, is_node)| *is_node).map(|(stamp, _)| stamp).collect::<Vec<_>>().into_iter()
}
