//! Reads a destination back: scans it again, compares all of it with the source, contents included, and reports the
//! differences.

use contract::{RunParams, Shard, Side, plural};

use crate::{
    apply::Settings,
    monitor::Monitor,
    plan::{Content, Policy, Step},
    report::Failures,
    root::Root,
    session::{
        plan::{
            compare::compare,
            contents::{Checker, SourceHashes},
            planned::{Compared, PlannedDir, path_in},
            policy::{owners_filter, policy},
            scan_tree::{ScanTimes, scan_tree},
            source_tree::SourceTree,
            subject::Subject,
        },
        reading::{hash_files::Expect, source_file::Origin},
        session_error::SessionError,
        sink::shards::verifies,
    },
    tree::Tree,
    wire::TreeHead,
};

/// A destination to read back.
pub(crate) struct Verifier<'a> {
    pub params: &'a RunParams,
    pub settings: Settings,
    /// The destination.
    pub root: &'a Root,
    pub subject: &'a Subject,
    pub failures: &'a Failures,
    pub monitor: &'a Monitor,
}

impl Verifier<'_> {
    /// Compares the current state of the destination with the source as it was listed; if several processes share the
    /// run, only this shard's part. Differences are failures, unless the source changed meanwhile. Returns notes for
    /// the report.
    pub(crate) fn verify(
        &self,
        source: &mut (impl SourceTree + SourceHashes),
        head: &TreeHead,
    ) -> Result<Vec<String>, SessionError> {
        let sink = scan_tree(
            self.subject,
            self.root,
            self.params,
            Side::Sink,
            ScanTimes::default(),
            self.failures,
            self.monitor,
        )?;
        let policy = Policy { content: Content::Verified, ..policy(self.params, self.settings) };
        let mut compared =
            compare(source, head, &sink, policy, false, &owners_filter(self.params)?, self.monitor)?;
        let shard = self.params.shard.filter(|shard| shard.count > 1);
        compared.dirs.iter_mut().filter(|dir| !verifies(shard, dir)).for_each(|dir| dir.plan.checks.clear());
        let changed = self.checker().check(&mut compared.dirs, source, None)?;
        // Links may connect directories of different shards.
        compared.settle(&sink, policy, self.monitor)?;
        compared.dirs.retain(|dir| verifies(shard, dir));
        let differences = report(&compared, &sink, self.failures);
        let entries = match shard {
            Some(_) => compared.dirs.iter().map(|dir| dir.listing.len() as u64).sum(),
            None => head.totals.entries,
        };
        Ok(notes(shard, entries, differences, changed))
    }

    fn checker(&self) -> Checker<'_> {
        Checker {
            origin: Origin::Tree(self.root),
            failures: self.failures,
            monitor: self.monitor,
            expect: Expect::OnVolume,
        }
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
