//! A snapshot as the source of a run.

use std::{collections::HashMap, sync::OnceLock};

use contract::human;

use crate::{
    ends::{
        damaged_content::{WrittenFile, damaged, leave_out, needed, not_whole, written},
        local_tree::LocalHashes,
        stored_tree::{Restore, StoredTree},
    },
    fetch::copy_local::copy_all,
    measure::monitor::Monitor,
    path::RelPath,
    plan::{
        compare_contents::{HashBatch, SourceHashes},
        guards::free_space::Room,
        needed_files::Fetch,
        planned::{Compared, PlannedDir},
        run_state::Run,
        source_tree::SourceTree,
    },
    session_error::SessionError,
    sink::{
        source_end::{ContentEnd, ScannedTrees, SourceEnd},
        writing::Writing,
    },
    snapshot::{Snapshot, SnapshotError, around_runs::Before, browse::node_at},
    source::source_file::{AsListed, Origin},
    sys::root::Root,
    tree::{
        Tree,
        dir::{DirId, Totals},
    },
    wire::{Hashed, Listed, TreeHead},
};

/// A snapshot as the source of a run that restores it.
pub(crate) struct StoredSource<'a> {
    restore: &'a Restore<'a>,
    tree: StoredTree<'a>,
    monitor: &'a Monitor,
    /// Bytes that the files which are written have as holes, once that is known.
    holes: OnceLock<u64>,
}

impl<'a> StoredSource<'a> {
    pub(crate) fn new(restore: &'a Restore<'a>, run: &Run<'a>) -> Self {
        let Restore { store, snapshot, paths, .. } = restore;
        let tree = StoredTree::new(store, snapshot, paths, run.params);
        Self { restore, tree, monitor: run.monitor, holes: OnceLock::new() }
    }

    fn origin(&self) -> Origin<'_> {
        Origin::Stored(&self.tree)
    }

    /// Adds up the holes of the files that are written and that have files of their own in the store.
    fn holes_of(&self, compared: &Compared) -> u64 {
        let mut known = HashMap::new();
        let mut holes = 0_u64;
        for dir in &compared.dirs {
            for WrittenFile { entry, len, .. } in written(dir) {
                let Some(content) = self.tree.content(dir.source, entry.name) else { continue };
                let look = || self.restore.store.allocated(&content).ok().flatten();
                let allocated = known.entry(content.id).or_insert_with(look);
                holes = holes.saturating_add(allocated.map_or(0, |bytes| len.saturating_sub(bytes)));
            }
        }
        holes
    }

    /// Describes the snapshot. If only paths of it are restored, the root has the sink's metadata and stays as it is.
    fn head(&self, sink: &Tree) -> Result<TreeHead, SnapshotError> {
        let Restore { snapshot, paths, store, .. } = self.restore;
        let Snapshot { root_meta, root_attrs, entries, bytes, id, .. } = snapshot;
        let totals = Totals { entries: *entries, bytes: *bytes, ..Totals::default() };
        if paths.iter().any(RelPath::is_root) {
            let (root_meta, root_attrs) = (self.tree.kept_of_root(*root_meta), root_attrs.clone());
            let digest = self.tree.digest();
            return Ok(TreeHead { root_meta, root_attrs, digest, totals, ..TreeHead::default() });
        }
        for path in paths {
            if node_at(&**store, snapshot, path)?.is_none() {
                return Err(SnapshotError::NoPath { id: *id, path: path.to_string() });
            }
        }
        let (root_meta, root_attrs) = (sink.root_meta, sink.root_attrs.clone());
        Ok(TreeHead { root_meta, root_attrs, totals, ..TreeHead::default() })
    }
}

impl SourceTree for StoredSource<'_> {
    fn request(&mut self, dirs: &[DirId]) -> Result<(), SessionError> {
        (&self.tree).request(dirs)
    }

    fn next(&mut self) -> Result<Listed, SessionError> {
        (&self.tree).next()
    }
}

impl SourceHashes for StoredSource<'_> {
    fn ask(&mut self, _: &HashBatch) -> Result<(), SessionError> {
        Ok(())
    }

    fn next(&mut self, batch: &HashBatch) -> Result<Vec<Hashed>, SessionError> {
        LocalHashes { origin: self.origin(), monitor: self.monitor }.next(batch)
    }
}

impl ContentEnd for StoredSource<'_> {
    fn transfer(
        &mut self,
        writing: Writing<'_>,
        work: &mut dyn FnMut(&mut dyn Fetch) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        copy_all(writing, self.origin(), AsListed::default(), work)
    }
}

impl SourceEnd for StoredSource<'_> {
    fn scan(
        &mut self,
        _: &Run<'_>,
        scan_sink: &mut dyn FnMut() -> Result<Tree, SessionError>,
    ) -> Result<ScannedTrees, SessionError> {
        let sink = scan_sink()?;
        self.tree.go_to(&sink);
        Ok(ScannedTrees { head: self.head(&sink)?, sink })
    }

    fn room(&self, root: &Root) -> Option<Room> {
        let room = Room::of(root, Some(self.restore.store.dir()))?;
        Some(room.with_holes(self.holes.get().copied().unwrap_or_default()))
    }

    /// Checks every object that is needed, so that nothing is changed from a damaged snapshot. A restore that keeps
    /// going leaves the files of damaged ones as they are.
    fn ready(
        &self,
        compared: &mut Compared,
        sink: Option<&Root>,
        run: &Run<'_>,
    ) -> Result<Option<String>, SessionError> {
        let Restore { store, snapshot, .. } = self.restore;
        let needed = needed(&self.tree, compared);
        let bytes: u64 = needed.iter().map(|object| object.len).sum();
        let damaged = damaged(store, &needed);
        if run.params.keep_going {
            self.tree.add_damaged_dirs(&run.failures);
            if !damaged.is_empty() {
                let is_damaged = |dir: &PlannedDir, name: &[u8]| {
                    self.tree.content(dir.source, name).is_some_and(|it| damaged.contains(&it.id))
                };
                leave_out(compared, is_damaged, &run.failures);
            }
        } else if let Some(error) = not_whole(snapshot.id, &needed, &damaged) {
            return Err(error.into());
        }
        let _ = self.holes.set(self.holes_of(compared));
        let free = sink.and_then(|root| rustix::fs::fstatvfs(root).ok()).map(|at| at.f_bavail * at.f_frsize);
        Ok(free.map(|free| {
            let (bytes, free) = (human::bytes(bytes), human::bytes(free));
            format!("{bytes} come from the snapshot; {free} are free at the destination")
        }))
    }

    fn before_changes(&self) -> Option<&Before> {
        Some(&self.restore.before)
    }
}
