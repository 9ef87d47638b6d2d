use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bench::BenchFigures,
    bottleneck::Bottleneck,
    busy::BusyAnswer,
    contact::Contact,
    content_hash::DeviceContent,
    folder_request::FolderAccess,
    history::HistoryReport,
    human::plural,
    link::RunLink,
    phase::Phase,
    phase_effort::Efforts,
    planned_action::PlannedAction,
    reason::Reason,
    snapshots::SnapshotReport,
    timings::Timings,
    volume::VolumeId,
    work::{Rates, Usage, Work},
};

/// The number of failures that a report names; [`Work::files_failed`] counts all of them.
pub const MAX_FAILURES: usize = 10;

/// One end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The end that has the files.
    Source,
    /// The end that receives them.
    Sink,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Sink => "sink",
        })
    }
}

/// The result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum RunResult {
    /// The destination has everything of the source that takes part, and with deletes nothing else that does.
    #[default]
    Succeeded,
    /// Some files failed, and all others are as at the source; or only the snapshot that follows failed.
    PartiallyFailed,
    /// The run failed.
    Failed,
    /// The run was stopped on request.
    Canceled,
}

impl RunResult {
    /// Returns whether the run went wrong by itself, wholly or in part.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::PartiallyFailed | Self::Failed)
    }
}

/// One entry that could not be synced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Path relative to the root of the tree; bytes that are not UTF-8 are escaped as `\xNN`.
    pub path: String,
    /// The operation that failed: `read`, `write`, `delete`, …
    pub operation: String,
    /// The error.
    pub error: String,
}

/// The report of a run, which both ends have when it is over.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// The run's name, as given by the program or user that started it.
    pub run: String,
    /// Whether it was a dry run: the report says what would have been changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// How the run ended.
    pub result: RunResult,
    /// A word for programs if the result is not `Succeeded`: `DeleteLimitExceeded`, `PeerLost`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What happened and what to do next, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When the run began, RFC 3339.
    pub start_time: String,
    /// When the run ended, RFC 3339.
    pub completion_time: String,
    /// The destination of a completed run: the next run's `--expect-volume` takes this id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeId>,
    /// Bytes that were free for this user on the destination's file system when the run ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// The content of the device that was written, if its hash was asked for and all of it is as at the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<DeviceContent>,
    /// The link between the two ends, once they had met; absent for a local run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<RunLink>,
    /// Wall time per phase.
    pub timings: Timings,
    /// The bottleneck of a completed run: what it waited for most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<Bottleneck>,
    /// The times of both ends in each phase. They are in report files and logs; a cluster's status has only the
    /// bottleneck.
    #[serde(skip_serializing_if = "Efforts::is_empty")]
    #[schemars(skip)]
    pub efforts: Efforts,
    /// Counts.
    pub work: Work,
    /// Speeds.
    pub rates: Rates,
    /// CPU and memory.
    pub usage: Usage,
    /// The first [`MAX_FAILURES`] failures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Work that was left undone without being a failure, such as ownership that the process may not set; one sentence
    /// for each kind, with a count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The result for the destination's snapshot, if one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotReport>,
    /// The result for the source's snapshots, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryReport>,
    /// The figures of a bench, if the run is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub benchmark: Option<Box<BenchFigures>>,
}

impl Report {
    /// Combines the reports of a run's shards: the sum of their work, the times of the slowest, and the reason of the
    /// one that ended worst. Memory is that of the largest process.
    pub fn of_shards(shards: &[Self]) -> Self {
        let Some(worst) = shards.iter().rev().max_by_key(|report| report.badness()) else {
            return Self::default();
        };
        let slowest = shards.iter().max_by_key(|report| report.timings.total).unwrap_or(worst);
        let times = |of: fn(&Self) -> &String| shards.iter().map(of).filter(|time| !time.is_empty());
        let mut sum = Self {
            start_time: times(|report| &report.start_time).min().cloned().unwrap_or_default(),
            completion_time: times(|report| &report.completion_time).max().cloned().unwrap_or_default(),
            volume: shards.iter().find_map(|report| report.volume),
            free_bytes: shards.iter().filter_map(|report| report.free_bytes).min(),
            timings: slowest.timings,
            bottleneck: slowest.bottleneck.clone(),
            efforts: slowest.efforts.clone(),
            work: Work::default(),
            usage: Usage::default(),
            failures: Vec::new(),
            notes: Vec::new(),
            ..worst.clone()
        };
        for shard in shards {
            sum.work.add(&shard.work);
            sum.usage.add(&shard.usage);
            sum.failures.extend(shard.failures.iter().cloned());
            let new =
                shard.notes.iter().filter(|note| !sum.notes.contains(note)).cloned().collect::<Vec<_>>();
            sum.notes.extend(new);
        }
        sum.failures.truncate(MAX_FAILURES);
        if sum.result == RunResult::PartiallyFailed {
            sum.summarize_failures(sum.work.files_failed);
        }
        sum.fill_rates();
        sum
    }

