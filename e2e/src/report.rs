//! Reports, as the two ends of a run write them.

use contract::{Report, RunResult, Timings, Work};
use k8s_openapi::jiff::Timestamp;

/// Returns the report of a run that has just succeeded.
pub fn good_report(run: &str) -> Report {
    let work =
        Work { files_scanned: 3, files_created: 2, bytes_total: 10, bytes_changed: 10, ..Work::default() };
    let timings = Timings { scan: 2, transfer: 7, commit: 1, total: 10, ..Timings::default() };
    let at = Timestamp::now().to_string();
    Report {
        run: run.into(),
        result: RunResult::Succeeded,
        start_time: at.clone(),
        completion_time: at,
        timings,
        work,
        ..Report::default()
    }
}

/// Returns the report of a run that failed.
pub fn bad_report(run: &str, reason: &str, message: &str) -> Report {
    let failed = Report {
        result: RunResult::Failed,
        reason: Some(reason.into()),
        message: message.into(),
        ..good_report(run)
    };
    Report { work: Work::default(), ..failed }
}
