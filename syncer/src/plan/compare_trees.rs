//! Compares the source's listings with the sink's tree, and plans each directory.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use contract::RunParams;

use crate::{
    compare_entries::{DirPlan, Policy, Spared, Step, plan_dir},
    entry::{Kind, Meta},
    filter::{Filter, InUse, Rules},
    hash::TreeDigest,
    measure::monitor::Monitor,
    path::{OWN_DIR, RelPath, SNAPSHOTS},
    plan::{
        compare_params::{owners_filter, rules_of_root},
        moved_dirs::Moves,
        planned::{Compared, PlannedDir, SparedEntries, holds_only_kept, path_in},
        relink_names,
        source_tree::SourceTree,
    },
    scan::lost_found,
    session_error::{SessionError, go_on},
    transport::TransportError,
    tree::{
        Tree,
        dir::{Dir, DirId, ROOT},
    },
    wire::{Listed, TreeHead},
};

/// The number of listings that are requested at once.
const BATCH: usize = 512;

/// A directory that has to be compared.
struct Visit {
    source: DirId,
    sink: Option<DirId>,
    path: RelPath,
    meta: Meta,
    /// Whether it, or a folder above it, replaces another entry. It is then filled in staging, which may be removed
    /// again, so no directory is moved into it.
    is_aside: bool,
    /// Whether it, or a folder above it, is another job's destination.
    is_foreign: bool,
    /// The rules of the ignore files above it.
    rules: Option<Arc<Rules>>,
}

impl Visit {
    /// Adds the directory's own ignore files to those above it.
    fn follow(&mut self, text: &[u8], in_use: &InUse) -> Result<(), TransportError> {
        if !text.is_empty() {
            let rules = Rules::new(self.rules.take(), &self.path, text, in_use);
            let rules =
                rules.map_err(|_| TransportError::Nonsense("ignore files that cannot be used came"))?;
            self.rules = Some(Arc::new(rules));
        }
        Ok(())
    }

    fn spared<'a>(&'a self, policy: Policy, owner: &'a Filter) -> Spared<'a> {
        Spared { dir: &self.path, rules: self.rules.as_deref(), sizes: policy.sizes, owner }
    }
}

impl Compared {
    /// Settles hard links, once it is known which files keep their content.
    pub(crate) fn settle(
        &mut self,
        sink: &Tree,
        policy: Policy,
        monitor: &Monitor,
    ) -> Result<(), SessionError> {
        relink_names::settle(&mut self.dirs, sink, policy, monitor)
    }
}

/// Compares the trees. `may_move` says that directories may be moved as they are; `params` name the entries of the sink
/// that its owner or the rules of the run exclude. Afterwards, the caller compares the contents of files where the
/// plans say so, and then settles hard links.
pub(crate) fn compare(
    source: &mut impl SourceTree,
    head: &TreeHead,
    sink: &Tree,
    policy: Policy,
    may_move: bool,
    params: &RunParams,
    monitor: &Monitor,
) -> Result<Compared, SessionError> {
    let (owner, rules) = (&owners_filter(params)?, rules_of_root(params)?);
    if policy.same(&head.digest, &sink.dirs[ROOT as usize].digest) {
        return Ok(Compared::default());
    }
    let root = Visit {
        source: ROOT,
        sink: Some(ROOT),
        path: RelPath::root(),
        meta: head.root_meta,
        is_aside: false,
        is_foreign: false,
        rules,
    };
    let moves = Moves::new(sink, policy, may_move);
    let level = VecDeque::from([root]);
    let (dirs, held, made) = (Vec::new(), Vec::new(), Compared::default());
    let patterns = InUse::default();
    let asked = 0;
    let mut walk =
        CompareWalk { source, sink, policy, owner, monitor, level, asked, dirs, moves, held, made, patterns };
    walk.run()?;
    Ok(Compared { dirs: walk.dirs, moves: walk.moves.into_made(), ..walk.made })
}

/// A comparison in progress.
struct CompareWalk<'a, S> {
    source: &'a mut S,
    sink: &'a Tree,
    policy: Policy,
    owner: &'a Filter,
    monitor: &'a Monitor,
    level: VecDeque<Visit>,
    /// The number of them that have been requested.
    asked: usize,
    dirs: Vec<PlannedDir>,
    moves: Moves<'a>,
    /// Directories that might be moved, held back until it is known which ones are deleted.
    held: Vec<(Visit, TreeDigest)>,
    /// The other results of the comparison.
    made: Compared,
    patterns: InUse,
}