    /// Ranks the ways in which a shard can end: the worst one names the run's reason. A failure that only follows from
    /// another shard's end ranks below other failures.
    fn badness(&self) -> u8 {
        match self.result {
            RunResult::Succeeded => 0,
            RunResult::PartiallyFailed => 1,
            RunResult::Canceled => 2,
            RunResult::Failed if self.reason == Some(Reason::ShardLost) => 3,
            RunResult::Failed => 4,
        }
    }

    /// Sets the result to [`RunResult::PartiallyFailed`], and names in the message the failures and the deletes that
    /// were kept back. `failed_before_deletes` is the number of entries that had failed by then.
    pub fn summarize_failures(&mut self, failed_before_deletes: u64) {
        self.result = RunResult::PartiallyFailed;
        self.reason = Some(Reason::SomeFilesFailed);
        let failed = match self.work.deletes_kept_back {
            0 => plural(self.work.files_failed, "file failed", "files failed"),
            deletes => {
                let deletes = plural(deletes, "delete", "deletes");
                format!(
                    "{deletes} kept back because {}",
                    plural(failed_before_deletes, "file failed", "files failed")
                )
            }
        };
        self.message = match self.failures.first() {
            Some(Failure { path, operation, error }) => {
                format!("{failed}, first {path}: {operation}: {error}")
            }
            None => failed,
        };
    }

    /// Adds the result for the snapshot. If it failed, the run's result becomes [`RunResult::PartiallyFailed`], with
    /// the reason and the message of the snapshot.
    pub fn add_snapshot(&mut self, snapshot: SnapshotReport) {
        if self.result == RunResult::Succeeded && snapshot.is_failure() {
            self.result = RunResult::PartiallyFailed;
            self.reason.clone_from(&snapshot.reason);
            self.message.clone_from(&snapshot.message);
        }
        if let Some(healed) = snapshot.verify.as_ref().map(|found| found.healed).filter(|healed| *healed > 0)
        {
            self.notes.push(format!("damaged objects of the snapshots healed: {healed}"));
        }
        if snapshot.dropped_for_room > 0 {
            let dropped = plural(snapshot.dropped_for_room, "snapshot was", "snapshots were");
            self.notes
                .push(format!("{dropped} dropped before the new one was taken, because it did not fit"));
        }
        self.snapshot = Some(snapshot);
    }

    /// Adds the result for the snapshots of the source. If not all were copied, the run's result becomes
    /// [`RunResult::PartiallyFailed`].
    pub fn add_history(&mut self, history: HistoryReport) {
        if self.result == RunResult::Succeeded && history.reason.is_some() {
            self.result = RunResult::PartiallyFailed;
            self.reason.clone_from(&history.reason);
            self.message.clone_from(&history.message);
        }
        self.history = Some(history);
    }

    /// Sets [`Rates`] from `work` and `timings`.
    pub fn fill_rates(&mut self) {
        let seconds = (self.timings.total.max(1)) as f64 / 1000.0;
        let files = self.work.files_created.saturating_add(self.work.files_updated);
        self.rates = Rates {
            files_per_second: (files as f64 / seconds).round(),
            bytes_per_second: (self.work.bytes_changed as f64 / seconds).round(),
            wire_ratio: match self.work.bytes_changed {
                0 => 0.0,
                changed => (self.work.bytes_on_wire as f64 / changed as f64 * 1000.0).round() / 1000.0,
            },
        };
    }
}

/// The progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    /// The phase that the end is in.
    pub phase: Phase,
    /// Files whose content has arrived.
    pub files: u64,
    /// Files whose content will arrive; 0 until the plan is made.
    pub files_total: u64,
    /// Bytes of those files that have arrived.
    pub bytes: u64,
    /// Bytes that will arrive; 0 until the plan is made.
    pub bytes_total: u64,
    /// Bytes per second over the last second.
    pub rate: u64,
}

impl Progress {
    /// Combines the progress of a run's shards: the earliest phase, and the sum of their files and bytes.
    pub fn of_shards(shards: &[Self]) -> Self {
        let phase = shards.iter().map(|shard| shard.phase).min().unwrap_or_default();
        let sum =
            |of: fn(&Self) -> u64| shards.iter().map(of).fold(0, |sum: u64, part| sum.saturating_add(part));
        Self {
            phase,
            files: sum(|shard| shard.files),
            files_total: sum(|shard| shard.files_total),
            bytes: sum(|shard| shard.bytes),
            bytes_total: sum(|shard| shard.bytes_total),
            rate: sum(|shard| shard.rate),
        }
    }
}

