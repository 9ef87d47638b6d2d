//! Leaves files out of a snapshot that could not be taken, with all their names.

use std::collections::{HashMap, HashSet};

use super::{
    find_listed_file::{Displaced, EarlierRead, EarlierReads},
    find_unchanged::{PlannedFolders, Slot},
    store_contents::{ScannedTree, path_of},
};
use crate::{
    entry_paths::{EntryPlace, dir_paths},
    failures::{Failures, FailuresThen},
    snapshot::store::SnapshotError,
    tree::{Tree, dir::DirId},
};

/// Say why a name is not in the snapshot.
pub(super) const KEPT_MOVING: &str = "it was moved or replaced each time before it could be read";
const NO_FIRST_NAME: &str = "it is a further name of a file that could not be taken";

/// Plans and reads a tree, of which earlier looks have found something.
pub(crate) type ReadPlanned<'r> =
    dyn FnMut(&ScannedTree<'_>, &EarlierReads) -> Result<PlannedFolders, SnapshotError> + 'r;

/// Leaves files out of a plan, and adds them to the failures.
pub(super) fn leave_out(planned: &mut PlannedFolders, lost: &[Displaced], tree: &Tree, failures: &Failures) {
    let mut by_dir: HashMap<DirId, HashSet<u32>> = HashMap::new();
    for Displaced { place, .. } in lost {
        by_dir.entry(place.dir).or_default().insert(place.index);
    }
    for making in &mut planned.making {
        let Some(lost) = by_dir.get(&making.dir) else { continue };
        let entries = (0..).zip(&tree.dirs[making.dir as usize].listing);
        let files = entries.filter(|(_, entry)| entry.kind.has_content());
        for (nth, (_, entry)) in files.enumerate().filter(|(_, (index, _))| lost.contains(index)) {
            if let Slot::Read(live) = std::mem::replace(&mut making.slots[nth], Slot::Failed) {
                planned.grown -= live.len as i64;
                planned.left_out += 1;
            }
            failures.add(&path_of(making, &entry), "take into the snapshot", &KEPT_MOVING);
        }
    }
}

/// Leaves the further names of files out that could not be taken: a restore would link them to whatever has the first
/// name then. If the last snapshot has their directories as they are, reads the tree with a plan that has these, too.
pub(super) fn without_dangling(
    mut planned: PlannedFolders,
    source: &ScannedTree<'_>,
    failures: &Failures,
    before: &FailuresThen,
    read: &mut ReadPlanned<'_>,
) -> Result<PlannedFolders, SnapshotError> {
    let dirs = &source.tree.dirs;
    let mut dangling = dangling_names(&planned, source.tree);
    let planned_dirs: HashSet<DirId> = planned.making.iter().map(|making| making.dir).collect();
    if dangling.keys().any(|dir| !planned_dirs.contains(dir)) {
        let mut earlier = reads_of(planned, source.tree);
        earlier.written_anew = dir_paths(dirs, dangling.into_keys()).into_keys().collect();
        failures.go_back_to(before);
        planned = read(source, &earlier)?;
        let displaced = std::mem::take(&mut planned.displaced);
        leave_out(&mut planned, &displaced, source.tree, failures);
        dangling = dangling_names(&planned, source.tree);
    }
    for making in &mut planned.making {
        let Some(names) = dangling.remove(&making.dir) else { continue };
        for (index, entry) in (0..).zip(&dirs[making.dir as usize].listing) {
            if names.contains(&index) {
                making.dangling.push(index);
                failures.add(&path_of(making, &entry), "take into the snapshot", &NO_FIRST_NAME);
            }
        }
        planned.left_out += making.dangling.len() as u64;
    }
    Ok(planned)
}

/// Returns the further names of files that a plan could not take, by directory.
fn dangling_names(planned: &PlannedFolders, tree: &Tree) -> HashMap<DirId, HashSet<u32>> {
    let mut first: HashSet<EntryPlace> = HashSet::new();
    for making in planned.making.iter().filter(|making| making.slots.iter().any(Slot::is_missing)) {
        let entries = (0..).zip(&tree.dirs[making.dir as usize].listing);
        let files = entries.filter(|(_, entry)| entry.kind.has_content()).zip(&making.slots);
        let missing = files.filter(|(_, slot)| slot.is_missing());
        first.extend(missing.map(|((index, _), _)| EntryPlace { dir: making.dir, index }));
    }
    let mut names: HashMap<DirId, HashSet<u32>> = HashMap::new();
    let groups = tree.groups.iter().filter_map(|group| group.members.split_first());
    for EntryPlace { dir, index } in
        groups.filter(|(it, _)| first.contains(it)).flat_map(|(_, others)| others)
    {
        names.entry(*dir).or_default().insert(*index);
    }
    names
}

/// Returns the files that a plan has read.
pub(super) fn reads_of(planned: PlannedFolders, tree: &Tree) -> EarlierReads {
    let mut reads = EarlierReads::default();
    for making in planned.making {
        let files = tree.dirs[making.dir as usize].listing.iter().filter(|entry| entry.kind.has_content());
        let read = files.zip(making.slots).filter_map(|(entry, slot)| match slot {
            Slot::Read(live) => Some((entry.name.into(), *live)),
            _ => None,
        });
        let read: Vec<EarlierRead> = read.collect();
        if !read.is_empty() {
            reads.add(making.path, read);
        }
    }
    reads
}
