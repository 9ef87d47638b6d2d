//! Decides what a restore does about damaged content of its snapshot: it changes nothing at all, or leaves out the
//! files that need it.

use std::collections::HashSet;

use crate::{
    compare_entries::Step,
    ends::stored_tree::StoredTree,
    entry::{Entry, Kind},
    hash::ContentId,
    measure::failures::Failures,
    path::RelPath,
    plan::planned::{Compared, PlannedDir, path_in},
    snapshot::{SnapshotError, SnapshotId, Store, store::ContentRef},
    sys::cores::on_cores,
};

/// The number of objects for which one more thread is started.
const OBJECTS_PER_THREAD: usize = 64;

/// An object that a restore reads, and a file that needs it.
pub(crate) struct NeededContent {
    pub content: ContentRef,
    pub len: u64,
    pub path: RelPath,
}

/// Returns the objects of all files that are made or updated, each once. Equal content may be in several places, of
/// which each is read by itself.
pub(crate) fn needed(tree: &StoredTree<'_>, compared: &Compared) -> Vec<NeededContent> {
    let mut seen = HashSet::new();
    let mut needed = Vec::new();
    for dir in &compared.dirs {
        for WrittenFile { entry, len, .. } in written(dir) {
            let content = tree.content(dir.source, entry.name);
            if let Some(content) = content.filter(|content| seen.insert((*content, len))) {
                needed.push(NeededContent { content, len, path: path_in(&dir.path, entry.name) });
            }
        }
    }
    needed
}

/// A file that is written.
pub(crate) struct WrittenFile<'a> {
    /// Its index in the listing.
    pub index: u32,
    pub entry: Entry<'a>,
    pub len: u64,
}

/// Yields the files of a directory that are written.
pub(crate) fn written(dir: &PlannedDir) -> impl Iterator<Item = WrittenFile<'_>> {
    let mut steps = dir.plan.steps.iter().peekable();
    (0..).zip(&dir.listing).filter_map(move |(index, entry)| {
        let (_, step) = steps.next_if(|(at, _)| *at == index)?;
        match entry.kind {
            Kind::File { size: len } if *step != Step::Meta => Some(WrittenFile { index, entry, len }),
            _ => None,
        }
    })
}

/// Reads the objects that a restore needs, before it changes anything, and returns the ids of the damaged ones.
pub(crate) fn damaged(store: &Store, needed: &[NeededContent]) -> HashSet<ContentId> {
    let check = |nth: usize| {
        let NeededContent { content, len, path } = &needed[nth];
        let checked = store.check(content, *len);
        checked
            .inspect_err(|error| tracing::error!(%path, %error, "an object is needed"))
            .err()
            .map(|_| content.id)
    };
    on_cores(needed.len(), OBJECTS_PER_THREAD, check).into_iter().flatten().collect()
}

/// Returns an error that names the first path that needs a damaged object of the snapshot `id`; `None` if none is
/// damaged.
pub(crate) fn not_whole(
    id: SnapshotId,
    needed: &[NeededContent],
    damaged: &HashSet<ContentId>,
) -> Option<SnapshotError> {
    let bad = needed.iter().filter(|object| damaged.contains(&object.content.id));
    let path = bad.map(|object| &object.path).min()?.to_string();
    Some(SnapshotError::NotWhole { id, count: damaged.len() as u64, path })
}

/// Takes the files whose content is damaged out of the plan, and names them.
pub(crate) fn leave_out(
    compared: &mut Compared,
    is_damaged: impl Fn(&PlannedDir, &[u8]) -> bool,
    failures: &Failures,
) {
    for dir in &mut compared.dirs {
        let bad: Vec<(u32, RelPath)> = written(dir)
            .filter(|file| is_damaged(dir, file.entry.name))
            .map(|file| (file.index, path_in(&dir.path, file.entry.name)))
            .collect();
        for (index, path) in bad {
            dir.plan.set_step(index, None);
            failures.add(
                &path,
                "restore",
                &"the snapshot's content is damaged, and has no good copy in the store",
            );
        }
    }
}
