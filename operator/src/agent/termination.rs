//! The termination message: the report, cut down to what a kubelet keeps.

use std::{fs, path::Path};

use contract::Report;

/// What a kubelet reads of a termination message.
const MAX_BYTES: usize = 4096;
/// What is left of a message that has to be cut.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Writes the report to the termination log. That fails only where there is none, as outside of a pod.
pub(super) fn write(log: &Path, report: &Report) {
    if let Err(error) = fs::write(log, fitted(report.clone())) {
        tracing::warn!(%error, log = %log.display(), "no termination message is left");
    }
}

/// The report as JSON of at most [`MAX_BYTES`]. Failures go first, the last ones before the others; then
/// notes; then the end of the message.
fn fitted(mut report: Report) -> String {
    loop {
        let text = serde_json::to_string(&report).unwrap_or_default();
        if text.len() <= MAX_BYTES {
            return text;
        }
        if report.failures.pop().is_none() && report.notes.pop().is_none() {
            return cut(report);
        }
    }
}

fn cut(mut report: Report) -> String {
    // JSON may spend six bytes on one (`\u0000`), so the message is cut until the whole fits.
    let mut room = MAX_MESSAGE_BYTES.min(report.message.len());
    loop {
        report.message.truncate(report.message.floor_char_boundary(room));
        let text = serde_json::to_string(&report).unwrap_or_default();
        if text.len() <= MAX_BYTES || room == 0 {
            return text;
        }
        room /= 2;
    }
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
        assert_eq!(serde_json::from_str::<Report>(&fitted(report.clone())).unwrap(), report);
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
        let text = fitted(report);
        let kept: Report = serde_json::from_str(&text).unwrap();
        assert!(text.len() <= MAX_BYTES);
        assert_eq!((kept.failures.len(), kept.work.files_failed), (3, 10));
        assert_eq!(kept.message, "2 files failed");
    }

    #[test]
    fn a_message_of_any_characters_is_cut_to_fit() {
        for unit in ["é", "\u{1}", "x"] {
            let report = Report { message: unit.repeat(9000), ..Report::default() };
            let text = fitted(report);
            assert!(text.len() <= MAX_BYTES, "{}", text.len());
            let kept: Report = serde_json::from_str(&text).unwrap();
            assert!(kept.message.starts_with(unit));
        }
    }
}