impl<S: SourceTree> CompareWalk<'_, S> {
    fn run(&mut self) -> Result<(), SessionError> {
        self.run_level()?;
        if !self.held.is_empty() {
            self.moves.record_removed(&self.dirs, self.monitor)?;
            for (visit, digest) in std::mem::take(&mut self.held) {
                self.add(visit, &digest)?;
            }
        }
        self.run_level()
    }

    fn run_level(&mut self) -> Result<(), SessionError> {
        let nothing = Dir::default();
        while !self.level.is_empty() {
            self.request()?;
            let Some(mut visit) = self.level.pop_front() else { break };
            self.asked -= 1;
            let listed = self.source.next()?;
            if listed.dir != visit.source {
                return Err(TransportError::Nonsense("a directory came that was not asked for").into());
            }
            if visit.path.is_root() && listed.listing.iter().any(|entry| entry.name == OWN_DIR) {
                return Err(TransportError::Nonsense("an entry has the name of Volferry's own folder").into());
            }
            let there = visit.sink.map_or(&nothing, |id| &self.sink.dirs[id as usize]);
            visit.follow(&listed.rules, &self.patterns)?;
            // A destination that the source has, too, is restored like any other folder.
            let is_own = visit.path.is_root() || listed.listing.iter().any(|entry| entry.name == OWN_DIR);
            visit.is_foreign |= self.policy.spares_foreign && !is_own && has_own_dir(there);
            let spared = visit.spared(self.policy, self.owner);
            if !self.owner.is_empty() {
                let unlinked = listed.listing.iter().filter(|entry| spared.forbids_target(entry));
                self.made.unlinked.extend(unlinked.map(|entry| path_in(&visit.path, entry.name)));
                self.made.left_out +=
                    listed.listing.iter().filter(|entry| spared.forbids(entry)).count() as u64;
            }
            let go_on = || go_on(self.monitor);
            let mut plan = plan_dir(&listed.listing, &there.listing, self.policy, spared, go_on)?;
            if !plan.clashes.is_empty() {
                let entries = (0..).zip(&listed.listing).filter(|(index, _)| plan.clashes.contains(index));
                self.made.clashes.extend(entries.map(|(_, entry)| path_in(&visit.path, entry.name)));
            }
            if visit.path.is_root() {
                spare_lost_found(&mut plan, there);
            }
            if self.sink.has_mounts {
                self.spare_mounts(&mut plan, &visit.path, there);
            }
            if self.policy.spares_foreign {
                if visit.is_foreign {
                    plan.deletes.clear();
                } else {
                    spare_foreign(&mut plan, self.sink, there);
                }
            }
            self.descend(&visit, &listed, there, &plan)?;
            let (source, sink, meta) = (visit.source, visit.sink, visit.meta);
            let mut planned =
                PlannedDir { source, sink, path: visit.path.clone(), meta, listing: listed.listing, plan };
            if !spared.is_nothing() || self.sink.has_mounts || self.policy.spares_foreign {
                keep(&mut self.made, self.sink, &planned, spared, self.policy, self.monitor)?;
            }
            spare_holders(&mut planned.plan, self.sink, there, &self.made.kept);
            self.dirs.push(planned);
        }
        Ok(())
    }

    /// Requests listings, two batches at a time: while one is compared, the next one is in flight.
    fn request(&mut self) -> Result<(), SessionError> {
        while self.asked < self.level.len().min(2 * BATCH) {
            let end = self.level.len().min(self.asked + BATCH);
            let batch: Vec<DirId> = self.level.range(self.asked..end).map(|visit| visit.source).collect();
            self.source.request(&batch)?;
            self.asked = end;
        }
        Ok(())
    }

    /// Removes the deletes of entries on other mounts and file systems than the sink's root from a plan, as far as the
    /// policy spares them.
    fn spare_mounts(&mut self, plan: &mut DirPlan, path: &RelPath, there: &Dir) {
        let (sink, policy, beyond) = (self.sink, self.policy, &mut self.made.beyond);
        if plan.deletes.is_empty() {
            return;
        }
        let is_beyond = policy.spares(there.beyond);
        let mut child = there.first_child;
        for (index, entry) in (0..).zip(&there.listing) {
            let is_dir = entry.kind == Kind::Dir;
            let stays = is_beyond || is_dir && policy.spares(sink.dirs[child as usize].beyond);
            if stays && let Ok(at) = plan.deletes.binary_search(&index) {
                plan.deletes.remove(at);
                beyond.add(path_in(path, entry.name));
            }
            child += u32::from(is_dir);
        }
    }

    fn descend(
        &mut self,
        visit: &Visit,
        listed: &Listed,
        there: &Dir,
        plan: &DirPlan,
    ) -> Result<(), SessionError> {
        let mut entries = (0..).zip(&listed.listing);
        for pair in &plan.pairs {
            go_on(self.monitor)?;
            let Some((index, entry)) = entries.find(|(index, _)| *index == pair.index) else { break };
            let sink = pair.sink.map(|nth| there.first_child + nth);
            // A restore that took back the list of another volume would lose that volume's later snapshots.
            let has_list =
                |id: DirId| entry.name == OWN_DIR && has_dir(&self.sink.dirs[id as usize], SNAPSHOTS);
            if self.policy.spares_foreign && sink.is_some_and(has_list) {
                continue;
            }
            let digest = &listed.children[pair.source as usize];
            if sink.is_some_and(|id| self.policy.same(digest, &self.sink.dirs[id as usize].digest)) {
                continue;
            }
            let path = visit.path.join(entry.name);
            let path = path.map_err(|_| TransportError::Nonsense("a path is longer than a path can be"))?;
            let source = listed.first_child + pair.source;
            let rules = visit.rules.clone();
            let replaces = plan.step(index).is_some_and(|step| matches!(step, Step::Replace { .. }));
            let (is_aside, is_foreign) = (visit.is_aside || replaces, visit.is_foreign);
            self.add(Visit { source, sink, path, meta: entry.meta, is_aside, is_foreign, rules }, digest)?;
        }
        Ok(())
    }

    /// Queues a directory for comparison, unless it is only moved.
    fn add(&mut self, visit: Visit, digest: &TreeDigest) -> Result<(), SessionError> {
        if visit.sink.is_some() || visit.is_aside || !self.moves.might_have(digest) {
            self.level.push_back(visit);
        } else if !self.moves.is_ready() {
            self.held.push((visit, *digest));
        } else if !self.moves.take(digest, &visit.path, &mut self.dirs, self.monitor)? {
            self.level.push_back(visit);
        }
        Ok(())
    }
}

