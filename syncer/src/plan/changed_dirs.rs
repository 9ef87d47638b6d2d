//! Names the entries of the destination that a run may have changed, so that the tree after it is known without a whole
//! scan.

use std::collections::{HashMap, HashSet};

use crate::{
    compare_entries::Step,
    entry::Entry,
    entry_paths::parents,
    path::RelPath,
    plan::planned::{Planned, PlannedDir},
    scan::ChangedEntries,
    tree::{Tree, dir::DirId},
};

/// Returns the directories of the sink's tree whose listings the plan may have changed, if it was carried out without a
/// failure, with the entries that may have changed. All others are as they were scanned, and so are those below a moved
/// directory, except for their paths.
pub(crate) fn changed_dirs(Planned { compared, sink, .. }: &Planned) -> HashMap<DirId, ChangedEntries> {
    let mut changed = Changed { sink, parents: parents(&sink.dirs), dirs: HashMap::new() };
    for dir in compared.dirs.iter().filter(|dir| !dir.is_idle()) {
        changed.add_planned(dir);
    }
    changed.add_entries(compared.moves.values().map(|moved| moved.from.clone()));
    // The scan learns which names are one file only by reading their directories.
    let linked = sink.groups.iter().flat_map(|group| &group.members);
    linked.for_each(|member| changed.add_all(member.dir));
    changed.dirs
}

struct Changed<'a> {
    sink: &'a Tree,
    parents: Vec<DirId>,
    dirs: HashMap<DirId, ChangedEntries>,
}

impl Changed<'_> {
    fn add_planned(&mut self, dir: &PlannedDir) {
        // A file that gets another name becomes the leader of a group of hard links.
        self.add_entries(dir.linked_files());
        let mut names: Vec<&[u8]> = dir.steps().map(|(_, entry)| entry.name).collect();
        let Some(id) = dir.sink else { return };
        let deletes = (0..).zip(&self.sink.dirs[id as usize].listing);
        let deletes = deletes.filter(|(index, _)| dir.plan.deletes.binary_search(index).is_ok());
        let deletes = Some(deletes).filter(|_| !dir.plan.deletes.is_empty());
        names.extend(deletes.into_iter().flatten().map(|(_, entry)| entry.name));
        self.add_names(id, &dir.path, &names);
        let makes = |(step, _): (Step, Entry<'_>)| matches!(step, Step::Create | Step::Replace { .. });
        if dir.steps().any(makes) {
            self.expect_new(id);
        }
        dir.gone_dirs(self.sink).into_iter().for_each(|(_, id)| self.add_below(id));
    }

    /// Adds entries of a directory, and its own entry, which lists its time.
    fn add_names(&mut self, id: DirId, path: &RelPath, names: &[&[u8]]) {
        names.iter().for_each(|name| self.add_name(id, name));
        if let Some((_, name)) = path.split_last() {
            self.add_name(self.parents[id as usize], name);
        }
    }

    fn add_name(&mut self, id: DirId, name: &[u8]) {
        if let ChangedEntries::Named { names, .. } = self.entries(id) {
            names.insert(name.into());
        }
    }

    fn expect_new(&mut self, id: DirId) {
        if let ChangedEntries::Named { may_have_new, .. } = self.entries(id) {
            *may_have_new = true;
        }
    }

    fn entries(&mut self, id: DirId) -> &mut ChangedEntries {
        let none = || ChangedEntries::Named { names: HashSet::new(), may_have_new: false };
        self.dirs.entry(id).or_insert_with(none)
    }

    /// Adds all entries of a directory, and of its parent.
    fn add_all(&mut self, id: DirId) {
        self.dirs.extend([id, self.parents[id as usize]].map(|id| (id, ChangedEntries::All)));
    }

    /// Adds a directory that may have been removed, and all directories below it.
    fn add_below(&mut self, id: DirId) {
        let mut left = vec![id];
        while let Some(id) = left.pop() {
            self.dirs.insert(id, ChangedEntries::All);
            left.extend(self.sink.dirs[id as usize].children().map(|(_, id)| id));
        }
    }

    /// Adds the entries at these paths, if their directories existed before the run.
    fn add_entries(&mut self, paths: impl Iterator<Item = RelPath>) {
        let mut by_dir: HashMap<RelPath, Vec<RelPath>> = HashMap::new();
        for path in paths {
            let Some((dir, _)) = path.split_last() else { continue };
            by_dir.entry(dir).or_default().push(path);
        }
        for (dir, paths) in by_dir {
            let Some(id) = self.sink.find(&dir) else { continue };
            let names: Vec<&[u8]> = paths.iter().filter_map(|path| path.names().last()).collect();
            self.add_names(id, &dir, &names);
        }
    }
}
