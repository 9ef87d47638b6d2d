//! Notes which blocks of a very large file have arrived, while it arrives, so that the next run need not read them
//! again.

use std::{
    io,
    time::{Duration, Instant},
};

use crate::{
    apply::{ArrivalLog, Destination, Staged},
    delta::checked::{BlockCheck, FileVersion},
};

/// After this many bytes, or this time, what has arrived is written to the disk and noted.
const NOTED_AFTER_BYTES: u64 = 32 << 20;
const NOTED_AFTER: Duration = Duration::from_secs(1);

/// The blocks of one file that have arrived and are not noted yet.
#[derive(Debug)]
pub(crate) struct Arrivals {
    version: FileVersion,
    file_len: u64,
    log: Option<ArrivalLog>,
    /// Whether a worker has the log, or it could not be written.
    is_taken: bool,
    has_log: bool,
    pending: Vec<(u64, [u8; 32])>,
    pending_bytes: u64,
    noted: Instant,
}

/// Blocks that are to be noted by one worker, without a lock.
pub(crate) struct Batch {
    version: FileVersion,
    file_len: u64,
    log: Option<ArrivalLog>,
    blocks: Vec<(u64, [u8; 32])>,
}

impl Arrivals {
    /// Begins a file whose first frame has this `version`. What an earlier run noted in `log` is forgotten, durably, if
    /// it is of another version: its blocks are about to be written to.
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

    /// Takes note of a block of `len` bytes at `offset` that was written. Returns what is to be noted now, by the
    /// worker that calls this.
    pub(crate) fn came(&mut self, offset: u64, len: u64, check: &BlockCheck) -> Option<Batch> {
        if check.version != self.version {
            return None;
        }
        self.pending.push((offset, check.value));
        self.pending_bytes += len;
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

    /// Takes the log back after a batch was noted. Where it could not be, no more is noted of this file.
    pub(crate) fn noted(&mut self, log: Option<ArrivalLog>) {
        self.is_taken = log.is_none();
        self.log = log;
        self.noted = Instant::now();
    }

    /// Whether anything of the file may be noted.
    pub(crate) fn has_log(&self) -> bool {
        self.has_log
    }
}

impl Batch {
    /// Notes the blocks, once they are on the disk. Returns the log, to be given back.
    pub(crate) fn note(self, tree: &Destination, staged: &Staged) -> io::Result<ArrivalLog> {
        let mut log = match self.log {
            Some(log) => log,
            None => tree.note_arrivals(staged, self.version, self.file_len)?,
        };
        log.add(staged, &self.blocks)?;
        Ok(log)
    }
}
