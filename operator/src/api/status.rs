use std::collections::BTreeMap;

use contract::{
    BenchFigures, Bottleneck, Failure, Progress, Rates, Report, RunResult, Side, SnapshotReport, Timings,
    Usage, VolumeId, Work,
    regression::{self, RunKind},
};
use k8s_openapi::{
    api::core::v1::LocalObjectReference,
    apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{benchmark::Benchmark, restore::Restore};

/// The maximum of `spec.parallelism`. The engine allows more, but the reports of all shards have to fit into one
/// status.
pub const MAX_PARALLELISM: u32 = 64;

/// The state of a SyncJob. Nothing in it changes merely because time passes.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("default" = {"observedGeneration": -1}))]
pub struct SyncJobStatus {
    /// The `metadata.generation` that this status is about; -1 until the operator has seen the SyncJob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word for people; programs read the conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<SyncJobPhase>,
    /// Ready, Reconciling, Stalled, Incomplete, SnapshotFailed, Corrupt, Restored and PerformanceRegressed, by the
    /// rules of kstatus.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// What the printer columns show of the last run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// The run under way; absent between runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_run: Option<ActiveRun>,
    /// The last run that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_run: Option<Run>,
    /// The last benchmark that ended. It does not count as a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_benchmark: Option<Run>,
    /// Work that the last run to reach its end left undone without failing, one sentence for each kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The runs that ended, newest first, as many as `spec.historyLimit` says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
    /// How long runs usually take, for each kind of run. Only with `spec.regression`, once there are enough runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["kind"]))]
    pub baseline: Vec<Baseline>,
    /// When the last successful run ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success_time: Option<Time>,
    /// The destination of the last successful run. A run onto any other volume is refused; to accept another one,
    /// remove this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<KnownDestination>,
    /// The `fsGroup` of the workloads' pods, as they were last seen. Only with `pods.securityContext.fsGroupFrom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_groups: Option<FsGroups>,
    /// When the next run falls due by the schedule, jitter included, in whole seconds. If the time has passed, the run
    /// waits for something, such as the end of another. Absent without a schedule, while suspended, and while the spec
    /// cannot be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_run_time: Option<Time>,
    /// The value of `spec.trigger` that the last started run answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_trigger: Option<String>,
    /// The snapshots of this job that are kept on the destination, as the last run that took one found them. Only the
    /// volume itself knows its current ones: `volferry snapshot list` shows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<SnapshotStatus>,
    /// `host:port` of the listening end of a cross-cluster pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The Secret with what the far end of a cross-cluster pair needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_secret_ref: Option<LocalObjectReference>,
}

/// One word for what a SyncJob is doing.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SyncJobPhase {
    /// No run has been started yet.
    #[default]
    Pending,
    /// The next run waits for what it needs: a place in the queue, claims, pods.
    Preparing,
    /// A run is under way.
    Running,
    /// The last run succeeded.
    Succeeded,
    /// In the last run some files failed.
    PartiallyFailed,
    /// The last run failed.
    Failed,
    /// The last run was stopped on request.
    Canceled,
    /// No run is started, on request.
    Suspended,
    /// It does not go on until a person acts; the condition Stalled says why.
    Stalled,
}

impl From<RunResult> for SyncJobPhase {
    fn from(result: RunResult) -> Self {
        match result {
            RunResult::Succeeded => Self::Succeeded,
            RunResult::PartiallyFailed => Self::PartiallyFailed,
            RunResult::Failed => Self::Failed,
            RunResult::Canceled => Self::Canceled,
        }
    }
}

/// What printer columns show, readable by people; the numbers are in `lastRun` and `progress`.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// `changed/all`, for example `100/1008`.
    pub files: String,
    /// Bytes of changed files, for example `19.9Mi`.
    pub transferred: String,
    /// How long both ends ran, for example `1.2s`; absent while the run is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
}

/// How far a run is. Each stage is recorded before anything is done in it.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It waits for its turn, for its claims, or while the SyncJob is suspended; no objects exist for it.
    #[default]
    Queued,
    /// It has its turn: objects of earlier tries are removed, and it waits for the time of the try.
    Preparing,
    /// Its pods are created and start.
    Starting,
    /// All its pods run.
    Running,
    /// It has ended, and its objects are being removed.
    Finishing,
    /// It has ended; only its SyncRun is left and, if it failed, its pods.
    Done,
}

