//! Which runs stay in the history of a SyncJob, and what it has of each. Pure.

use contract::{RunKind, RunResult};

use crate::{
    api::{HistoryEntry, Run, RunCause},
    spec::validate::KeptRuns,
};

/// Removes the entries beyond the limits, of which successes and failures have one each. The newest come first.
pub(super) fn shorten(history: &mut Vec<HistoryEntry>, limit: KeptRuns) {
    let (mut succeeded, mut failed) = (limit.succeeded, limit.failed);
    history.retain(|entry| {
        let left = if entry.result == RunResult::Succeeded { &mut succeeded } else { &mut failed };
        let is_kept = *left > 0;
        *left = left.saturating_sub(1);
        is_kept
    });
}

/// Returns what the history has of a run.
pub(super) fn history_entry(run: &Run) -> HistoryEntry {
    HistoryEntry {
        id: run.id.clone(),
        result: run.result,
        reason: run.reason.clone(),
        start_time: run.start_time.clone(),
        completion_time: run.completion_time.clone(),
        kind: is_comparable(run).then(|| RunKind::of(&run.work)),
        files_scanned: run.work.files_scanned,
        files_changed: run.work.changed(),
        files_failed: run.work.files_failed,
        bytes_changed: run.work.bytes_changed,
        bytes_on_wire: run.work.bytes_on_wire,
        timings: run.timings,
    }
}

/// Returns whether the duration of a run can predict that of others.
fn is_comparable(run: &Run) -> bool {
    run.result == RunResult::Succeeded && run.cause != Some(RunCause::Restore)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_keeps_failures_apart_from_successes() {
        let results = [RunResult::Succeeded, RunResult::Failed].into_iter().cycle().take(5);
        let entry =
            |(at, result)| history_entry(&Run { id: format!("web-{}", 5 - at), result, ..Run::default() });
        let mut history: Vec<_> = results.enumerate().map(entry).collect();
        shorten(&mut history, KeptRuns { succeeded: 2, failed: 1 });
        let ids: Vec<&str> = history.iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(ids, ["web-5", "web-4", "web-3"]);
    }
}
