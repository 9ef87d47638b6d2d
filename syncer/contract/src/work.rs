//! What a run did, how fast, and what it used.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The entries and bytes that a run found and changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Work {
    /// Entries (files, directories, links) found at the source.
    pub files_scanned: u64,
    /// Entries that were not at the destination before.
    pub files_created: u64,
    /// Entries whose content or metadata was changed.
    pub files_updated: u64,
    /// Entries removed from the destination.
    pub files_deleted: u64,
    /// Entries that should have been deleted at the destination but stay, because another entry failed.
    pub deletes_kept_back: u64,
    /// Entries that could not be synced.
    pub files_failed: u64,
    /// Entries of kinds that are never synced (sockets).
    pub files_skipped: u64,
    /// A lower bound of the entries whose copies have another owner or group than at the source, because the sink may
    /// not set it. It follows from the number of entries of each owner at both ends.
    pub owners_not_kept: u64,
    /// Sum of the sizes of the source's files.
    pub bytes_total: u64,
    /// Sum of the sizes of the files whose content was created or updated.
    pub bytes_changed: u64,
    /// Bytes that crossed the network as QUIC packets, both directions; 0 for a local run.
    pub bytes_on_wire: u64,
    /// Bytes of changed files that the destination already held and that were not sent.
    pub bytes_reused: u64,
}

impl Work {
    /// Adds the work of another shard of the run.
    pub(crate) fn add(&mut self, other: &Self) {
        let Self {
            files_scanned,
            files_created,
            files_updated,
            files_deleted,
            deletes_kept_back,
            files_failed,
            files_skipped,
            owners_not_kept,
            bytes_total,
            bytes_changed,
            bytes_on_wire,
            bytes_reused,
        } = self;
        *files_scanned = files_scanned.saturating_add(other.files_scanned);
        *files_created = files_created.saturating_add(other.files_created);
        *files_updated = files_updated.saturating_add(other.files_updated);
        *files_deleted = files_deleted.saturating_add(other.files_deleted);
        *deletes_kept_back = deletes_kept_back.saturating_add(other.deletes_kept_back);
        *files_failed = files_failed.saturating_add(other.files_failed);
        *files_skipped = files_skipped.saturating_add(other.files_skipped);
        *owners_not_kept = owners_not_kept.saturating_add(other.owners_not_kept);
        *bytes_total = bytes_total.saturating_add(other.bytes_total);
        *bytes_changed = bytes_changed.saturating_add(other.bytes_changed);
        *bytes_on_wire = bytes_on_wire.saturating_add(other.bytes_on_wire);
        *bytes_reused = bytes_reused.saturating_add(other.bytes_reused);
    }
}

impl Work {
    /// Returns the number of entries that were created, updated or deleted.
    pub fn changed(&self) -> u64 {
        self.files_created.saturating_add(self.files_updated).saturating_add(self.files_deleted)
    }

    /// Adds the changes of an earlier try of the same run. The counts of the tree and of failures are those of the last
    /// try, or of the earlier one if the last did not get so far.
    pub fn add_try(&mut self, earlier: &Self) {
        let last = *self;
        self.add(earlier);
        let found = if last.files_scanned == 0 && last.files_failed == 0 { earlier } else { &last };
        self.files_scanned = found.files_scanned;
        self.files_failed = found.files_failed;
        self.files_skipped = found.files_skipped;
        self.owners_not_kept = found.owners_not_kept;
        self.bytes_total = found.bytes_total;
    }
}

/// Speeds of a run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Rates {
    /// Created and updated files per second of `total`.
    pub files_per_second: f64,
    /// Changed bytes per second of `total`.
    pub bytes_per_second: f64,
    /// Bytes on the wire for each changed byte.
    pub wire_ratio: f64,
}

/// The CPU time and memory that a run used. Figures that are not known are 0: a service has runs of several peers in
/// one process, and measures none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// CPU time of the source's process, in milliseconds.
    pub source_cpu_ms: u64,
    /// CPU time of the sink's process, in milliseconds.
    pub sink_cpu_ms: u64,
    /// Peak resident memory of the source's process, in bytes.
    pub source_peak_rss: u64,
    /// Peak resident memory of the sink's process, in bytes.
    pub sink_peak_rss: u64,
}

impl Usage {
    /// Adds the usage of another shard or an earlier try of the run.
    pub fn add(&mut self, other: &Self) {
        self.source_cpu_ms = self.source_cpu_ms.saturating_add(other.source_cpu_ms);
        self.sink_cpu_ms = self.sink_cpu_ms.saturating_add(other.sink_cpu_ms);
        self.source_peak_rss = self.source_peak_rss.max(other.source_peak_rss);
        self.sink_peak_rss = self.sink_peak_rss.max(other.sink_peak_rss);
    }
}
