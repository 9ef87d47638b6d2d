//! Directories that were renamed or moved at the source, and can be at the sink.
//!
//! A directory that the sink does not have, and whose digest is that of one that goes, is taken for it: all names,
//! kinds, sizes, modes and times below it are equal. That is what says that a file is unchanged where its name is; here
//! the name is another, so more is asked: every file in it has a time to the nanosecond. Times that archives, builds
//! and copies give to many files have none, and with them a directory's files are compared by their content.

use std::collections::{HashMap, HashSet};

use crate::{
    entry::Kind,
    hash::TreeDigest,
    monitor::Monitor,
    path::RelPath,
    plan::Policy,
    session::{
        plan::planned::{MovedDir, PlannedDir},
        session_error::{SessionError, go_on},
    },
    tree::{Tree, dir::DirId},
};

/// Which directories of the sink may be, and have been, moved.
#[derive(Debug)]
pub(crate) struct Moves<'a> {
    sink: &'a Tree,
    policy: Policy,
    /// What the directories of the sink look like that hold anything.
    known: HashSet<[u8; 16]>,
    /// Directories with a name of a file that has others: where those are decides what becomes of it.
    linked: HashSet<DirId>,
    /// Those that go, once that is known.
    gone: Option<HashMap<[u8; 16], RemovedDir>>,
    /// By where they go.
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
    /// `may_move` is false where entries may be in a directory that the scan did not list.
    pub(crate) fn new(sink: &'a Tree, policy: Policy, may_move: bool) -> Self {
        let below = if may_move && policy.delete { &sink.dirs[1..] } else { &[] };
        let filled = below.iter().filter(|dir| !dir.listing.is_empty());
        let known = filled.map(|dir| dir.digest.entries).collect();
        let linked = sink.groups.iter().flat_map(|group| &group.members).map(|place| place.dir).collect();
        Self { sink, policy, known, linked, gone: None, made: HashMap::new() }
    }

    /// Whether a directory with this digest might be one of the sink's.
    pub(crate) fn might_have(&self, digest: &TreeDigest) -> bool {
        self.known.contains(&digest.entries)
    }

    /// Whether it is known what goes.
    pub(crate) fn is_ready(&self) -> bool {
        self.gone.is_some()
    }

    /// Takes note of what goes.
    pub(crate) fn look_at(&mut self, planned: &[PlannedDir], monitor: &Monitor) -> Result<(), SessionError> {
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

    /// Has the directory that goes and looks like this one moved to `path`; false where there is none. Nothing of it is
    /// deleted then.
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
        let Some(moved) = told.filter(|_| same) else { return Ok(false) };
        let plan = &mut planned[found.parent].plan;
        plan.deletes.retain(|&index| index != found.index);
        plan.moved.push(found.index);
        self.made.insert(path.clone(), moved);
        Ok(true)
    }

    /// The directories that are moved, by where they go.
    pub(crate) fn into_made(self) -> HashMap<RelPath, MovedDir> {
        self.made
    }
}

/// The directory, if the times of all files in it and below are such as only a clock gives, and all of it was seen.
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
        if !dir.listing.is_complete() || linked.contains(&id) {
            return Ok(None);
        }
    }
    Ok(Some(moved))
}
