//! Reads a destination back: scans it again, compares all of it with the source, contents included, and reports the
//! differences.

use std::collections::HashSet;

use contract::{Shard, Side, plural};

use crate::{
    compare_entries::{Content, Policy, Step, step},
    destination::Settings,
    entry::{Entry, Kind},
    measure::report::Failures,
    plan::{
        compare_contents::Checker,
        compare_params::policy,
        compare_trees::compare,
        planned::{Checked, Compared, PlannedDir, PlannedRef, SparedEntries, holds_only_kept, path_in},
        run_state::Run,
        scan_params::{ScanTimes, scan_tree},
        single_file::Subject,
    },
    session_error::{SessionError, go_on},
    sink::{deal_to_shards::verifies, source_end::SourceEnd},
    source::{hash_files::Expect, source_file::Origin},
    sys::root::Root,
    tree::{Tree, seek::seek},
    wire::{FileGroup, MAX_HASHES, TreeHead},
};

/// A destination to read back.
pub(crate) struct Verifier<'a> {
    pub run: &'a Run<'a>,
    pub settings: Settings,
    /// The destination.
    pub root: &'a Root,
    pub subject: &'a Subject,
}

impl Verifier<'_> {
    /// Compares the current state of the destination with the source as it was listed; if several processes share the
    /// run, only this shard's part. Differences are failures, unless the source changed meanwhile. Returns notes for
    /// the report.
    pub(crate) fn verify(
        &self,
        source: &mut impl SourceEnd,
        head: &TreeHead,
    ) -> Result<Vec<String>, SessionError> {
        let sink = scan_tree(
            self.subject,
            self.root,
            self.run.params,
            Side::Sink,
            ScanTimes::default(),
            &self.run.failures,
            self.run.monitor,
        )?;
        let moves = self.run.params.remove_source_files;
        let policy = Policy { content: Content::Verified, ..policy(self.run.params, self.settings) };
        // A move has to know which entries are equal, also of those that the run left alone.
        let policy = Policy { ignore_existing: policy.ignore_existing && !moves, ..policy };
        let mut compared = compare(source, head, &sink, policy, false, self.run.params, self.run.monitor)?;
        // Links may connect directories of different shards.
        compared.settle(&sink, policy, self.run.monitor)?;
        let shard = self.run.params.shard.filter(|shard| shard.count > 1);
        compared.dirs.iter_mut().filter(|dir| !verifies(shard, dir)).for_each(|dir| dir.plan.checks.clear());
        let Checked { changed, unlike, .. } = self.checker().check(&mut compared.dirs, source, None)?;
        compared.dirs.retain(|dir| verifies(shard, dir));
        let copied = if moves { copied(&compared, &sink, policy, &unlike) } else { Vec::new() };
        if moves && self.run.params.ignore_existing {
            compared.dirs.iter_mut().for_each(leave_existing);
        }
        let differences = report(&compared, &sink, &self.run.failures);
        let entries = match shard {
            Some(_) => compared.dirs.iter().map(|dir| dir.listing.len() as u64).sum(),
            None => head.totals.entries,
        };
        let mut notes = notes(shard, entries, differences, changed);
        if moves {
            notes.push(self.release(source, copied)?);
        }
        Ok(notes)
    }

    /// Has the source remove what it and the destination have. Returns a note for the report.
    fn release(&self, source: &mut impl SourceEnd, groups: Vec<FileGroup>) -> Result<String, SessionError> {
        let (before, mut count) = (self.run.failures.count(), 0);
        for group in groups {
            for part in group.indices.chunks(MAX_HASHES) {
                count += part.len() as u64;
                let part = FileGroup { dir: group.dir, indices: part.to_vec() };
                source.release(vec![part], &self.run.failures)?;
                go_on(self.run.monitor)?;
            }
        }
        let removed = count.saturating_sub(self.run.failures.count() - before);
        Ok(format!("{} removed at the source", plural(removed, "entry was", "entries were")))
    }

    fn checker(&self) -> Checker<'_> {
        Checker {
            origin: Origin::Tree(self.root),
            failures: &self.run.failures,
            monitor: self.run.monitor,
            expect: Expect::OnVolume,
        }
    }
}

/// Removes the steps for entries that the destination had, apart from directories.
fn leave_existing(dir: &mut PlannedDir) {
    let dirs: Vec<bool> = dir.listing.iter().map(|entry| entry.kind == Kind::Dir).collect();
    let is_new = |index: u32, step| step == Step::Create || step == Step::Meta && dirs[index as usize];
    dir.plan.steps.retain(|(index, step)| is_new(*index, *step));
}