/// Returns whether a directory of the sink has a folder `.volferry`: another job writes there.
fn has_own_dir(dir: &Dir) -> bool {
    has_dir(dir, OWN_DIR)
}

fn has_dir(dir: &Dir, name: &[u8]) -> bool {
    dir.children().any(|(child, _)| child == name)
}

/// Removes the delete of a `lost+found` from the plan of a tree's root.
fn spare_lost_found(plan: &mut DirPlan, there: &Dir) {
    let found = (0..).zip(&there.listing).find(|(_, entry)| lost_found::is_spared(entry));
    if let Some((index, _)) = found.filter(|_| !plan.deletes.is_empty()) {
        plan.deletes.retain(|at| *at != index);
    }
}

/// Removes the deletes of folders that stay for what is in them, which is all excluded.
fn spare_holders(plan: &mut DirPlan, sink: &Tree, there: &Dir, kept: &SparedEntries) {
    if plan.deletes.is_empty() {
        return;
    }
    let dirs =
        (0..).zip(&there.listing).filter(|(_, entry)| entry.kind == Kind::Dir).zip(there.first_child..);
    let stays = |(_, child): &(_, DirId)| holds_only_kept(sink, kept, *child);
    let staying: HashSet<u32> = dirs.filter(stays).map(|((index, _), _)| index).collect();
    plan.deletes.retain(|index| !staying.contains(index));
}

/// Removes the deletes of sockets and of other jobs' destinations from a plan.
fn spare_foreign(plan: &mut DirPlan, sink: &Tree, there: &Dir) {
    if plan.deletes.is_empty() {
        return;
    }
    let mut child = there.first_child;
    for (index, entry) in (0..).zip(&there.listing) {
        let is_dir = entry.kind == Kind::Dir;
        if entry.kind == Kind::Socket || is_dir && has_own_dir(&sink.dirs[child as usize]) {
            plan.deletes.retain(|at| *at != index);
        }
        child += u32::from(is_dir);
    }
}

/// Records the entries that stay in directories that a plan deletes or replaces: by the rules, and by the policy for
/// other mounts and file systems than the root's.
fn keep(
    made: &mut Compared,
    sink: &Tree,
    dir: &PlannedDir,
    spared: Spared<'_>,
    policy: Policy,
    monitor: &Monitor,
) -> Result<(), SessionError> {
    let Some(id) = dir.sink else { return Ok(()) };
    let replaced = dir.replaced_dirs();
    let mut child = sink.dirs[id as usize].first_child;
    for (index, entry) in (0..).zip(&sink.dirs[id as usize].listing) {
        go_on(monitor)?;
        let is_dir = entry.kind == Kind::Dir;
        let goes = dir.plan.deletes.binary_search(&index).is_ok() || replaced.contains(entry.name);
        if is_dir
            && goes
            && let Ok(path) = dir.path.join(entry.name)
        {
            keep_below(made, sink, child, path, spared, policy, monitor)?;
        }
        child += u32::from(is_dir);
    }
    Ok(())
}

