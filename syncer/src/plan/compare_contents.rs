//! Compares the contents of files: both ends hash them, and the sink plans an update of those that differ.
//!
//! Hashes are requested in batches. Two are in flight, so that both ends read at the same time and hold no more than
//! two batches.

use std::collections::VecDeque;

use crate::{
    compare_entries::Step,
    listing::EntryIndex,
    measure::{failures::Failures, monitor::Monitor},
    plan::planned::{Checked, PlannedDir, PlannedRef},
    session_error::SessionError,
    source::{
        hash_files::{Expect, HashRequest, hash_all},
        source_file::Origin,
    },
    wire::{FileGroup, Hashed, MAX_HASHES},
};

/// A batch ends with the file that brings it to this many bytes.
const BATCH_BYTES: u64 = 256 << 20;

/// The number of batches that are in flight.
const UNDER_WAY: usize = 2;

/// Supplies the hashes of the source's files.
pub(crate) trait SourceHashes {
    /// Requests the hashes of a batch.
    fn ask(&mut self, batch: &HashBatch) -> Result<(), SessionError>;

    /// Returns the hashes of the oldest requested batch, in its order.
    fn next(&mut self, batch: &HashBatch) -> Result<Vec<Hashed>, SessionError>;
}

/// Files whose hashes are requested together.
#[derive(Debug, Default)]
pub(crate) struct HashBatch {
    pub groups: Vec<FileGroup>,
    pub files: Vec<HashRequest>,
    /// The place of each file in the plans.
    pub places: Vec<PlannedRef>,
    pub bytes: u64,
}

/// Compares the contents of the sink's files with the source's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checker<'a> {
    /// The sink's files.
    pub origin: Origin<'a>,
    /// Records the source's files that cannot be read.
    pub failures: &'a Failures,
    /// Tells whether to stop.
    pub monitor: &'a Monitor,
    /// How the sink's files are read.
    pub expect: Expect,
}

impl Checker<'_> {
    /// Compares the content of all files that the plans mark for it, and plans an update of those that differ. A file
    /// that has changed at the source since it was listed gets the step `changed`.
    pub(crate) fn check(
        &self,
        dirs: &mut [PlannedDir],
        source: &mut dyn SourceHashes,
        changed: Option<Step>,
    ) -> Result<Checked, SessionError> {
        let mut checked = Checked::default();
        for (file, unlike) in self.compare(dirs, source, &mut checked)? {
            checked.unlike.insert(file);
            let step = match unlike {
                Unlike::Content => Some(Step::Update),
                Unlike::Changed => {
                    checked.changed += 1;
                    changed
                }
                Unlike::Unreadable => None,
            };
            dirs[file.dir].plan.set_step(file.index, step);
        }
        Ok(checked)
    }

    /// Returns the files whose content is not known to be equal, in the order of their places. Equal ones that may be
    /// written to are added to those of `checked`.
    fn compare(
        &self,
        dirs: &[PlannedDir],
        source: &mut dyn SourceHashes,
        checked: &mut Checked,
    ) -> Result<Vec<(PlannedRef, Unlike)>, SessionError> {
        let mut cursor = Cursor { dirs, dir: 0, check: 0, places: None };
        let mut asked = VecDeque::new();
        let mut unlike = Vec::new();
        loop {
            while asked.len() < UNDER_WAY
                && let Some(batch) = cursor.next()
            {
                source.ask(&batch)?;
                asked.push_back(batch);
            }
            let Some(batch) = asked.pop_front() else { return Ok(unlike) };
            let here = hash_all(self.origin, &batch.files, self.expect, self.monitor)?;
            let there = source.next(&batch)?;
            for ((file, place), (here, there)) in
                batch.files.iter().zip(&batch.places).zip(here.iter().zip(there))
            {
                match (there, here) {
                    (Hashed::Is(there), Hashed::Is(here)) if there == *here => {}
                    (Hashed::IsInMotion(there), Hashed::Is(here)) if there == *here => {
                        checked.in_motion.push((file.path(), file.mtime));
                    }
                    (Hashed::Failed { operation, error }, _) => {
                        self.failures.add(&file.path(), &operation, &error);
                        unlike.push((*place, Unlike::Unreadable));
                    }
                    (Hashed::Changed, _) => unlike.push((*place, Unlike::Changed)),
                    (Hashed::Is(_) | Hashed::IsInMotion(_), _) => unlike.push((*place, Unlike::Content)),
                }
            }
        }
    }
}

/// Why two files do not count as equal.
enum Unlike {
    /// Their contents differ.
    Content,
    /// The source's file has changed since it was listed.
    Changed,
    /// The source's file cannot be read.
    Unreadable,
}

/// The position up to which the planned directories have been put into batches.
struct Cursor<'d> {
    dirs: &'d [PlannedDir],
    dir: usize,
    check: usize,
    /// The index of the directory that the last batch ended in.
    places: Option<EntryIndex<'d>>,
}

impl<'d> Cursor<'d> {
    fn next(&mut self) -> Option<HashBatch> {
        let mut batch = HashBatch::default();
        while let Some(dir) = self.dirs.get(self.dir).filter(|_| !batch.is_full()) {
            self.fill(&mut batch, dir);
        }
        (!batch.files.is_empty()).then_some(batch)
    }

    /// Adds as many checks of one directory as fit.
    fn fill(&mut self, batch: &mut HashBatch, dir: &'d PlannedDir) {
        let mut checks = dir.plan.checks[self.check..].iter().copied().peekable();
        let mut indices = Vec::new();
        let first = checks.peek().copied().unwrap_or(0);
        let entries = self.places.get_or_insert_with(|| EntryIndex::of(&dir.listing)).from(first);
        for (index, entry) in (first..).zip(entries) {
            if batch.is_full() || checks.peek().is_none() {
                break;
            }
            if checks.next_if_eq(&index).is_none() {
                continue;
            }
            self.check += 1;
            if let Some(file) = HashRequest::new(dir.source, &dir.path, &entry) {
                batch.bytes += file.size;
                batch.files.push(file);
                batch.places.push(PlannedRef { dir: self.dir, index });
                indices.push(index);
            }
        }
        if checks.peek().is_none() {
            (self.dir, self.check, self.places) = (self.dir + 1, 0, None);
        }
        if !indices.is_empty() {
            batch.groups.push(FileGroup { dir: dir.source, indices });
        }
    }
}

impl HashBatch {
    /// Returns whether it is sent before another file is added.
    pub(crate) fn is_full(&self) -> bool {
        self.files.len() >= MAX_HASHES || self.bytes >= BATCH_BYTES
    }
}

/// Returns a checker for files whose content is compared before the run.
pub(crate) fn checker<'a>(origin: Origin<'a>, failures: &'a Failures, monitor: &'a Monitor) -> Checker<'a> {
    Checker { origin, failures, monitor, expect: Expect::SameSize }
}
