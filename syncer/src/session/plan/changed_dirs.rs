//! Names the directories whose listings a run may have changed, so that the tree after it is known without a whole
//! scan.

use std::collections::HashSet;

use crate::{
    entry::Kind,
    links::parents,
    path::RelPath,
    session::plan::planned::Planned,
    tree::{Tree, dir::DirId},
};

/// Returns the directories of the sink's tree whose listings may not hold after the plan was carried out without a
/// failure. All others are as they were scanned, and so is all below directories that are moved, but not their paths.
pub(crate) fn changed_dirs(Planned { compared, sink, .. }: &Planned) -> HashSet<DirId> {
    let mut changed = Changed { sink, parents: parents(&sink.dirs), dirs: HashSet::new() };
    for dir in compared.dirs.iter().filter(|dir| !dir.is_idle()) {
        dir.sink.iter().for_each(|id| changed.add(*id));
        dir.gone_dirs(sink).into_iter().for_each(|(_, id)| changed.add_below(id));
        // A file that gets another name becomes the first of several.
        let links = dir.steps().filter_map(|(_, entry)| match entry.kind {
            Kind::HardLink { to } => RelPath::parse(to).ok(),
            _ => None,
        });
        changed.add_above(links);
    }
    changed.add_above(compared.moves.values().map(|moved| moved.from.clone()));
    // The scan knows the numbers of such files only from their directories.
    let linked = sink.groups.iter().flat_map(|group| &group.members);
    linked.for_each(|member| changed.add(member.dir));
    changed.dirs
}

struct Changed<'a> {
    sink: &'a Tree,
    parents: Vec<DirId>,
    dirs: HashSet<DirId>,
}

impl Changed<'_> {
    /// Adds a directory, and the one above, which lists its time.
    fn add(&mut self, id: DirId) {
        self.dirs.extend([id, self.parents[id as usize]]);
    }

    /// Adds a directory that may be gone, with all below.
    fn add_below(&mut self, id: DirId) {
        let mut left = vec![id];
        while let Some(id) = left.pop() {
            self.dirs.insert(id);
            left.extend(self.sink.dirs[id as usize].children().map(|(_, id)| id));
        }
    }

    /// Adds the directories that the `paths` are in, as far as they were there.
    fn add_above(&mut self, paths: impl Iterator<Item = RelPath>) {
        let above: HashSet<RelPath> = paths.filter_map(|path| Some(path.split_last()?.0)).collect();
        above
            .iter()
            .filter_map(|path| self.sink.find(path))
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|id| self.add(id));
    }
}
