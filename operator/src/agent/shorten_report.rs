//! Shortens the report of an end to what the SyncRun and the kubelet keep of it, and writes the termination message.

use std::{fs, path::Path};

use contract::{Efforts, Rates, Report, SnapshotReport};

use crate::api::reports::MAX_REPORT;

/// The maximum length of a termination message that the kubelet reads, in bytes.
const MAX_BYTES: usize = 4096;
/// The length of a shard's report in bytes, so that those of 128 ends fit into an object of 200 KiB. The CRD allows
/// some more ([`MAX_SHARD_REPORT`](crate::api::reports::MAX_SHARD_REPORT)).
const MAX_SHARD_BYTES: usize = 1200;
/// The maximum length of a message that has to be shortened, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Writes the report to the termination log. Fails only if no such file exists, as outside of a pod, and logs that.
pub(super) fn write(log: &Path, report: &Report) {
    let text = serde_json::to_string(&fitted(report.clone(), MAX_BYTES)).unwrap_or_default();
    if let Err(error) = fs::write(log, text) {
        tracing::warn!(%error, log = %log.display(), "no termination message is left");
    }
}

/// Returns the report of an end of a run without shards, as the status takes it.
pub(super) fn of_status(report: Report) -> Report {
    fitted(report, MAX_REPORT)
}

/// Returns the report of one of several shards, shortened so that all fit into one status. Rates are left out, since
/// the operator calculates those of all shards together.
pub(super) fn of_shard(report: Report) -> Report {
    fitted(Report { rates: Rates::default(), ..report }, MAX_SHARD_BYTES)
}

/// Shortens the report so that its JSON has at most `limit` bytes. The threads' efforts are dropped always; then old
/// snapshots, failures from the last on, notes, benchmark figures, and finally the end of the message.
fn fitted(mut report: Report, limit: usize) -> Report {
    report.efforts = Efforts::default();
    while !fits(&report, limit) {
        let snapshot = report.snapshot.as_mut();
        if snapshot.is_some_and(shorten) {
            continue;
        }
        let has_list = report.failures.pop().is_some() || report.notes.pop().is_some();
        if !has_list && report.benchmark.take().is_none() {
            return cut(report, limit);
        }
    }
    report
}

/// Removes one name from the lists of snapshots; returns false if nothing is left to remove.
fn shorten(snapshot: &mut SnapshotReport) -> bool {
    let named = snapshot.verify.as_mut().map(|found| &mut found.files).filter(|files| files.len() > 1);
    snapshot.kept.pop().is_some()
        || snapshot.dropped.pop().is_some()
        || named.is_some_and(|files| files.pop().is_some())
}

fn cut(mut report: Report, limit: usize) -> Report {
    // JSON may take six bytes for one (`\u0000`), so the message is cut until the whole fits.
    let mut room = MAX_MESSAGE_BYTES.min(report.message.len());
    loop {
        report.message.truncate(report.message.floor_char_boundary(room));
        if fits(&report, limit) || room == 0 {
            return report;
        }
        room /= 2;
    }
}

fn fits(report: &Report, limit: usize) -> bool {
    serde_json::to_string(report).is_ok_and(|text| text.len() <= limit)
}

#[cfg(test)]
mod tests {
    use contract::{Failure, RunResult};

    use super::*;

    fn failure(path: String) -> Failure {
        Failure { path, operation: "read".into(), error: "permission denied".into() }
    }

    #[test]
    fn a_small_report_is_whole() {
        let report = Report { failures: vec![failure("a".into())], ..Report::default() };
        assert_eq!(fitted(report.clone(), MAX_BYTES), report);
    }

    #[test]
    fn failures_are_trimmed_first_and_counts_stay() {
        let mut report = Report {
            message: "2 files failed".into(),
            result: RunResult::PartiallyFailed,
            ..Report::default()
        };
        report.work.files_failed = 10;
        report.failures = (0..10).map(|i| failure(format!("{i}{}", "x".repeat(900)))).collect();
        let kept = fitted(report, MAX_BYTES);
        assert!(fits(&kept, MAX_BYTES));
        assert_eq!((kept.failures.len(), kept.work.files_failed), (3, 10));
        assert_eq!(kept.message, "2 files failed");
    }

    #[test]
    fn the_lists_of_snapshots_go_before_failures() {
        let entry = contract::SnapshotEntry { id: "0".repeat(16), ..Default::default() };
        let snapshot = contract::SnapshotReport {
            made: Some(entry.clone()),
            count: 20,
            kept: vec![entry; 20],
            dropped: vec!["1".repeat(16); 20],
            ..Default::default()
        };
        let failures = vec![failure("x".repeat(900)); 2];
        let kept = fitted(Report { failures, snapshot: Some(snapshot), ..Report::default() }, MAX_BYTES);
        let snapshot = kept.snapshot.as_ref().unwrap();
        assert!(fits(&kept, MAX_BYTES) && snapshot.kept.len() < 20);
        assert_eq!((kept.failures.len(), snapshot.made.is_some(), snapshot.count), (2, true, 20));
    }

    #[test]
    fn a_message_of_any_characters_is_cut_to_fit() {
        for unit in ["é", "\u{1}", "x"] {
            let report = Report { message: unit.repeat(9000), ..Report::default() };
            let kept = fitted(report, MAX_BYTES);
            assert!(fits(&kept, MAX_BYTES), "{unit:?}");
            assert!(kept.message.starts_with(unit));
        }
    }
}
