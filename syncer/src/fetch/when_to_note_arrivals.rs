//! Decides after how many bytes, or how many seconds, the blocks that have arrived of a very large file are noted
//! durably, so that the next run need not read them again.

use std::{
    io,
    time::{Duration, Instant},
};

use crate::{
    delta::checked::{BlockCheck, CheckedBlock, FileVersion},
    destination::{ArrivalLog, Destination, Staged},
};

/// The bytes, and the time, after which arrived blocks are made durable and recorded.
const NOTED_AFTER_BYTES: u64 = 32 << 20;
const NOTED_AFTER: Duration = Duration::from_secs(1);

/// The blocks of one file that have arrived and are not recorded yet.
#[derive(Debug)]
pub(crate) struct Arrivals {
    version: FileVersion,
    file_len: u64,
    log: Option<ArrivalLog>,
    /// Whether a worker has the log, or it could not be written.
    is_taken: bool,
    has_log: bool,
    pending: Vec<CheckedBlock>,
    pending_bytes: u64,
    noted: Instant,
}

/// Blocks that one worker records without holding a lock.
pub(crate) struct Batch {
    version: FileVersion,
    file_len: u64,
    log: Option<ArrivalLog>,
    blocks: Vec<CheckedBlock>,
}

impl Arrivals {
    /// Starts the record of a file whose first frame has this `version`. Durably clears an earlier run's `log` of
    /// another version, because its blocks are about to be overwritten.
    pub(crate) fn begin(
        log: Option<ArrivalLog>,
        version: Option<FileVersion>,
        file_len: u64,
    ) -> io::Result<Option<Self>> {
        let (kept, other): (Vec<_>, Vec<_>) = log.into_iter().partition(|log| version == Some(log.version()));
        other.into_iter().try_for_each(|mut log| log.forget())?;
        let log = kept.into_iter().next();
        Ok(version.map(|version| Self {
            version,
            file_len,
            has_log: log.is_some(),
            log,
            is_taken: false,
            pending: Vec::new(),
            pending_bytes: 0,
            noted: Instant::now(),
        }))
    }

    /// Adds a block of `len` bytes at `offset` that was written. Returns the batch that the calling worker has to
    /// record now.
    pub(crate) fn came(&mut self, offset: u64, len: u64, check: &BlockCheck) -> Option<Batch> {
        if check.version != self.version {
            return None;
        }
        self.pending.push(CheckedBlock { offset, value: check.value });
        self.pending_bytes += len;
        self.due()
    }

    /// Returns the batch that is due, unless a worker records one.
    fn due(&mut self) -> Option<Batch> {
        let is_due = self.pending_bytes >= NOTED_AFTER_BYTES || self.noted.elapsed() >= NOTED_AFTER;
        if self.is_taken || !is_due {
            return None;
        }
        self.is_taken = true;
        self.has_log = true;
        self.pending_bytes = 0;
        let (version, file_len) = (self.version, self.file_len);
        Some(Batch { version, file_len, log: self.log.take(), blocks: std::mem::take(&mut self.pending) })
    }

    /// Takes the log back after a batch was recorded, and returns the one that is due by now. If recording failed, no
    /// more blocks of this file are recorded.
    pub(crate) fn noted(&mut self, log: Option<ArrivalLog>) -> Option<Batch> {
        self.is_taken = log.is_none();
        self.log = log;
        self.noted = Instant::now();
        self.due()
    }

    /// Returns whether blocks of the file may have been recorded.
    pub(crate) fn has_log(&self) -> bool {
        self.has_log
    }
}

impl Batch {
    /// Makes the blocks durable and records them. Returns the log, to be given back.
    pub(crate) fn note(self, tree: &Destination, staged: &Staged) -> io::Result<ArrivalLog> {
        let mut log = match self.log {
            Some(log) => log,
            None => tree.note_arrivals(staged, self.version, self.file_len)?,
        };
        log.add(staged, &self.blocks)?;
        Ok(log)
    }
}