/// A line on standard output under `--progress json`, and the one line that a listening end always prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "camelCase")]
pub enum Event {
    /// The end listens; `address` has the real port.
    Listening {
        /// `ip:port`
        address: String,
    },
    /// The contact by which the peer finds and recognises this end, which waits for the peer's on its standard input.
    Contact(Contact),
    /// The other end answers, and is busy; again when the place in its queue has changed.
    Waiting(BusyAnswer),
    /// The progress of the run; at most a few times a second.
    Progress(Progress),
    /// A change that a dry run would make, or that a run with itemized changes is about to make.
    Planned(PlannedAction),
    /// The run is over.
    Finished(Box<Report>),
    /// A run of a peer of a service is over; with `--events` only.
    Served(Box<ServedRun>),
}

/// A run of a peer of a service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedRun {
    /// The peer's name.
    pub peer: String,
    /// The folder's name.
    pub folder: String,
    /// The direction.
    pub access: FolderAccess,
    /// The report of the run.
    pub report: Report,
}

/// Returns a moment in the form of reports: RFC 3339, UTC, milliseconds.
pub fn timestamp(time: std::time::SystemTime) -> String {
    jiff::Timestamp::try_from(time).map(|time| format!("{time:.3}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runs_work_is_that_of_all_tries_and_its_tree_that_of_the_last() {
        let first = Work {
            files_scanned: 9,
            files_created: 7,
            files_failed: 2,
            bytes_on_wire: 10,
            ..Work::default()
        };
        let mut last = Work { files_scanned: 8, files_created: 1, bytes_on_wire: 5, ..Work::default() };
        last.add_try(&first);
        assert_eq!(
            (last.files_scanned, last.files_created, last.files_failed, last.bytes_on_wire),
            (8, 8, 0, 15)
        );
        let mut nothing = Work::default();
        nothing.add_try(&first);
        assert_eq!(nothing, first, "a try that never scanned knows nothing of the tree");
        let mut unreadable = Work { files_failed: 1, ..Work::default() };
        unreadable.add_try(&Work::default());
        assert_eq!(unreadable.files_failed, 1, "a try whose source could not be listed");
    }

    fn shard(result: RunResult, reason: &str, total: u64, files: u64) -> Report {
        Report {
            run: "r".into(),
            result,
            reason: (!reason.is_empty()).then(|| reason.into()),
            start_time: format!("2026-01-01T00:00:0{total}.000Z"),
            completion_time: format!("2026-01-01T00:01:0{total}.000Z"),
            timings: Timings { total, ..Timings::default() },
            work: Work { files_created: files, bytes_changed: 10 * files, ..Work::default() },
            usage: Usage { sink_cpu_ms: total, sink_peak_rss: total, ..Usage::default() },
            notes: vec!["the same".into()],
            ..Report::default()
        }
    }

    #[test]
    fn a_runs_report_is_the_sum_of_its_shards_in_the_time_of_the_slowest() {
        let good = RunResult::Succeeded;
        let sum = Report::of_shards(&[shard(good, "", 3, 5), shard(good, "", 8, 6), shard(good, "", 4, 0)]);
        assert_eq!((sum.result, sum.reason.as_deref()), (good, None));
        assert_eq!((sum.timings.total, sum.work.files_created, sum.work.bytes_changed), (8, 11, 110));
        assert_eq!((sum.usage.sink_cpu_ms, sum.usage.sink_peak_rss), (15, 8));
        assert_eq!(sum.start_time, "2026-01-01T00:00:03.000Z");
        assert_eq!(sum.completion_time, "2026-01-01T00:01:08.000Z");
        assert_eq!(sum.notes, ["the same"]);
        assert_eq!(sum.rates.files_per_second, 1375.0);
        assert_eq!(Report::of_shards(&[]), Report::default());
    }

    #[test]
    fn a_run_ended_as_the_shard_that_ended_worst_and_what_only_followed_is_not_the_reason() {
        let of = |ends: &[(RunResult, &str)]| {
            let shards: Vec<_> = ends.iter().map(|(result, reason)| shard(*result, reason, 1, 0)).collect();
            Report::of_shards(&shards).reason.unwrap_or_default()
        };
        let (failed, partly) = (RunResult::Failed, RunResult::PartiallyFailed);
        assert_eq!(of(&[(RunResult::Succeeded, ""), (partly, "SomeFilesFailed")]), "SomeFilesFailed");
        assert_eq!(of(&[(failed, "ShardLost"), (failed, "PeerLost"), (failed, "ShardLost")]), "PeerLost");
        assert_eq!(of(&[(partly, "SomeFilesFailed"), (failed, "ShardLost")]), "ShardLost");
    }
}
