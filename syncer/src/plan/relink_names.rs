//! Hard links in a plan: decides whether a run keeps them, which of the destination's files keep their content under
//! another leader, and which names have to be linked again because their file is replaced.
//!
//! Each directory was planned alone. Files with several names, which may be in many directories, are settled here: at
//! most one of the source's files keeps such a file, and all other entries of the source under its names are made
//! again.

use std::collections::{HashMap, HashSet};

use contract::RunParams;

use crate::{
    compare_entries::{Content, DirPlan, Policy, Step, step},
    entry::{Entry, Kind, Meta},
    entry_paths::{EntryPlace, dir_paths, parents},
    lead_hard_links::Group,
    measure::monitor::Monitor,
    path::RelPath,
    plan::planned::{PlannedDir, UNASKED},
    session_error::{SessionError, go_on},
    tree::{
        Tree,
        dir::{DirId, ROOT},
        seek::seek,
    },
};

/// The source's entry of the same name as an entry of the sink, if there is one, and the index of the latter.
type Met<'a> = (Option<(u32, Entry<'a>)>, u32);

/// Returns whether names of one file at the source become names of one file. They do not if the first of them may be
/// left out for what the destination has.
pub(crate) fn links_names(params: &RunParams) -> bool {
    params.preserve.hard_links && !params.existing && !params.ignore_existing && !params.update
}

/// Settles the hard links of a plan.
pub(crate) fn settle(
    planned: &mut Vec<PlannedDir>,
    sink: &Tree,
    policy: Policy,
    monitor: &Monitor,
) -> Result<(), SessionError> {
    if planned.is_empty() || sink.groups.is_empty() {
        return Ok(());
    }
    let mut links = Links::new(planned, sink, monitor);
    links.claim_by_leaders(planned)?;
    links.claim_by_others(planned, policy)?;
    links.give_up_parted(planned, policy)?;
    links.follow(planned)?;
    links.spare_newer(planned, policy)?;
    links.follow_elsewhere(planned)
}

struct Links<'a> {
    sink: &'a Tree,
    monitor: &'a Monitor,
    parents: Vec<DirId>,
    /// Planned directories by their number at the sink.
    planned: HashMap<DirId, usize>,
    /// The sink's groups, by the places of their members.
    groups: HashMap<EntryPlace, usize>,
    /// The source's path of each group's file; `None` if the source does not have that file.
    claims: Vec<Option<RelPath>>,
}