impl Stage {
    /// Returns the stage as the reason of a condition.
    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "Queued",
            Self::Preparing => "Preparing",
            Self::Starting => "Starting",
            Self::Running => "Running",
            Self::Finishing => "Finishing",
            Self::Done => "Done",
        }
    }
}

/// Why a run was started.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunCause {
    /// The SyncJob is new, or its spec changed in a way that matters.
    Spec,
    /// A time of the schedule came.
    Schedule,
    /// `spec.trigger` changed.
    Trigger,
    /// The destination's claim was recreated.
    Destination,
    /// A person made a SyncRun.
    Manual,
    /// A person made a SyncRun that restores a snapshot in place.
    Restore,
    /// A person made a SyncRun that measures the volumes.
    Benchmark,
}

/// A run that was started and has not ended. It is recorded before any object is created for it, so that an operator
/// that restarts continues the same run.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRun {
    /// The run's name, `<job>-<number>`, shortened where it would be too long for a label.
    pub id: String,
    /// 1 for a job's first run.
    pub number: i64,
    /// The UID of the run's SyncRun, once that exists. If somebody deletes the SyncRun, the run is canceled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Why the run was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<RunCause>,
    /// How far the run is.
    #[serde(default)]
    pub stage: Stage,
    /// How many pairs of pods share the run, each with a shard of the tree.
    #[serde(default = "one")]
    pub shards: i32,
    /// Whether one pod mounts both volumes, without a network between them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub local: bool,
    /// The number of tries that failed; 0 in the first.
    #[serde(default)]
    pub retries: i32,
    /// The `metadata.generation` that the run was started for.
    pub generation: i64,
    /// A hash of the fields of that generation's spec that matter to a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_hash: Option<String>,
    /// The `spec.trigger` that the run was started for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// How often the run was put off because another syncer used a volume. That does not count as a retry.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub postponed: i32,
    /// The snapshot that the run restores in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore: Option<Restore>,
    /// What the run measures, if it is a benchmark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub benchmark: Option<Benchmark>,
    /// The folder that the run reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<RunFolder>,
    /// The folder that the run writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<RunFolder>,
    /// When the run took its place among the runs that use its claims. Absent while it cannot use that place, because a
    /// claim is missing or the job is suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_time: Option<MicroTime>,
    /// `spec.priority` when the run took its place.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// The round of the queue in which the run has its turn, so that namespaces take turns; 0 without a limit on runs.
    #[serde(default, skip_serializing_if = "is_first")]
    pub queue_round: i64,
    /// The nodes that the run counts for: those of its volumes when it took its place, and those of its pods. Only with
    /// a limit on the runs of each node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// When the run was started, plus the time for which it has found a volume in use since. Absent while it waits for
    /// another run, or in the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<MicroTime>,
    /// When the current try was started; after a failed try, when the next one will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub try_time: Option<MicroTime>,
    /// When the last process of the current try began, or when all were first seen to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods_ready_time: Option<MicroTime>,
    /// What the failed tries did; absent in the first try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier: Option<EarlierTries>,
    /// Set once all ends of the run have reported success: the values in the status that this success replaced. The run
    /// keeps its claims and its place until its pods have ended. If one of them fails after all, the success in
    /// `lastRun` is taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported: Option<Superseded>,
    /// The hooks that have begun. As long as this is set, `hooks.after` of the spec still has to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hooks: Option<RunHooks>,
}

/// The values in the status that a success replaced, to be restored if the success is taken back.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Superseded {
    /// The previous `lastSuccessTime`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success_time: Option<Time>,
    /// The previous `destination`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<KnownDestination>,
}

/// The state of the hooks of a run. Each is recorded before its command starts.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RunHooks {
    /// `hooks.before`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<HookRun>,
    /// `hooks.after`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<HookRun>,
    /// The result of a run whose pods were stopped before `hooks.after` ran; absent if they ended by themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<StoppedRun>,
}

/// The result of a run that the operator stopped.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct StoppedRun {
    /// `Failed` or `Canceled`.
    pub result: RunResult,
    /// A word for programs.
    pub reason: String,
    /// Why the run was stopped.
    pub message: String,
}

