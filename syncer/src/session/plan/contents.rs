//! Files whose content is compared: both ends hash them, and the sink plans what differs.
//!
//! Hashes are asked for in batches, two of them in flight, so that both ends read at the same time and neither holds
//! more than that of what the other says.

use std::collections::VecDeque;

use crate::{
    listing::EntryIndex,
    monitor::Monitor,
    plan::Step,
    report::Failures,
    session::{
        plan::planned::PlannedDir,
        reading::{
            hash_files::{Expect, HashRequest, hash_all},
            source_file::Origin,
        },
        session_error::SessionError,
    },
    wire::{FileGroup, Hashed, MAX_HASHES},
};

/// A batch ends with the file that brings it to this many bytes.
const BATCH_BYTES: u64 = 256 << 20;

/// How many batches are asked for ahead.
const UNDER_WAY: usize = 2;

/// Where the hashes of the source's files come from.
pub(crate) trait SourceHashes {
    /// Asks for the hashes of a batch.
    fn ask(&mut self, batch: &HashBatch) -> Result<(), SessionError>;

    /// The hashes of the batch that was asked for first, in its order.
    fn next(&mut self, batch: &HashBatch) -> Result<Vec<Hashed>, SessionError>;
}

/// Files that are asked about together.
#[derive(Debug, Default)]
pub(crate) struct HashBatch {
    pub groups: Vec<FileGroup>,
    pub files: Vec<HashRequest>,
    /// Where each file is.
    pub places: Vec<PlannedRef>,
    pub bytes: u64,
}

/// What is hashed, and who is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checker<'a> {
    /// The sink's files.
    pub origin: Origin<'a>,
    /// Takes the source's files that cannot be read.
    pub failures: &'a Failures,
    /// Asked whether to go on.
    pub monitor: &'a Monitor,
    /// How the sink's files are read.
    pub expect: Expect,
}

impl Checker<'_> {
    /// Compares the content of all files that the plans say it of, and plans an update of those that differ. Returns
    /// how many of the source's files were no longer as they were listed: `changed` says what is to be done with those.
    pub(crate) fn check(
        &self,
        dirs: &mut [PlannedDir],
        source: &mut dyn SourceHashes,
        changed: Option<Step>,
    ) -> Result<u64, SessionError> {
        let unlike = self.compare(dirs, source)?;
        let mut changed_meanwhile = 0;
        for ((dir, index), unlike) in unlike {
            let step = match unlike {
                Unlike::Content => Some(Step::Update),
                Unlike::Changed => {
                    changed_meanwhile += 1;
                    changed
                }
                Unlike::Unreadable => None,
            };
            dirs[dir].plan.set_step(index, step);
        }
        Ok(changed_meanwhile)
    }

    /// Which files do not have the same content, in the order of their places.
    fn compare(
        &self,
        dirs: &[PlannedDir],
        source: &mut dyn SourceHashes,
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
                    (Hashed::Failed { operation, error }, _) => {
                        self.failures.add(&file.path(), &operation, &error);
                        unlike.push((*place, Unlike::Unreadable));
                    }
                    (Hashed::Changed, _) => unlike.push((*place, Unlike::Changed)),
                    (Hashed::Is(_), _) => unlike.push((*place, Unlike::Content)),
                }
            }
        }
    }
}

/// Which of the planned directories a file is in, and its place in the listing.
type PlannedRef = (usize, u32);

/// Why two files were not found to be the same.
enum Unlike {
    /// Their contents differ.
    Content,
    /// The source's is no longer as it was listed.
    Changed,
    /// The source's cannot be read.
    Unreadable,
}

/// How far the planned directories have been put into batches.
struct Cursor<'d> {
    dirs: &'d [PlannedDir],
    dir: usize,
    check: usize,
    /// Of the directory that the last batch ended in.
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

    /// Takes the checks of one directory, as many as fit.
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
                batch.places.push((self.dir, index));
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
    /// Whether it is sent before more is added.
    pub(crate) fn is_full(&self) -> bool {
        self.files.len() >= MAX_HASHES || self.bytes >= BATCH_BYTES
    }
}

/// Of files whose content is compared before the run.
pub(crate) fn checker<'a>(origin: Origin<'a>, failures: &'a Failures, monitor: &'a Monitor) -> Checker<'a> {
    Checker { origin, failures, monitor, expect: Expect::SameSize }
}
