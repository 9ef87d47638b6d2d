//! The source's listings against the sink's tree → what to do in each directory.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    entry::{Kind, Meta},
    filter::Filter,
    hash::TreeDigest,
    path::{OWN_DIR, RelPath},
    plan::{DirPlan, Policy, Spared, Step, plan_dir},
    rules::{InUse, Rules},
    session::{
        plan::{
            hard_links,
            moves::Moves,
            planned::{Compared, PlannedDir, SparedEntries, path_in},
            source_tree::SourceTree,
        },
        session_error::SessionError,
    },
    transport::TransportError,
    tree::{
        Tree,
        dir::{Dir, DirId, ROOT},
    },
    wire::{Listed, TreeHead},
};

/// How many listings are asked for at once.
const BATCH: usize = 512;

/// A directory that has to be looked into.
struct Visit {
    source: DirId,
    sink: Option<DirId>,
    path: RelPath,
    meta: Meta,
    /// Whether it, or a folder above it, replaces something else: it is filled in staging, which may be given up, so nothing is moved there.
    is_aside: bool,
    /// Of the ignore files above it.
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
    /// Settles hard links, when it is known which files keep their content.
    pub(crate) fn settle(&mut self, sink: &Tree, policy: Policy) {
        hard_links::settle(&mut self.dirs, sink, policy);
    }
}

/// Compares the trees. `may_move` is whether a directory may be moved as it is, and `owner` what is not to be written. The contents of files are still to be compared where the
/// plans say so, and then hard links to be settled.
pub(crate) fn compare(
    source: &mut impl SourceTree,
    head: &TreeHead,
    sink: &Tree,
    policy: Policy,
    may_move: bool,
    owner: &Filter,
) -> Result<Compared, SessionError> {
    if policy.same(&head.digest, &sink.dirs[ROOT as usize].digest) {
        return Ok(Compared::default());
    }
    let root = Visit {
        source: ROOT,
        sink: Some(ROOT),
        path: RelPath::root(),
        meta: head.root_meta,
        is_aside: false,
        rules: None,
    };
    let moves = Moves::new(sink, policy, may_move);
    let level = VecDeque::from([root]);
    let (dirs, held, made) = (Vec::new(), Vec::new(), Compared::default());
    let patterns = InUse::default();
    let mut walk = Walk { source, sink, policy, owner, level, asked: 0, dirs, moves, held, made, patterns };
    walk.run()?;
    Ok(Compared { dirs: walk.dirs, moves: walk.moves.into_made(), ..walk.made })
}

/// A comparison that is under way.
struct Walk<'a, S> {
    source: &'a mut S,
    sink: &'a Tree,
    policy: Policy,
    owner: &'a Filter,
    level: VecDeque<Visit>,
    /// How many of them have been asked for.
    asked: usize,
    dirs: Vec<PlannedDir>,
    moves: Moves<'a>,
    /// What might have been moved, until it is known what goes.
    held: Vec<(Visit, TreeDigest)>,
    /// What else has been found.
    made: Compared,
    patterns: InUse,
}

impl<S: SourceTree> Walk<'_, S> {
    fn run(&mut self) -> Result<(), SessionError> {
        self.run_level()?;
        if !self.held.is_empty() {
            self.moves.look_at(&self.dirs);
            for (visit, digest) in std::mem::take(&mut self.held) {
                self.add(visit, &digest);
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
            let spared = visit.spared(self.policy, self.owner);
            let unlinked = listed.listing.iter().filter(|entry| spared.forbids_target(entry));
            self.made.unlinked.extend(unlinked.map(|entry| path_in(&visit.path, entry.name)));
            let plan = plan_dir(&listed.listing, &there.listing, self.policy, spared);
            self.descend(&visit, &listed, there, &plan)?;
            let (source, sink, meta) = (visit.source, visit.sink, visit.meta);
            let planned =
                PlannedDir { source, sink, path: visit.path.clone(), meta, listing: listed.listing, plan };
            if !spared.is_nothing() {
                keep(&mut self.made.kept, self.sink, &planned, spared);
            }
            self.dirs.push(planned);
        }
        Ok(())
    }

    /// Two batches are under way at any time: while one is compared, the next one crosses.
    fn request(&mut self) -> Result<(), SessionError> {
        while self.asked < self.level.len().min(2 * BATCH) {
            let end = self.level.len().min(self.asked + BATCH);
            let batch: Vec<DirId> = self.level.range(self.asked..end).map(|visit| visit.source).collect();
            self.source.request(&batch)?;
            self.asked = end;
        }
        Ok(())
    }

    fn descend(
        &mut self,
        visit: &Visit,
        listed: &Listed,
        there: &Dir,
        plan: &DirPlan,
    ) -> Result<(), SessionError> {
        let mut pairs = plan.pairs.iter().peekable();
        for (index, entry) in (0..).zip(&listed.listing) {
            let Some(pair) = pairs.next_if(|pair| pair.index == index) else { continue };
            let sink = pair.sink.map(|nth| there.first_child + nth);
            let digest = &listed.children[pair.source as usize];
            if sink.is_some_and(|id| self.policy.same(digest, &self.sink.dirs[id as usize].digest)) {
                continue;
            }
            let path = visit.path.join(entry.name);
            let path = path.map_err(|_| TransportError::Nonsense("a path is longer than a path can be"))?;
            let source = listed.first_child + pair.source;
            let rules = visit.rules.clone();
            let replaces = plan.step(index).is_some_and(|step| matches!(step, Step::Replace { .. }));
            let is_aside = visit.is_aside || replaces;
            self.add(Visit { source, sink, path, meta: entry.meta, is_aside, rules }, digest);
        }
        Ok(())
    }

    /// Has a directory looked into, unless it only has to be moved.
    fn add(&mut self, visit: Visit, digest: &TreeDigest) {
        if visit.sink.is_some() || visit.is_aside || !self.moves.might_have(digest) {
            self.level.push_back(visit);
        } else if !self.moves.is_ready() {
            self.held.push((visit, *digest));
        } else if !self.moves.take(digest, &visit.path, &mut self.dirs) {
            self.level.push_back(visit);
        }
    }
}

/// Finds what stays in the directories that a plan deletes or replaces.
fn keep(kept: &mut SparedEntries, sink: &Tree, dir: &PlannedDir, spared: Spared<'_>) {
    let Some(id) = dir.sink else { return };
    let replaced = dir.replaced_dirs();
    let mut child = sink.dirs[id as usize].first_child;
    for (index, entry) in (0..).zip(&sink.dirs[id as usize].listing) {
        let is_dir = entry.kind == Kind::Dir;
        let goes = dir.plan.deletes.binary_search(&index).is_ok() || replaced.contains(entry.name);
        if is_dir
            && goes
            && let Ok(path) = dir.path.join(entry.name)
        {
            keep_below(kept, sink, child, &path, spared);
        }
        child += u32::from(is_dir);
    }
}

fn keep_below(kept: &mut SparedEntries, sink: &Tree, id: DirId, path: &RelPath, spared: Spared<'_>) {
    let mut left = vec![(id, path.clone())];
    while let Some((id, path)) = left.pop() {
        let spared = Spared { dir: &path, ..spared };
        let dir = &sink.dirs[id as usize];
        let mut child = dir.first_child;
        for (index, entry) in (0..).zip(&dir.listing) {
            let is_dir = entry.kind == Kind::Dir;
            if spared.holds(&entry) {
                kept.insert((id, index));
            } else if is_dir && let Ok(below) = path.join(entry.name) {
                left.push((child, below));
            }
            child += u32::from(is_dir);
        }
    }
}
