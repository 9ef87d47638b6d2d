use std::collections::BTreeMap;

use contract::{
    BenchFigures, Bottleneck, ContentHash, Failure, HistoryReport, Progress, PublicKey, Rates, Reason,
    RunKind, RunResult, Side, SnapshotReport, Timings, Usage, VolumeId, Work, regression,
};
use k8s_openapi::{
    api::core::v1::TypedLocalObjectReference,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::active_run::{ActiveRun, RunCause, RunHooks};

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
    /// Ready, Synced, Reconciling, Stalled, Incomplete, OwnersNotKept, SnapshotFailed, SnapshotsGone, Corrupt, Restored
    /// and PerformanceRegressed, by the rules of kstatus.
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
    /// The source's claim of the last successful run. A claim that is made anew under its name stalls the job, until
    /// the annotation `volferry.dev/accept-source` of the SyncJob names its UID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<KnownSource>,
    /// The destination of the last successful run. A run onto any other volume is refused; to accept another one,
    /// annotate the SyncJob with its id: `volferry.dev/accept-volume`.
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
    /// The key by which an endpoint knows this job. Only with `source.endpoint` or `destination.endpoint`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<JobIdentity>,
    /// The names of temporary claims and VolumeSnapshots that runs have made, and that may still exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub captures: Vec<String>,
    /// The VolumeSnapshot of the source's device that the last successful run read, kept for the next one: the storage
    /// lists what changed since. Only where its driver serves that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_base: Option<ChangeBase>,
    /// The newest VolumeSnapshot of the destination, from which a claim can be made (`dataSource`). Only with
    /// `destination.volumeSnapshots`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_image: Option<TypedLocalObjectReference>,
}

/// What the changed blocks of a device are counted from.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ChangeBase {
    /// The name of the VolumeSnapshot.
    pub snapshot: String,
    /// Its UID, since another may get its name.
    pub snapshot_uid: String,
    /// The BLAKE3 hash of the copy after that run. The next run reads only what changed if the destination still has
    /// it.
    pub content_hash: ContentHash,
}

/// The key by which an endpoint knows a job.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct JobIdentity {
    /// The public half, which the other side lists among its peers.
    pub public_key: PublicKey,
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

/// The source of a successful run.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct KnownSource {
    /// The claim's name.
    pub claim_name: String,
    /// The claim's namespace. Absent: the SyncJob's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// The claim's UID: a claim that is recreated under the same name is another claim.
    pub claim_uid: String,
}

/// The destination of a successful run.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct KnownDestination {
    /// The claim's name; absent for an endpoint.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub claim_name: String,
    /// The address of the endpoint; absent for a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub address: Option<String>,
    /// The claim's namespace. Absent: the SyncJob's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// The claim's UID: a claim that is recreated under the same name is another claim. Absent with `volferry-operator
    /// run`, where a folder takes the place of the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_uid: Option<String>,
    /// The folder inside the volume.
    pub path: String,
    /// The id of the folder, which is stored in its `.volferry/volume`.
    pub volume: VolumeId,
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
    /// What an endpoint answers while it lets the run wait for others; absent once it is the run's turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub waiting: Option<String>,
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

/// A run that ended.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The run's name.
    pub id: String,
    /// 1 for a job's first run.
    #[serde(default)]
    pub number: i64,
    /// The UID of the run's SyncRun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
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
    pub reason: Option<Reason>,
    /// What happened, in which file, and what to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether the next run would end the same until a person acts: a check refused this one, the API server refused
    /// its pods, or snapshots are damaged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_person: bool,
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
    /// Bytes that were free on the destination when the run ended there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// The first few failures; `work.filesFailed` counts all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Work that was left undone without failing, unless the run before had the same note; `status.notes` has all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The snapshot of the destination, with `spec.snapshots`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotReport>,
    /// The snapshots of the source that travelled along, with `spec.source.history`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryReport>,
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
    pub reason: Option<Reason>,
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