/// The state of one hook.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct HookRun {
    /// When the command was first started, or a moment later.
    pub start_time: MicroTime,
    /// When the command had ended in all pods; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<MicroTime>,
    /// Why the hook failed, with the end of what the command printed; absent if it did not fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl HookRun {
    /// Returns a hook that starts at that time.
    pub fn begun(at: jiff::Timestamp) -> Self {
        Self { start_time: MicroTime(at), completion_time: None, failure: None }
    }

    /// Returns whether the command has ended, successfully or not.
    pub fn is_over(&self) -> bool {
        self.completion_time.is_some()
    }
}

/// What the failed tries of a run did, all together.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct EarlierTries {
    /// Wall time of each phase, in milliseconds.
    pub timings: Timings,
    /// What they looked at and changed.
    pub work: Work,
    /// CPU and memory.
    pub usage: Usage,
    /// What they left undone without failing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A folder that a run uses.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RunFolder {
    /// The claim's name.
    pub claim_name: String,
    /// The folder inside the volume.
    pub path: String,
}

impl RunFolder {
    /// Returns whether a file can be in both folders.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.claim_name == other.claim_name && parts(&self.path).zip(parts(&other.path)).all(|(a, b)| a == b)
    }
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

/// The `fsGroup` of the pods that use each claim.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FsGroups {
    /// The `fsGroup` of the pods that use the source's claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<i64>,
    /// The `fsGroup` of the pods that use the destination's claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<i64>,
}

impl FsGroups {
    /// Returns the group for the pods of that end. A copy that no workload uses gets the group of its source.
    pub fn of(self, side: Side) -> Option<i64> {
        match side {
            Side::Source => self.source,
            Side::Sink => self.destination.or(self.source),
        }
    }
}

/// The destination of a successful run.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct KnownDestination {
    /// The claim's name.
    pub claim_name: String,
    /// The claim's UID: a claim that is recreated under the same name is another claim. Absent with `volferry-operator
    /// run`, where a folder takes the place of the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_uid: Option<String>,
    /// The folder inside the volume.
    pub path: String,
    /// The id of the folder, which is stored in its `.volferry/volume`.
    pub volume: VolumeId,
}

impl ActiveRun {
    /// Returns the number of shards, limited to what a spec may ask for, because a pod can write to the status.
    pub fn shard_count(&self) -> u32 {
        u32::try_from(self.shards).unwrap_or(1).clamp(1, MAX_PARALLELISM)
    }

    /// Returns the number of pods of a try.
    pub fn pod_count(&self) -> usize {
        self.shard_count() as usize * if self.local { 1 } else { 2 }
    }

    /// Returns the number of tries before the current one, both failed and postponed ones.
    pub fn past_tries(&self) -> i32 {
        self.retries.saturating_add(self.postponed)
    }

    /// Returns the number of the current try, 1 for the first.
    pub fn try_number(&self) -> i32 {
        self.past_tries().saturating_add(1)
    }

    /// Returns whether the run has had its turn: until then, no objects are created for it.
    pub fn is_started(&self) -> bool {
        self.start_time.is_some()
    }
}

/// How far a run is.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RunProgress {
    /// The run that this is about.
    pub run: String,
    /// How far the run is; with several shards, their sum, in the phase of the shard that is furthest behind.
    #[serde(flatten)]
    pub progress: Progress,
    /// With several shards: how far each is, by its number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shards: BTreeMap<String, ShardProgress>,
}

/// How far one shard of a run is.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ShardProgress {
    /// The run that this is about.
    pub run: String,
    /// How far the shard is.
    #[serde(flatten)]
    pub progress: Progress,
}

/// What the ends of a run reported.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Reports {
    /// The report of the end that has the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Report>,
    /// The report of the end that receives the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sink: Option<Report>,
    /// With several shards: the reports of the two ends of each, by its number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shards: BTreeMap<String, ShardReports>,
    /// For a benchmark: the figures of each end, `source` and `sink`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 2))]
    pub benchmarks: Option<BTreeMap<String, BenchFigures>>,
}

/// What the ends of one shard of a run reported.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ShardReports {
    /// The report of the end that has the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Report>,
    /// The report of the end that receives the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sink: Option<Report>,
}