/// Returns the source's entries, apart from directories, that the destination has, too, with content that was compared.
fn copied(compared: &Compared, sink: &Tree, policy: Policy, unlike: &HashSet<PlannedRef>) -> Vec<FileGroup> {
    // A further name of the destination's file has no metadata of its own. Without a step, the file has the source's,
    // unless it was left alone.
    let is_settled = |copy: &Entry<'_>| matches!(copy.kind, Kind::HardLink { .. }) && !policy.update;
    let (mut groups, policy) = (Vec::new(), Policy { update: false, ..policy });
    for (nth, dir) in compared.dirs.iter().enumerate() {
        let Some(there) = dir.sink.map(|id| &sink.dirs[id as usize]).filter(|_| dir.is_asked()) else {
            continue;
        };
        let (mut there, mut indices) = (there.listing.iter().peekable(), Vec::new());
        for (index, entry) in (0..).zip(&dir.listing) {
            let Some(copy) = seek(&mut there, entry.name, |copy| copy.name) else { continue };
            let is_equal = match entry.kind {
                Kind::Dir => false,
                Kind::HardLink { .. } => true,
                Kind::File { .. } => {
                    let is_compared = dir.plan.checks.binary_search(&index).is_ok();
                    let is_alike = is_settled(&copy) || step(&entry, &copy, policy).is_none();
                    is_compared && !unlike.contains(&PlannedRef { dir: nth, index }) && is_alike
                }
                _ => step(&entry, &copy, policy).is_none(),
            };
            if is_equal && dir.plan.step(index).is_none() {
                indices.push(index);
            }
        }
        groups.push((dir, indices));
    }
    keep_parted(&mut groups);
    let groups = groups.into_iter().filter(|(_, indices)| !indices.is_empty());
    groups.map(|(dir, indices)| FileGroup { dir: dir.source, indices }).collect()
}

/// Removes the further names of files whose first name is not among these entries. Where another file took that name at
/// the source before it was read, the destination does not have what its other names still lead to.
fn keep_parted(groups: &mut [(&PlannedDir, Vec<u32>)]) {
    fn entries<'d>((dir, indices): &(&'d PlannedDir, Vec<u32>)) -> Vec<Entry<'d>> {
        let mut indices = indices.iter().peekable();
        let entries = (0..).zip(&dir.listing);
        entries.filter(|(index, _)| indices.next_if_eq(&index).is_some()).map(|(_, entry)| entry).collect()
    }
    let first_of = |entry: &Entry<'_>| match entry.kind {
        Kind::HardLink { to } => Some(Box::<[u8]>::from(to)),
        _ => None,
    };
    let wanted: HashSet<_> = groups.iter().flat_map(entries).filter_map(|entry| first_of(&entry)).collect();
    if wanted.is_empty() {
        return;
    }
    let mut there = HashSet::new();
    for group in groups.iter() {
        let firsts = entries(group).into_iter().filter(|entry| first_of(entry).is_none());
        let paths = firsts.map(|entry| Box::<[u8]>::from(path_in(&group.0.path, entry.name).as_bytes()));
        there.extend(paths.filter(|path| wanted.contains(path)));
    }
    for group in groups {
        let listed = entries(group);
        let mut stays = listed.iter().map(|entry| first_of(entry).is_none_or(|first| there.contains(&first)));
        group.1.retain(|_| stays.next().unwrap_or(false));
    }
}

/// Formats the results of a verification as sentences for the report.
pub(crate) fn notes(shard: Option<Shard>, entries: u64, differences: u64, changed: u64) -> Vec<String> {
    let who = shard.map_or_else(String::new, |Shard { index, count }| format!("shard {index}/{count} "));
    let entries = plural(entries, "entry was", "entries were");
    let differences = plural(differences, "differs", "differ");
    let mut notes = vec![format!(
        "{who}verified: {entries} compared with the source and all contents read back, {differences}"
    )];
    if changed > 0 {
        let (one, many) = (
            "file changed at the source meanwhile and was",
            "files changed at the source meanwhile and were",
        );
        notes.push(format!("{who}{} not verified", plural(changed, one, many)));
    }
    notes
}

/// Records every difference as a failure, and returns their number.
pub(crate) fn report(compared: &Compared, sink: &Tree, failures: &Failures) -> u64 {
    compared.dirs.iter().map(|dir| steps(dir, failures) + surplus(dir, sink, &compared.kept, failures)).sum()
}

fn steps(dir: &PlannedDir, failures: &Failures) -> u64 {
    let mut steps = dir.plan.steps.iter().peekable();
    for (index, entry) in (0..).zip(&dir.listing) {
        let Some((_, step)) = steps.next_if(|(at, _)| *at == index) else { continue };
        let what = match step {
            Step::Create => "the destination does not have it",
            Step::Replace { .. } => "the destination has something else of this name",
            Step::Update => "its content differs",
            Step::Meta => "its mode, owner, time or attributes differ",
        };
        failures.add(&path_in(&dir.path, entry.name), "verify", &what);
    }
    dir.plan.steps.len() as u64
}

/// Records the entries that only the destination has and that the run would have deleted, and returns their number. A
/// folder that a run leaves because of what is kept in it is none of them.
fn surplus(dir: &PlannedDir, sink: &Tree, kept: &SparedEntries, failures: &Failures) -> u64 {
    let Some(id) = dir.sink else { return 0 };
    let mut deletes = dir.plan.deletes.iter().peekable();
    let (mut count, mut child) = (0, sink.dirs[id as usize].first_child);
    for (index, entry) in (0..).zip(&sink.dirs[id as usize].listing) {
        let is_dir = entry.kind == Kind::Dir;
        if deletes.next_if(|&&at| at == index).is_some() && !(is_dir && holds_only_kept(sink, kept, child)) {
            failures.add(&path_in(&dir.path, entry.name), "verify", &"the source does not have it");
            count += 1;
        }
        child += u32::from(is_dir);
    }
    count
}
