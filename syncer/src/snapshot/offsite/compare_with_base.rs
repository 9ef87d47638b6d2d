//! Compares a scanned tree with the last snapshot of its job elsewhere, level by level, to find what has to be read.

use std::collections::HashSet;

use crate::{
    entry::{Entry, Time},
    path::RelPath,
    snapshot::{
        create::{ComparedDir, Making, PlannedFolders, slots_of, subdirectories},
        store::{Folder, FolderFile, FolderId, FolderRef, Snapshot, SnapshotError},
    },
    tree::{
        Tree,
        dir::{Dir, DirId, ROOT},
        stamps::IN_MOTION,
    },
};

use super::offsite_store::OffsiteStore;

/// A file that changed so shortly before a scan may have changed again without another time: file systems keep times to
/// 2 seconds at worst, and those of others have clocks of their own.
pub(crate) const QUIET_SECONDS: i64 = 2;

/// Returns the moment before which a change is surely seen by the next scan.
pub(crate) fn quiet_before(began: Time) -> Time {
    Time { seconds: began.seconds - QUIET_SECONDS, ..began }
}

/// Finds the directories to make, and in them the files to read: those whose size or time differs from `base`, or which
/// may have changed since without another time. Without a base, or if all is to be read (`reads_all`), these are all.
/// Where the store has lost contents, they are read again. The directories of `written_anew` are made in any case.
pub(crate) fn plan_offsite(
    tree: &Tree,
    base: Option<&Snapshot>,
    reads_all: bool,
    written_anew: &HashSet<DirId>,
    store: &mut dyn OffsiteStore,
) -> Result<PlannedFolders, SnapshotError> {
    let mut planned = PlannedFolders { there: vec![None; tree.dirs.len()], ..PlannedFolders::default() };
    let quiet = base.map_or(Time::default(), |base| quiet_before(base.began));
    let root = ComparedDir { dir: ROOT, path: RelPath::root(), old: base.map(|base| base.tree) };
    let mut level = vec![root];
    while !level.is_empty() {
        level.retain(|ComparedDir { dir, old, .. }| {
            let scanned = &tree.dirs[*dir as usize];
            let is_made = reads_all || written_anew.contains(dir);
            let is_same =
                |old: &FolderRef| !is_made && is_unchanged(scanned, old) && store.has_folder(old.id);
            planned.there[*dir as usize] = old.filter(is_same);
            planned.there[*dir as usize].is_none()
        });
        let mut folders = old_folders(&level, store)?;
        let mut below = Vec::new();
        for (at, ComparedDir { dir, path, old }) in level.into_iter().enumerate() {
            let folder = folders[at].take();
            let is_same = |old: &FolderFile<'_>, entry: &Entry<'_>, _: u64| {
                !reads_all
                    && old.entry.kind == entry.kind
                    && old.entry.meta.mtime == entry.meta.mtime
                    && old.stamp != IN_MOTION
                    && (old.stamp != 0 || old.entry.meta.mtime < quiet)
                    && store.has_content(old.content.id, old.len)
            };
            let scanned = &tree.dirs[dir as usize];
            let slots = slots_of(scanned, folder.as_ref(), &is_same);
            below.extend(subdirectories(scanned, &path, folder.as_ref()));
            planned.making.push(Making { dir, path, old, slots, dangling: Vec::new() });
        }
        level = below;
    }
    Ok(planned)
}

/// Returns whether a directory, and all that is below it, is as the base has it. Its digest does not say whether it is
/// listed completely; what was seen does.
fn is_unchanged(scanned: &Dir, old: &FolderRef) -> bool {
    old.digest == scanned.digest && !old.seen.is_unknown() && !scanned.seen.is_unknown()
}

/// Reads the directories that the base has in the places of those of a level.
fn old_folders(
    level: &[ComparedDir],
    store: &mut dyn OffsiteStore,
) -> Result<Vec<Option<Folder>>, SnapshotError> {
    let mut folders: Vec<Option<Folder>> = level.iter().map(|_| None).collect();
    let wanted = level.iter().enumerate().filter_map(|(at, dir)| Some((at, dir.old?.id)));
    let (places, ids): (Vec<usize>, Vec<FolderId>) = wanted.unzip();
    store.old_folders(&ids, &mut |nth, folder| folders[places[nth]] = folder)?;
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;
    use crate::{
        listing::ListingBuilder, snapshot::store::snapshot_record::tests::sample, tree::stamps::Stamps,
    };

    #[test]
    fn a_directory_that_is_listed_in_part_is_none_of_the_base() {
        let old = FolderRef { seen: Stamps::of(iter::empty(), iter::empty()), ..sample(1).tree };
        let scanned = |is_complete: bool| {
            let mut listing = ListingBuilder::default();
            if !is_complete {
                listing.mark_incomplete();
            }
            let mut dir = Dir { listing: listing.finish(), digest: old.digest, ..Dir::default() };
            dir.seen = dir.stamps_with(iter::empty());
            dir
        };
        assert!(is_unchanged(&scanned(true), &old));
        assert!(!is_unchanged(&scanned(false), &old));
        assert!(!is_unchanged(&scanned(true), &FolderRef { seen: Stamps::unknown(), ..old }));
    }
}