impl Reports {
    /// Returns the reports with the benchmark figures inserted into the report of their end.
    #[must_use]
    pub fn with_benchmarks(mut self) -> Self {
        let mut found = self.benchmarks.take().unwrap_or_default();
        for (side, report) in [(Side::Source, &mut self.source), (Side::Sink, &mut self.sink)] {
            if let Some(report) = report {
                report.benchmark = found.remove(&side.to_string()).map(Box::new);
            }
        }
        self
    }

    /// Returns the report of one end, in a run of one shard or as that shard of several.
    pub fn of(&self, shard: Option<u32>, side: Side) -> Option<&Report> {
        let (source, sink) = match shard.map(|shard| self.shards.get(&shard.to_string())) {
            None => (&self.source, &self.sink),
            Some(Some(shard)) => (&shard.source, &shard.sink),
            Some(None) => return None,
        };
        match side {
            Side::Source => source.as_ref(),
            Side::Sink => sink.as_ref(),
        }
    }
}

/// A run that ended.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The run's name.
    pub id: String,
    /// 1 for a job's first run.
    #[serde(default)]
    pub number: i64,
    /// The `metadata.generation` that the run was started for.
    #[serde(default)]
    pub generation: i64,
    /// A hash of the fields of that generation's spec that matter to a run: a change of the spec that leaves it the
    /// same asks for no run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_hash: Option<String>,
    /// Why the run was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<RunCause>,
    /// How the run ended.
    pub result: RunResult,
    /// A word for programs when the result is not `Succeeded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What happened, in which file, and what to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How often the run was tried again.
    #[serde(default)]
    pub retries: i32,
    /// When the run began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the run ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Wall time of each phase, in milliseconds, of all tries together. The pauses between tries count as `queue`.
    #[serde(default)]
    pub timings: Timings,
    /// What the last try waited for most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<Bottleneck>,
    /// What the run looked at and changed, in all tries together.
    #[serde(default)]
    pub work: Work,
    /// Speeds, over the time that both ends ran.
    #[serde(default)]
    pub rates: Rates,
    /// CPU and memory.
    #[serde(default)]
    pub usage: Usage,
    /// The first few failures; `work.filesFailed` counts all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Work that was left undone without failing, unless the run before had the same note; `status.notes` has all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The snapshot of the destination, with `spec.snapshots`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotReport>,
    /// The state of the run's hooks, if it got as far as them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hooks: Option<RunHooks>,
    /// What a benchmark found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub benchmark: Option<Box<BenchFigures>>,
}

/// One line on a run that ended.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// The run's name.
    pub id: String,
    /// How the run ended.
    pub result: RunResult,
    /// A word for programs when the result is not `Succeeded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the run began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the run ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// What the run mostly had to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<RunKind>,
    /// Entries found at the source.
    #[serde(default)]
    pub files_scanned: u64,
    /// Entries created, updated and deleted.
    #[serde(default)]
    pub files_changed: u64,
    /// Entries that could not be synced.
    #[serde(default)]
    pub files_failed: u64,
    /// Sum of the sizes of the changed files.
    #[serde(default)]
    pub bytes_changed: u64,
    /// Bytes that crossed the network.
    #[serde(default)]
    pub bytes_on_wire: u64,
    /// Wall time of each phase, in milliseconds, as in `lastRun`.
    #[serde(default)]
    pub timings: Timings,
}

/// How long runs of one kind usually take.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Baseline {
    /// Medians of as many comparable runs as `spec.regression.window` says. They never become slower.
    #[serde(flatten)]
    pub usual: regression::Baseline,
    /// By how much the last three runs of the kind were slower, in words. Absent while they are as usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slower: Option<String>,
}

/// The snapshots of a job that are kept on its destination.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotStatus {
    /// The number of snapshots.
    pub count: i32,
    /// The newest one's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<String>,
    /// Bytes that these snapshots added to the store on the volume.
    #[serde(default)]
    pub bytes: u64,
    /// The newest few, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<KeptSnapshot>,
    /// The number of damaged objects without a good copy that the last check found in the snapshots of all jobs on the
    /// volume. Absent before the first check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damaged: Option<i64>,
}

/// A snapshot on the destination.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct KeptSnapshot {
    /// Its name.
    pub name: String,
    /// When it was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Its tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The rules that keep it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

fn one() -> i32 {
    1
}

fn is_first(round: &i64) -> bool {
    *round == 0
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}
