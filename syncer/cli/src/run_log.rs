//! Logs a line for each run.

use contract::{PlannedAction, Report, RunResult};

use syncer::session::Outcome;

/// The module whose lines are logged without `-v`.
pub(super) const RUNS: &str = module_path!();

/// The target of lines that only the log file gets, because the screen has them in another form.
pub(super) const FILE_ONLY: &str = "volferry::log_file";

/// Logs one line with the same fields at the level of the outcome.
macro_rules! line {
    ($outcome:ident, $target:expr, $level:ident, $text:literal) => {{
        let Outcome { report, peer, .. } = $outcome;
        let Report { run, result, reason, message, link, work, timings, .. } = report;
        tracing::$level!(
            target: $target,
            run = Some(run.as_str()).filter(|run| !run.is_empty()),
            peer = peer.map(tracing::field::display),
            link = link.map(tracing::field::display),
            ?result,
            reason = reason.as_deref(),
            cause = Some(message.as_str()).filter(|message| !message.is_empty()),
            created = work.files_created,
            updated = work.files_updated,
            deleted = work.files_deleted,
            failed = work.files_failed,
            skipped = work.files_skipped,
            bytes_changed = work.bytes_changed,
            bytes_on_wire = work.bytes_on_wire,
            total_ms = timings.total,
            $text
        )
    }};
}

/// Logs how a run ended to one target.
macro_rules! ended {
    ($outcome:ident, $target:expr) => {
        match $outcome.report.result {
            RunResult::Succeeded => line!($outcome, $target, info, "the run succeeded"),
            RunResult::Canceled => line!($outcome, $target, warn, "the run was canceled"),
            RunResult::PartiallyFailed => line!($outcome, $target, error, "the run failed in part"),
            RunResult::Failed => line!($outcome, $target, error, "the run failed"),
        }
    };
}

/// Logs how a run ended, with its peer and its counts, so that an end that serves needs no other record.
pub(super) fn log(outcome: &Outcome) {
    ended!(outcome, RUNS);
}

/// Logs how a run ended to the log file only.
pub(super) fn log_to_file(outcome: &Outcome) {
    ended!(outcome, FILE_ONLY);
}

/// Logs one change to one target.
macro_rules! change {
    ($planned:ident, $log:expr) => {{
        let PlannedAction { action, kind, path, from, target, bytes, differs } = $planned;
        let differs = Some(differs).filter(|differs| !differs.is_empty()).map(tracing::field::debug);
        tracing::info!(target: $log, ?action, ?kind, path, from, target, bytes, differs, "a change");
    }};
}

/// Logs one change of a run that shows its changes, or of a dry run.
pub(super) fn log_change(planned: &PlannedAction) {
    change!(planned, RUNS);
}

/// Logs one change to the log file only.
pub(super) fn log_change_to_file(planned: &PlannedAction) {
    change!(planned, FILE_ONLY);
}

/// Logs the first failures of a run, for a log that has not named each file when it failed.
pub(super) fn log_failures(report: &Report) {
    let Report { run, failures, .. } = report;
    for failure in failures {
        tracing::error!(
            run,
            path = failure.path,
            operation = failure.operation,
            error = failure.error,
            "a file failed"
        );
    }
}