impl<'a> Links<'a> {
    fn new(planned: &[PlannedDir], sink: &'a Tree, monitor: &'a Monitor) -> Self {
        let by_sink = planned.iter().zip(0..).filter_map(|(dir, at)| Some((dir.sink?, at))).collect();
        let places =
            |(number, group): (usize, &'a Group)| group.members.iter().map(move |place| (*place, number));
        Self {
            sink,
            monitor,
            parents: parents(&sink.dirs),
            planned: by_sink,
            groups: sink.groups.iter().enumerate().flat_map(places).collect(),
            claims: vec![None; sink.groups.len()],
        }
    }

    /// Lets leaders that keep their content keep their files.
    fn claim_by_leaders(&mut self, planned: &[PlannedDir]) -> Result<(), SessionError> {
        let mut kept = vec![false; self.claims.len()];
        let mut looked_at: HashMap<usize, Vec<u32>> = HashMap::new();
        for (group, kept) in self.sink.groups.iter().zip(&mut kept) {
            go_on(self.monitor)?;
            let Some(place) = group.members.first() else { continue };
            match self.planned.get(&place.dir) {
                Some(&at) => looked_at.entry(at).or_default().push(place.index),
                None => *kept = self.is_alike(place.dir, planned),
            }
        }
        for (at, mut indices) in looked_at {
            indices.sort_unstable();
            let dir = &planned[at];
            let Some(id) = dir.sink else { continue };
            for (source, index) in self.met(dir)? {
                let keeps = source.is_some_and(|(source, entry)| {
                    !matches!(entry.kind, Kind::HardLink { .. }) && keeps_content(&dir.plan, source)
                });
                if indices.binary_search(&index).is_ok()
                    && let Some(&group) = self.groups.get(&EntryPlace { dir: id, index })
                {
                    kept[group] = keeps;
                }
            }
        }
        for ((claim, group), kept) in self.claims.iter_mut().zip(&self.sink.groups).zip(kept) {
            *claim = kept.then(|| group.leader.clone());
        }
        Ok(())
    }

    /// Gives a file that is not claimed to the first of its names under which the source has an equal file, and cuts
    /// that name off its leader. Does nothing where equal metadata does not prove equal content, unless all contents
    /// are compared afterwards.
    fn claim_by_others(&mut self, planned: &mut [PlannedDir], policy: Policy) -> Result<(), SessionError> {
        if !matches!(policy.content, Content::Trusted | Content::Verified) {
            return Ok(());
        }
        for dir in planned {
            let Some(id) = dir.sink else { continue };
            let mut settled = Vec::new();
            for (source, index) in self.met(dir)? {
                let Some((at, entry)) = source else { continue };
                let Some(&group) = self.groups.get(&EntryPlace { dir: id, index }) else { continue };
                let is_follower =
                    self.sink.groups[group].members.first() != Some(&EntryPlace { dir: id, index });
                if !is_follower || matches!(entry.kind, Kind::HardLink { .. }) || self.claims[group].is_some()
                {
                    continue;
                }
                let Some(there) = self.sink.groups[group].entry() else { continue };
                if policy.spares_existing(&entry, &there) {
                    continue;
                }
                let left = step(&entry, &there, policy);
                if matches!(left, None | Some(Step::Meta))
                    && let Ok(path) = dir.path.join(entry.name)
                {
                    self.claims[group] = Some(path);
                    settled.push((at, left));
                }
            }
            for (at, left) in settled {
                dir.plan.set_step(at, left);
                if let (Content::Verified, Err(place)) = (policy.content, dir.plan.checks.binary_search(&at))
                {
                    dir.plan.checks.insert(place, at);
                }
            }
        }
        Ok(())
    }

    /// Gives up files that get new rights and lose a name: that moves their change time, and then they count as changed
    /// by another process. They are written again.
    fn give_up_parted(&mut self, planned: &mut [PlannedDir], policy: Policy) -> Result<(), SessionError> {
        let mut granted: HashMap<usize, (usize, u32)> = HashMap::new();
        self.each_member(planned, |at, group, source, _| {
            if let Some((nth, entry)) = source
                && planned[at].plan.step(nth) == Some(Step::Meta)
                && self.is_claimed_by(group, &planned[at], &entry)
                && self.sink.groups[group].entry().is_some_and(|there| policy.grants(&entry, &there))
            {
                granted.insert(group, (at, nth));
            }
        })?;
        if granted.is_empty() {
            return Ok(());
        }
        let elsewhere = |group: &usize| {
            let mut members = self.sink.groups[*group].members.iter();
            members.any(|place| !self.planned.contains_key(&place.dir) && !self.is_alike(place.dir, planned))
        };
        let mut parted: HashSet<usize> = granted.keys().copied().filter(elsewhere).collect();
        self.each_member(planned, |at, group, source, index| {
            let stays = match source {
                Some((_, Entry { kind: Kind::HardLink { to }, .. })) => {
                    self.claims[group].as_ref().is_some_and(|path| path.as_bytes() == to)
                }
                Some((nth, _)) => granted.get(&group) == Some(&(at, nth)),
                None => planned[at].plan.deletes.binary_search(&index).is_err(),
            };
            if !stays {
                parted.insert(group);
            }
        })?;
        for (group, (at, nth)) in granted.into_iter().filter(|(group, _)| parted.contains(group)) {
            self.claims[group] = None;
            planned[at].plan.set_step(nth, Some(Step::Update));
        }
        Ok(())
    }

    /// Calls `look` with each entry of a planned directory that is in a group: the directory's number, the group, the
    /// source's entry of the same name, and the entry's index at the sink.
    fn each_member<'b>(
        &self,
        planned: &'b [PlannedDir],
        mut look: impl FnMut(usize, usize, Option<(u32, Entry<'b>)>, u32),
    ) -> Result<(), SessionError> {
        for (at, dir) in planned.iter().enumerate() {
            let Some(id) = dir.sink else { continue };
            for (source, index) in self.met(dir)? {
                if let Some(&group) = self.groups.get(&EntryPlace { dir: id, index }) {
                    look(at, group, source, index);
                }
            }
        }
        Ok(())
    }

    fn is_claimed_by(&self, group: usize, dir: &PlannedDir, entry: &Entry<'_>) -> bool {
        let claim = self.claims[group].as_ref();
        claim.is_some_and(|claim| dir.path.join(entry.name).is_ok_and(|path| path == *claim))
    }

    /// Settles the links of planned directories: those that lead to the right file need no step, all others are made.
    fn follow(&self, planned: &mut [PlannedDir]) -> Result<(), SessionError> {
        for dir in planned {
            let Some(id) = dir.sink else { continue };
            let mut settled = Vec::new();
            for (source, index) in self.met(dir)? {
                let Some((at, Entry { kind: Kind::HardLink { to }, .. })) = source else { continue };
                let Some(&group) = self.groups.get(&EntryPlace { dir: id, index }) else { continue };
                let in_place = self.claims[group].as_ref().is_some_and(|path| path.as_bytes() == to);
                settled.push((at, (!in_place).then_some(Step::Replace { was_dir: false })));
            }
            settled.into_iter().for_each(|(at, left)| dir.plan.set_step(at, left));
        }
        Ok(())
    }

    /// Spares names of the sink's files that are newer than the source's, where those are left alone.
    fn spare_newer(&self, planned: &mut [PlannedDir], policy: Policy) -> Result<(), SessionError> {
        if !policy.update {
            return Ok(());
        }
        let mut spared = Vec::new();
        self.each_member(planned, |at, group, source, _| {
            if let (Some((nth, entry)), Some(there)) = (source, self.sink.groups[group].entry())
                && policy.spares_newer(&entry, &there)
            {
                spared.push((at, nth));
            }
        })?;
        spared.into_iter().for_each(|(at, nth)| planned[at].plan.set_step(nth, None));
        Ok(())
    }

    /// Relinks names in unplanned directories, which equal the source's, if their file is replaced.
    fn follow_elsewhere(&self, planned: &mut Vec<PlannedDir>) -> Result<(), SessionError> {
        let mut relinked: HashMap<DirId, Vec<u32>> = HashMap::new();
        for (group, claim) in self.sink.groups.iter().zip(&self.claims) {
            go_on(self.monitor)?;
            if claim.as_ref() == Some(&group.leader) {
                continue;
            }
            let followers = group.members.iter().skip(1);
            for place in followers.filter(|place| !self.planned.contains_key(&place.dir)) {
                if relinked.contains_key(&place.dir) || self.is_alike(place.dir, planned) {
                    relinked.entry(place.dir).or_default().push(place.index);
                }
            }
        }
        let mut paths = dir_paths(&self.sink.dirs, relinked.keys().copied());
        let mut dirs: Vec<_> = relinked.into_iter().collect();
        dirs.sort_unstable();
        for (id, mut indices) in dirs {
            indices.sort_unstable();
            let Some(path) = paths.remove(&id) else { continue };
            let steps = indices.into_iter().map(|index| (index, Step::Replace { was_dir: false })).collect();
            planned.push(PlannedDir {
                source: UNASKED,
                sink: Some(id),
                path,
                meta: self.meta(id),
                listing: self.sink.dirs[id as usize].listing.clone(),
                plan: DirPlan { steps, ..DirPlan::default() },
            });
        }
        Ok(())
    }

    /// Returns the entries of the sink's directory that are in a group, each with the source's entry of the same name.
    fn met<'b>(&self, dir: &'b PlannedDir) -> Result<Vec<Met<'b>>, SessionError> {
        let Some(id) = dir.sink else { return Ok(Vec::new()) };
        let mut source = (0..).zip(&dir.listing).peekable();
        let mut met = Vec::new();
        for (index, there) in (0..).zip(&self.sink.dirs[id as usize].listing) {
            go_on(self.monitor)?;
            let same = seek(&mut source, there.name, |(_, entry)| entry.name);
            if self.groups.contains_key(&EntryPlace { dir: id, index }) {
                met.push((same, index));
            }
        }
        Ok(met)
    }

    /// Returns whether a directory that was not planned equals one of the source's: the nearest planned directory above
    /// it pairs it, or the directory between them, with one of the source's.
    fn is_alike(&self, mut dir: DirId, planned: &[PlannedDir]) -> bool {
        while dir != ROOT {
            let parent = self.parents[dir as usize];
            if let Some(&at) = self.planned.get(&parent) {
                let nth = dir - self.sink.dirs[parent as usize].first_child;
                return planned[at].plan.pairs.iter().any(|pair| pair.sink == Some(nth));
            }
            dir = parent;
        }
        false
    }

    /// Returns a directory's own metadata.
    fn meta(&self, dir: DirId) -> Meta {
        let parent = &self.sink.dirs[self.parents[dir as usize] as usize];
        let mut dirs = parent.listing.iter().filter(|entry| entry.kind == Kind::Dir);
        dirs.nth((dir - parent.first_child) as usize).map_or_else(Meta::default, |entry| entry.meta)
    }
}

fn keeps_content(plan: &DirPlan, index: u32) -> bool {
    match plan.steps.binary_search_by_key(&index, |(at, _)| *at) {
        Ok(at) => plan.steps[at].1 == Step::Meta,
        Err(_) => true,
    }
}
