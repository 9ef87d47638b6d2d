//! Finds directories that were renamed or moved at the source, whose move the sink can repeat, and decides whether a
//! run does so at all.
//!
//! A directory that the sink lacks is taken for one that it deletes if both have the same digest: all names, kinds,
//! sizes, modes and times in and below them are equal. Under the same name, that proves that a file is unchanged. Here
//! the name differs, so each file also needs a time with nanoseconds. Times that archives, builds and copies give to
//! many files have none; such directories are compared by content.

use std::collections::{HashMap, HashSet};

use contract::RunParams;

use crate::{
    compare_entries::{Content, Policy},
    entry::Kind,
    filter::FilterError,
    hash::TreeDigest,
    measure::monitor::Monitor,
    path::RelPath,
    plan::{
        compare_params::content,
        planned::{MovedDir, PlannedDir},
        scan_params::lists_all,
    },
    session_error::{SessionError, go_on},
    tree::{Tree, dir::DirId},
};

/// Returns whether directories may be moved as they are. They may not if entries in them may be excluded from the run,
/// if equal metadata does not prove that files are unchanged, or if a backup folder keeps deleted entries below their
/// old paths.
pub(crate) fn may_move(params: &RunParams) -> Result<bool, FilterError> {
    let keeps_old = params.demands.backup_dir.is_some();
    Ok(lists_all(params)? && !keeps_old && content(params) == Content::Trusted)
}

/// The directories of the sink that may be moved, and those that are.
#[derive(Debug)]
pub(crate) struct Moves<'a> {
    sink: &'a Tree,
    policy: Policy,
    /// The digests of the sink's directories that are not empty.
    known: HashSet<[u8; 16]>,
    /// Directories that contain a name of a file with several names. They do not move, because the file may have names
    /// elsewhere.
    linked: HashSet<DirId>,
    /// The directories that are deleted, once they are known.
    gone: Option<HashMap<[u8; 16], RemovedDir>>,
    /// The moves, by destination path.
    made: HashMap<RelPath, MovedDir>,
}

/// A directory of the sink that the source does not have at its place.
#[derive(Debug)]
struct RemovedDir {
    id: DirId,
    path: RelPath,
    /// The planned directory that it is deleted in, and its place in that one's listing.
    parent: usize,
    index: u32,
}

impl<'a> Moves<'a> {
    /// Starts without moves. `may_move` is false where directories may have entries that the scan did not list.
    pub(crate) fn new(sink: &'a Tree, policy: Policy, may_move: bool) -> Self {
        let below = if may_move && policy.delete { &sink.dirs[1..] } else { &[] };
        let filled = below.iter().filter(|dir| !dir.listing.is_empty());
        let known = filled.map(|dir| dir.digest.entries).collect();
        let linked = sink.groups.iter().flat_map(|group| &group.members).map(|place| place.dir).collect();
        Self { sink, policy, known, linked, gone: None, made: HashMap::new() }
    }

    /// Returns whether a directory with this digest may be one of the sink's.
    pub(crate) fn might_have(&self, digest: &TreeDigest) -> bool {
        self.known.contains(&digest.entries)
    }

    /// Returns whether it is known which directories are deleted.
    pub(crate) fn is_ready(&self) -> bool {
        self.gone.is_some()
    }

    /// Records the directories that are deleted.
    pub(crate) fn record_removed(
        &mut self,
        planned: &[PlannedDir],
        monitor: &Monitor,
    ) -> Result<(), SessionError> {
        let gone = self.gone.insert(HashMap::new());
        for (parent, dir) in planned.iter().enumerate() {
            let Some(there) = dir.sink.map(|id| &self.sink.dirs[id as usize]) else { continue };
            let deletes: HashSet<u32> = dir.plan.deletes.iter().copied().collect();
            let dirs = (0..).zip(&there.listing).filter(|(_, entry)| entry.kind == Kind::Dir);
            for ((index, entry), id) in dirs.zip(there.first_child..) {
                go_on(monitor)?;
                let digest = self.sink.dirs[id as usize].digest.entries;
                if let (true, Ok(path)) = (deletes.contains(&index), dir.path.join(entry.name)) {
                    gone.insert(digest, RemovedDir { id, path, parent, index });
                }
            }
        }
        Ok(())
    }

    /// Plans the move of a deleted directory with this digest to `path`, and removes its delete. Returns false if there
    /// is none.
    pub(crate) fn take(
        &mut self,
        digest: &TreeDigest,
        path: &RelPath,
        planned: &mut [PlannedDir],
        monitor: &Monitor,
    ) -> Result<bool, SessionError> {
        let (sink, policy) = (self.sink, self.policy);
        let Some(gone) = self.gone.as_mut() else { return Ok(false) };
        let Some(found) = gone.remove(&digest.entries) else { return Ok(false) };
        let same = policy.same(digest, &sink.dirs[found.id as usize].digest);
        let told = told_by_times(sink, &self.linked, found.id, found.path, monitor)?;
        let Some(moved) = told.filter(|_| same && !leads_elsewhere(sink, path)) else { return Ok(false) };
        let plan = &mut planned[found.parent].plan;
        plan.deletes.retain(|&index| index != found.index);
        plan.moved.push(found.index);
        self.made.insert(path.clone(), moved);
        Ok(true)
    }

    /// Returns the directories that are moved, by destination path.
    pub(crate) fn into_made(self) -> HashMap<RelPath, MovedDir> {
        self.made
    }
}

/// Returns whether a new entry at `path` would be on another mount or file system than the sink's root: the kernel
/// moves nothing between these.
fn leads_elsewhere(sink: &Tree, path: &RelPath) -> bool {
    let mut above = path.split_last().map(|(above, _)| above);
    while let Some(dir) = above {
        if let Some(id) = sink.find(&dir) {
            return !sink.dirs[id as usize].beyond.is_nothing();
        }
        above = dir.split_last().map(|(above, _)| above);
    }
    false
}

/// Returns the directory if all of it was scanned and is on the file system and mount of the root, and the times of all
/// files in and below it have nanoseconds.
fn told_by_times(
    tree: &Tree,
    linked: &HashSet<DirId>,
    id: DirId,
    from: RelPath,
    monitor: &Monitor,
) -> Result<Option<MovedDir>, SessionError> {
    let mut moved = MovedDir { from, entries: 0, bytes: 0 };
    let mut left = vec![id];
    while let Some(id) = left.pop() {
        let dir = &tree.dirs[id as usize];
        for entry in &dir.listing {
            go_on(monitor)?;
            let size = if let Kind::File { size } = entry.kind { size } else { 0 };
            if size > 0 && entry.meta.mtime.nanos == 0 {
                return Ok(None);
            }
            moved.bytes += size;
        }
        moved.entries += dir.listing.len() as u64;
        left.extend(dir.first_child..dir.first_child + dir.listing.dirs());
        if !dir.listing.is_complete() || !dir.beyond.is_nothing() || linked.contains(&id) {
            return Ok(None);
        }
    }
    Ok(Some(moved))
}
