//! Reads a destination back: scans it again, compares all of it with the source, contents included, and reports the
//! differences.

use contract::{Shard, Side, human::plural};

use crate::{
    compare_entries::{Content, Policy, Step},
    destination::Destination,
    entry::Kind,
    kept_xattrs::Classes,
    measure::failures::Failures,
    plan::{
        compare_contents::Checker,
        compare_params::policy,
        compare_trees::compare,
        planned::{Checked, Compared, PlannedDir, path_in},
        run_state::Run,
        scan_params::{ScanTimes, scan_tree},
        single_file::Subject,
    },
    session_error::{SessionError, go_on},
    sink::{deal_to_shards::verifies, entries_to_release::ReadBack, source_end::SourceEnd},
    source::{hash_files::Expect, source_file::Origin},
    transport::TransportError,
    tree::Tree,
    wire::{FileGroup, MAX_HASHES, Release, TreeHead},
};

/// A destination to read back.
pub(crate) struct Verifier<'a> {
    pub run: &'a Run<'a>,
    pub destination: &'a Destination,
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
            self.destination.root(),
            self.run.params,
            Side::Sink,
            ScanTimes::default(),
            &self.run.failures,
            self.run.monitor,
        )?;
        let moves = self.run.params.remove_source_files;
        let policy =
            Policy { content: Content::Verified, ..policy(self.run.params, self.destination.settings()) };
        // A move has to know which entries are equal, also of those that the run left alone.
        let policy = Policy { ignore_existing: policy.ignore_existing && !moves, ..policy };
        let mut compared = compare(source, head, &sink, policy, false, self.run.params, self.run.monitor)?;
        // Links may connect directories of different shards.
        compared.settle(&sink, policy, self.run.monitor)?;
        if moves {
            self.make_durable(&compared, &sink)?;
        }
        let shard = self.run.params.shard.filter(|shard| shard.count > 1);
        compared.dirs.iter_mut().filter(|dir| !verifies(shard, dir)).for_each(|dir| dir.plan.checks.clear());
        let Checked { changed, unlike, .. } = self.checker().check(&mut compared.dirs, source, None)?;
        compared.dirs.retain(|dir| verifies(shard, dir));
        let read_back =
            ReadBack { compared: &compared, sink: &sink, policy, unlike: &unlike, lost: self.lost_attrs() };
        let copied = if moves { read_back.to_release(&self.run.failures) } else { Vec::new() };
        if moves && self.run.params.ignore_existing {
            compared.dirs.iter_mut().for_each(leave_existing);
        }
        let differences = report(&compared, &sink, &self.run.failures);
        let entries = match shard {
            Some(_) => compared.dirs.iter().map(|dir| dir.listing.len() as u64).sum(),
            None => head.totals.entries,
        };
        let mut notes = notes(shard, entries, compared.left_out, differences, changed);
        if moves {
            notes.push(self.release(source, copied)?);
        }
        Ok(notes)
    }

    /// Makes what is read back durable: the system's cache also has what the disk does not have yet.
    fn make_durable(&self, compared: &Compared, sink: &Tree) -> Result<(), SessionError> {
        let (destination, monitor) = (self.destination, self.run.monitor);
        let mounted = compared.mounted(sink).map(|dir| &dir.path);
        let synced = destination.sync_all(monitor).and_then(|()| destination.sync_mounted(mounted, monitor));
        synced.map_err(|error| {
            if self.run.monitor.cancelled() {
                TransportError::Canceled.into()
            } else {
                SessionError::Commit(error)
            }
        })
    }

    /// Has the source remove what it and the destination have, as long as that is this run's. Returns a note for the
    /// report.
    fn release(&self, source: &mut impl SourceEnd, groups: Vec<FileGroup>) -> Result<String, SessionError> {
        let (before, mut count) = (self.run.failures.count(), 0);
        for group in groups {
            for part in group.indices.chunks(MAX_HASHES) {
                count += part.len() as u64;
                let groups = vec![FileGroup { dir: group.dir, indices: part.to_vec() }];
                self.destination.still_held()?;
                source.release(
                    Release { epoch: self.destination.state().stamp(), groups },
                    &self.run.failures,
                )?;
                go_on(self.run.monitor)?;
            }
        }
        let removed = count.saturating_sub(self.run.failures.count() - before);
        Ok(format!("{} removed at the source", plural(removed, "entry was", "entries were")))
    }

    /// Returns the kinds of attributes that the run would keep and the destination cannot. Labels of SELinux belong to
    /// the machine's policy, and are not among them.
    fn lost_attrs(&self) -> Classes {
        Classes::wanted(&self.run.params.preserve)
            .without(self.destination.settings().attrs)
            .without(Classes::LABEL)
    }

    fn checker(&self) -> Checker<'_> {
        Checker {
            origin: Origin::Tree(self.destination.root()),
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

/// Formats the results of a verification as sentences for the report.
pub(crate) fn notes(
    shard: Option<Shard>,
    entries: u64,
    left_out: u64,
    differences: u64,
    changed: u64,
) -> Vec<String> {
    let who = shard.map_or_else(String::new, |Shard { index, count }| format!("shard {index}/{count} "));
    let entries = plural(entries, "entry was", "entries were");
    let differences = plural(differences, "differs", "differ");
    let all_but = match left_out {
        0 => String::new(),
        _ => format!(
            ", but for {} here with all below",
            plural(left_out, "that is excluded", "that are excluded")
        ),
    };
    let mut notes = vec![format!(
        "{who}verified: {entries} compared with the source and all contents read back{all_but}, {differences}"
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
    compared.dirs.iter().map(|dir| steps(dir, failures) + surplus(dir, sink, failures)).sum()
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

/// Records the entries that only the destination has and that the run would have deleted, and returns their number.
fn surplus(dir: &PlannedDir, sink: &Tree, failures: &Failures) -> u64 {
    let Some(id) = dir.sink else { return 0 };
    let mut deletes = dir.plan.deletes.iter().peekable();
    for (index, entry) in (0..).zip(&sink.dirs[id as usize].listing) {
        if deletes.next_if(|&&at| at == index).is_some() {
            failures.add(&path_in(&dir.path, entry.name), "verify", &"the source does not have it");
        }
    }
    dir.plan.deletes.len() as u64
}