fn keep_below(
    made: &mut Compared,
    sink: &Tree,
    id: DirId,
    path: RelPath,
    spared: Spared<'_>,
    policy: Policy,
    monitor: &Monitor,
) -> Result<(), SessionError> {
    let mut left = vec![(id, path)];
    while let Some((id, path)) = left.pop() {
        let spared = Spared { dir: &path, ..spared };
        let dir = &sink.dirs[id as usize];
        let mut child = dir.first_child;
        let is_foreign = policy.spares_foreign && has_own_dir(dir);
        for (index, entry) in (0..).zip(&dir.listing) {
            go_on(monitor)?;
            let is_dir = entry.kind == Kind::Dir;
            let is_foreigns = is_foreign || policy.spares_foreign && entry.kind == Kind::Socket;
            let at = if is_dir { sink.dirs[child as usize].beyond } else { dir.beyond };
            let is_beyond = policy.spares(dir.beyond) || policy.spares(at);
            let is_spared = is_foreigns || spared.holds(&entry);
            if is_beyond && !is_spared {
                made.beyond.add(path_in(&path, entry.name));
            }
            if is_spared || is_beyond {
                made.kept.insert((id, index));
            } else if is_dir && let Ok(below) = path.join(entry.name) {
                left.push((child, below));
            }
            child += u32::from(is_dir);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        measure::failures::Failures,
        scan::{ScanOptions, scan},
        sys::root::Root,
    };

    const ENTRIES: u64 = 4003;

    /// A local source.
    struct AtHand(Tree, VecDeque<DirId>);

    impl SourceTree for AtHand {
        fn request(&mut self, dirs: &[DirId]) -> Result<(), SessionError> {
            self.1.extend(dirs);
            Ok(())
        }

        fn next(&mut self) -> Result<Listed, SessionError> {
            let dir = self.1.pop_front().unwrap();
            let Dir { listing, first_child, .. } = &self.0.dirs[dir as usize];
            let below = *first_child as usize..(*first_child + listing.dirs()) as usize;
            let children = self.0.dirs[below].iter().map(|dir| dir.digest).collect();
            Ok(Listed {
                dir,
                first_child: *first_child,
                children,
                listing: listing.clone(),
                rules: Box::default(),
            })
        }
    }

    fn tree(of: u64) -> Tree {
        let dir = tempfile::tempdir().unwrap();
        for (folder, files) in [("one", of / 2), ("two", of / 4), ("three", of / 4)] {
            fs::create_dir(dir.path().join(folder)).unwrap();
            for n in 0..files {
                let file = dir.path().join(folder).join(n.to_string());
                fs::write(&file, "").unwrap();
                fs::hard_link(&file, file.with_extension("link")).unwrap();
            }
        }
        let options = ScanOptions { hard_links: true, ..ScanOptions::default() };
        scan(&Root::open(dir.path()).unwrap(), &options, &Failures::default(), &Monitor::default()).unwrap()
    }

    /// Plans like a run, up to the first change.
    fn plan(source: u64, sink: u64, monitor: &Monitor) -> Result<Compared, SessionError> {
        let (source, sink) = (tree(source), tree(sink));
        let head = TreeHead::of(&source);
        let (mut source, policy) =
            (AtHand(source, VecDeque::new()), Policy { delete: true, ..Policy::default() });
        let params = RunParams::default();
        let mut compared = compare(&mut source, &head, &sink, policy, true, &params, monitor)?;
        compared.settle(&sink, policy, monitor)?;
        Ok(compared)
    }

    #[test]
    fn a_plan_that_is_to_stop_looks_at_no_further_entry() {
        for (source, sink) in [(2000, 2000), (2000, 0), (0, 2000)] {
            let whole = Monitor::default();
            plan(source, sink, &whole).unwrap();
            assert!(whole.checks() >= ENTRIES, "{source} {sink}: {} looks", whole.checks());
            for look in [1, 1500, whole.checks()] {
                let stopped = Monitor::canceled_at(look);
                assert!(plan(source, sink, &stopped).unwrap_err().is_canceled());
                assert_eq!(stopped.checks(), look);
            }
        }
    }
}
