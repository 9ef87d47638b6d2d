//! The source's listings against the sink's tree → what to do in each directory.

use std::collections::VecDeque;

use crate::{
    entry::{Kind, Listing, Meta},
    hash::TreeDigest,
    path::RelPath,
    plan::{DirPlan, Policy, plan_dir},
    scan::{Dir, DirId, ROOT, Tree},
    transport::TransportError,
    wire::{Listed, TreeHead},
};

use super::SessionError;

/// How many listings are asked for at once.
const BATCH: usize = 512;

/// The source's tree, as the sink can look at it.
pub(super) trait SourceTree {
    /// Asks for the listings of these directories.
    fn request(&mut self, dirs: &[DirId]) -> Result<(), SessionError>;

    /// The listings that were asked for, in the order of asking.
    fn next(&mut self) -> Result<Listed, SessionError>;
}

/// What to do in one directory.
#[derive(Debug)]
pub(super) struct PlannedDir {
    /// The directory's number at the source.
    pub source: DirId,
    /// Its number at the sink, if it is there.
    pub sink: Option<DirId>,
    /// Where it is.
    pub path: RelPath,
    /// Its own metadata at the source.
    pub meta: Meta,
    /// Its entries at the source.
    pub listing: Listing,
    /// What to do with them.
    pub plan: DirPlan,
}

/// A directory that has to be looked into.
struct Visit {
    source: DirId,
    sink: Option<DirId>,
    path: RelPath,
    meta: Meta,
}

/// Plans every directory that differs, parents before children.
pub(super) fn compare(
    source: &mut impl SourceTree,
    head: &TreeHead,
    sink: &Tree,
    policy: Policy,
) -> Result<Vec<PlannedDir>, SessionError> {
    let same =
        |a: &TreeDigest, b: &TreeDigest| a.entries == b.entries && (!policy.owners || a.owners == b.owners);
    if same(&head.digest, &sink.dirs[ROOT as usize].digest) {
        return Ok(Vec::new());
    }
    let nothing = Dir::default();
    let mut planned = Vec::new();
    let root = Visit { source: ROOT, sink: Some(ROOT), path: RelPath::root(), meta: head.root_meta };
    let mut level = VecDeque::from([root]);
    // Two batches are under way at any time: while one is compared, the next one crosses.
    let mut asked = 0;
    while !level.is_empty() {
        while asked < level.len().min(2 * BATCH) {
            let batch: Vec<DirId> =
                level.range(asked..level.len().min(asked + BATCH)).map(|v| v.source).collect();
            source.request(&batch)?;
            asked += batch.len();
        }
        let Some(visit) = level.pop_front() else { break };
        asked -= 1;
        let listed = source.next()?;
        if listed.dir != visit.source {
            return Err(TransportError::Nonsense("a directory came that was not asked for").into());
        }
        let there = visit.sink.map_or(&nothing, |id| &sink.dirs[id as usize]);
        let plan = plan_dir(&listed.listing, &there.listing, policy);
        descend(&mut level, &visit, &listed, there, &plan, |listed, id| {
            same(listed, &sink.dirs[id as usize].digest)
        })?;
        let Visit { source, sink, path, meta } = visit;
        planned.push(PlannedDir { source, sink, path, meta, listing: listed.listing, plan });
    }
    Ok(planned)
}

fn descend(
    level: &mut VecDeque<Visit>,
    visit: &Visit,
    listed: &Listed,
    there: &Dir,
    plan: &DirPlan,
    same: impl Fn(&TreeDigest, DirId) -> bool,
) -> Result<(), SessionError> {
    let dirs = listed.listing.iter().filter(|entry| entry.kind == Kind::Dir);
    for (entry, pair) in dirs.zip(&plan.pairs) {
        let sink = pair.sink.map(|nth| there.first_child + nth);
        let digest = &listed.children[pair.source as usize];
        if sink.is_some_and(|id| same(digest, id)) {
            continue;
        }
        let path = visit.path.join(entry.name);
        let path = path.map_err(|_| TransportError::Nonsense("a path is longer than a path can be"))?;
        level.push_back(Visit { source: listed.first_child + pair.source, sink, path, meta: entry.meta });
    }
    Ok(())
}
