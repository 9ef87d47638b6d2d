//! Puts together what the workers of a scan have found.

use std::io;

use crate::{
    hash::TreeDigest,
    lead_hard_links::{Grouped, Shared, group},
    owners::Owners,
    sys::spill_to_file::Spool,
    tree::{
        Tree,
        dir::{Dir, DirId, Mounts, Totals},
        stamps::Stamps,
    },
};

/// The results of one worker.
#[derive(Default)]
pub(super) struct WorkerTree {
    pub dirs: Vec<(DirId, Dir)>,
    pub totals: Totals,
    pub mounts: Mounts,
    pub has_mounts: bool,
    pub owners: Owners,
    pub shared: Vec<Shared>,
    pub has_unstorable: bool,
}

/// Puts the results of all workers together.
///
/// # Errors
/// If the names of hard links cannot be sorted on disk.
pub(super) fn assemble(parts: Vec<WorkerTree>) -> io::Result<Tree> {
    let count = parts.iter().map(|part| part.dirs.len()).sum();
    let mut tree = Tree::default();
    tree.dirs.resize_with(count, Dir::default);
    let mut shared = Vec::new();
    for part in parts {
        tree.totals.entries += part.totals.entries;
        tree.totals.bytes += part.totals.bytes;
        tree.totals.skipped += part.totals.skipped;
        tree.mounts.merge(part.mounts);
        tree.has_mounts |= part.has_mounts;
        tree.owners.merge(part.owners);
        tree.totals.sparse = tree.totals.sparse.saturating_add(part.totals.sparse);
        tree.totals.newest = tree.totals.newest.max(part.totals.newest);
        tree.has_unstorable |= part.has_unstorable;
        shared.extend(part.shared);
        for (id, dir) in part.dirs {
            tree.dirs[id as usize] = dir;
        }
    }
    let Grouped { groups, bytes } = group::<Spool>(&mut tree.dirs, shared)?;
    tree.groups = groups;
    tree.totals.bytes -= bytes;
    digest_upwards(&mut tree.dirs);
    Ok(tree)
}

/// Folds the digests of children into their parents'. Children have greater numbers, so walking backwards finds each of
/// them complete.
fn digest_upwards(dirs: &mut [Dir]) {
    for id in (0..dirs.len()).rev() {
        let children = dirs[id].listing.dirs() as usize;
        if children == 0 {
            continue;
        }
        let first = dirs[id].first_child as usize;
        let below: Vec<TreeDigest> = dirs[first..first + children].iter().map(|dir| dir.digest).collect();
        dirs[id].digest = dirs[id].digest.with_children(&below);
    }
}

/// Combines the stamps of directories with those of their children, where the walk has not.
pub(super) fn combine_stamps(dirs: &mut [Dir]) {
    for id in (0..dirs.len()).rev() {
        if dirs[id].seen != Stamps::unknown() {
            continue;
        }
        let first = dirs[id].first_child as usize;
        let below = &dirs[first..first + dirs[id].listing.dirs() as usize];
        dirs[id].seen = dirs[id].stamps_with(below.iter().map(|dir| dir.seen));
    }
}
