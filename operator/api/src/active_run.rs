//! The run under way, as a status records it: written before anything is made for the run, so that a restarted operator
//! goes on with the same one.

use std::fmt;

use contract::{BucketUrl, Reason, RunResult, Side, Timings, Usage, Work};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{benchmark::Benchmark, point_in_time::Capture, restore::Restore};

/// The maximum of `spec.parallelism`. The engine allows more, but the reports of all shards have to fit into one
/// status.
pub const MAX_PARALLELISM: u32 = 64;

/// How far a run is. Each stage is recorded before anything is done in it.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It waits for its turn, for its claims, or while the SyncJob is suspended; no objects exist for it.
    #[default]
    Queued,
    /// It has its turn: objects of earlier tries are removed, and it waits for the time of the try.
    Preparing,
    /// The storage captures its source at one instant.
    Capturing,
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
    pub fn reason(self) -> Reason {
        format!("{self:?}").into()
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
    /// When a person created the SyncRun that asks for it, by the API server's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_time: Option<Time>,
    /// How far the run is.
    #[serde(default)]
    pub stage: Stage,
    /// A word for programs about what is in the way of the run; absent while nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What is in the way of the run, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
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
    /// How often the run was put off because another syncer used a volume, or because its pods did not start while
    /// others waited for their turn. That does not count as a retry.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub postponed: i32,
    /// Since when the run has found a volume in use, or its pods have not started; it ends if that lasts for
    /// `spec.limits.timeout`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_since: Option<MicroTime>,
    /// When a run that found a volume in use takes a place again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again_time: Option<MicroTime>,
    /// Whether the run passes the guards, as its SyncRun asks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// The snapshot that the run restores in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore: Option<Restore>,
    /// What the run measures, if it is a benchmark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub benchmark: Option<Benchmark>,
    /// The folder that the run reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<RunFolder>,
    /// The UID of the source's claim when the pods were created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_uid: Option<String>,
    /// The folder that the run writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<RunFolder>,
    /// When the run took its place among the runs that use its claims. Absent while it cannot use that place, because a
    /// claim is missing or the job is suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_time: Option<MicroTime>,
    /// `spec.priority` when the run took its place, as far as the namespace allows it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// The round of the queue in which the run has its turn, so that namespaces take turns; 0 without a limit on runs.
    #[serde(default, skip_serializing_if = "is_first")]
    pub queue_round: i64,
    /// The nodes that the run counts for: those of its volumes when it took its place, and those of its pods. Only with
    /// a limit on the runs of each node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// When the run was started. Absent while it waits for another run, in the queue, or for a volume in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<MicroTime>,
    /// Whether pods of the current try may have been made: the run then keeps its start until they are gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub launched: bool,
    /// When the current try was started; after a failed try, when the next one will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub try_time: Option<MicroTime>,
    /// When the last process of the current try began, or when all were first seen to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods_ready_time: Option<MicroTime>,
    /// What the failed tries did; absent in the first try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier: Option<EarlierTries>,
    /// The hooks that have begun. As long as this is set, `hooks.after` of the spec still has to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hooks: Option<RunHooks>,
    /// The capture of the source. Only with `source.pointInTime`, from its beginning on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<Capture>,
    /// The VolumeSnapshot of the destination. Only with `destination.volumeSnapshots`, once the files are in step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Capture>,
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
    pub reason: Reason,
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
    /// The claim's name; absent for an endpoint.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub claim_name: String,
    /// The endpoint's address without a path, or the place in object storage; absent for a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub address: Option<String>,
    /// The claim's namespace. Absent: the SyncJob's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// The SyncGrant of that namespace by which the claim was used when the run was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub grant: Option<String>,
    /// The folder inside the volume, or below the endpoint's.
    pub path: String,
}

impl fmt::Display for RunFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Some(address) if self.is_object_storage() => write!(f, "object storage {address}"),
            Some(address) => write!(f, "endpoint {address}"),
            None => write!(f, "claim {}", self.claim_name),
        }
    }
}

impl RunFolder {
    /// Returns the folder with the namespace of its claim, given the one of its SyncJob. An endpoint has that one, so
    /// that whoever can guess an address neither holds up the runs of other namespaces nor learns of them.
    pub fn seen_from(&self, namespace: &str) -> Self {
        let namespace = self.namespace.clone().or_else(|| Some(namespace.into()));
        Self { namespace, ..self.clone() }
    }

    /// Returns whether it is a place in object storage.
    pub fn is_object_storage(&self) -> bool {
        self.address.as_ref().is_some_and(|address| address.starts_with(BucketUrl::SCHEME))
    }

    /// Returns whether two folders that are seen from the same namespace are of one claim, or of one endpoint.
    pub fn is_of_same_claim(&self, other: &Self) -> bool {
        let place = |it: &Self| (it.namespace.clone(), it.claim_name.clone(), it.address.clone());
        place(self) == place(other)
    }

    /// Returns whether a file can be in both folders, which are seen from the same namespace.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.is_of_same_claim(other) && parts(&self.path).zip(parts(&other.path)).all(|(a, b)| a == b)
    }
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

impl ActiveRun {
    /// Returns the number of shards, limited to what a spec may ask for, because a pod can write to the status.
    pub fn shard_count(&self) -> u32 {
        u32::try_from(self.shards).unwrap_or(1).clamp(1, MAX_PARALLELISM)
    }

    /// Returns the number of pods of a try.
    pub fn pod_count(&self) -> usize {
        self.shard_count() as usize * self.sides().len()
    }

    /// Returns the folder that the run uses at that end.
    pub fn folder(&self, side: Side) -> Option<&RunFolder> {
        match side {
            Side::Source => self.source.as_ref(),
            Side::Sink => self.destination.as_ref(),
        }
    }

    /// Returns the folders that the run uses, the source's first.
    pub fn folders(&self) -> impl Iterator<Item = &RunFolder> {
        self.source.iter().chain(&self.destination)
    }

    /// Returns the end that is no claim, and has no pod.
    pub fn outside(&self) -> Option<Side> {
        let is_outside = |side: &Side| self.folder(*side).is_some_and(|it| it.address.is_some());
        [Side::Source, Side::Sink].into_iter().find(is_outside)
    }

    /// Returns the ends that have pods of their own. One pod that has both volumes counts as the sink's.
    pub fn sides(&self) -> &'static [Side] {
        match self.outside() {
            _ if self.local => &[Side::Sink],
            Some(Side::Source) => &[Side::Sink],
            Some(Side::Sink) => &[Side::Source],
            None => &[Side::Source, Side::Sink],
        }
    }

    /// Returns the end of the pod of a run that has only one; `None` for a run with pods at both ends.
    pub fn only_side(&self) -> Option<Side> {
        match self.sides() {
            [side] => Some(*side),
            _ => None,
        }
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

    /// Returns whether the run is neither a restore nor a benchmark.
    pub fn is_plain(&self) -> bool {
        self.restore.is_none() && self.benchmark.is_none()
    }

    /// Returns whether the schedule alone asked for the run, and neither a person nor a change of the spec.
    pub fn is_routine(&self) -> bool {
        self.cause == Some(RunCause::Schedule)
    }
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
