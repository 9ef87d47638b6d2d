use contract::SnapshotEngine;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    endpoint::{DestinationEndpoint, SourceEndpoint},
    files::Files,
    pods::PodSettings,
    rules,
    status::{MAX_PARALLELISM, SyncJobStatus},
    transfer::Transfer,
};

/// What to keep in step with what, when, and how.
#[allow(clippy::duplicated_attributes)] // taken for attributes: the arguments that printer columns have in common
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "volferry.dev",
    version = "v1alpha1",
    kind = "SyncJob",
    plural = "syncjobs",
    namespaced,
    status = "SyncJobStatus",
    shortname = "sj",
    category = "volferry",
    derive = "PartialEq",
    doc = "Keeps the files of one volume in step with another's.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether the last run succeeded"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Last success",
        type_ = "date",
        json_path = ".status.lastSuccessTime",
        description = "How long ago the last successful run ended"
    ),
    // For a date, kubectl would print its age, and `<invalid>` for a time in the future.
    printcolumn(
        name = "Next",
        type_ = "string",
        json_path = ".status.nextRunTime",
        description = "When the next run falls due by the schedule"
    ),
    printcolumn(
        name = "Duration",
        type_ = "string",
        json_path = ".status.summary.duration",
        description = "How long both ends of the last run ran"
    ),
    printcolumn(name = "Suspended", type_ = "boolean", json_path = ".spec.suspend"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Source",
        type_ = "string",
        json_path = ".spec.source.persistentVolumeClaim.claimName",
        description = "The claim that is read",
        priority = 1
    ),
    printcolumn(
        name = "Destination",
        type_ = "string",
        json_path = ".spec.destination.persistentVolumeClaim.claimName",
        description = "The claim that is written",
        priority = 1
    ),
    printcolumn(
        name = "Files",
        type_ = "string",
        json_path = ".status.summary.files",
        description = "Entries changed, of entries at the source, in the last run",
        priority = 1
    ),
    printcolumn(
        name = "Transferred",
        type_ = "string",
        json_path = ".status.summary.transferred",
        description = "Bytes of changed files in the last run",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::spec()))]
pub struct SyncJobSpec {
    /// Where the files are.
    pub source: SourceEndpoint,
    /// Where they are to be.
    pub destination: DestinationEndpoint,
    /// When to run. Absent: once for each change of the spec that matters to a run. A change of `trigger` asks for a
    /// run either way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Any change of this string asks for one more run. Its content means nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub trigger: Option<String>,
    /// Starts no further run while true. A run under way goes on to its end. Times of the schedule that pass
    /// meanwhile are not made up.
    #[serde(default)]
    pub suspend: bool,
    /// Which of the runs that wait has its turn first: those of the highest priority, and of one priority the
    /// namespaces in turns. A run that has started is never stopped for another.
    #[serde(default)]
    #[schemars(range(min = -1000, max = 1000))]
    pub priority: i32,
    /// What a run that falls due by `trigger`, a change of the spec or the schedule does while another is under way.
    /// Forbid: it waits for the other to end. Replace: the other is stopped first, and what it has transferred stays
    /// for the next. A restore in place is never stopped.
    #[serde(default)]
    pub concurrency_policy: ConcurrencyPolicy,
    /// Which files are synced, and what makes them equal.
    #[serde(default)]
    pub files: Files,
    /// How data travels.
    #[serde(default)]
    pub transfer: Transfer,
    /// Keep point-in-time snapshots of the destination, one after each run. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<Snapshots>,
    /// Raise the condition PerformanceRegressed when three comparable runs in a row take longer than usual. Absent:
    /// never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regression: Option<Regression>,
    /// When to give up.
    #[serde(default)]
    pub limits: Limits,
    /// Into how many parts the tree is dealt, each with a pod on either side, all at once. On a claim that is
    /// ReadWriteOnce all pods of a side run on one node; one that is ReadWriteOncePod cannot be shared.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = MAX_PARALLELISM))]
    pub parallelism: i32,
    /// Commands run in a workload's pods around each run, to quiesce and resume it. A command may run twice, if the
    /// operator is restarted meanwhile. The operator needs a right for it: `hooks.enabled` of the chart. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Hooks>,
    /// What becomes of the claim that `destination.create` made when the SyncJob is deleted. Retain: it stays. Delete:
    /// it is deleted too, with all that is on it, snapshots included. A claim that was there before always stays.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// How many runs that ended `status.history` keeps.
    #[serde(default)]
    pub history_limit: HistoryLimit,
    /// Settings of the syncer pods of both ends; `source.pods` and `destination.pods` go over them.
    #[serde(default, skip_serializing_if = "PodSettings::is_empty")]
    pub pods: PodSettings,
}

/// When to run: exactly one of `cron` and `interval`.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::schedule()))]
pub struct Schedule {
    /// Five fields: minute, hour, day of month, month, day of week. Names of months and days, ranges, lists and
    /// steps are read (of months `*/3` only), and so are `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly`.
    /// Where both days are given, a run falls due on either.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128), extend("x-kubernetes-validations" = rules::cron()))]
    pub cron: Option<String>,
    /// Starts a run this long after the last one began, for example `30m`; the first one at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = rules::duration()))]
    pub interval: Option<String>,
    /// The IANA time zone that `cron` is read in, for example `Europe/Berlin`. Absent: UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-validations" = rules::time_zone()))]
    pub time_zone: Option<String>,
    /// Puts off each run by a share of this duration that follows from the job's UID, so that jobs of one schedule
    /// do not all start at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = rules::duration()))]
    pub jitter: Option<String>,
}

/// What a run that falls due does while another is under way.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ConcurrencyPolicy {
    /// It waits for the other to end.
    #[default]
    Forbid,
    /// The other is stopped first.
    Replace,
}

/// Point-in-time snapshots of the destination.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Snapshots {
    /// How content gets into a snapshot. Auto: by clones where the destination's file system has them, else by copies.
    /// Clone: by clones, or not at all. Copy: by copies, where other programs write to the destination.
    #[serde(default)]
    pub engine: SnapshotEngine,
    /// Which snapshots of this SyncJob are kept; its others are removed after each run that succeeds. Snapshots of
    /// other SyncJobs and of people stay, and so do pinned ones. Absent: the last five.
    #[serde(default = "last_five")]
    pub retain: Retain,
    /// Check one part of the volume's snapshots after each run's own, in turn, and heal damage from good copies. Damage
    /// that has none raises the condition Corrupt. Absent: no check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifySnapshots>,
}

/// A check of the snapshots in parts.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct VerifySnapshots {
    /// The number of parts: as many runs check everything.
    #[serde(default = "thirty")]
    #[schemars(range(min = 1, max = 1000))]
    pub parts: i32,
    /// The most bytes that a check reads in a second, for example `50Mi`. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 20), extend("x-kubernetes-validations" = rules::bandwidth()))]
    pub bandwidth_limit: Option<String>,
}

fn thirty() -> i32 {
    30
}

/// How many snapshots are kept; a snapshot kept by any of these counts stays.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = rules::retain()))]
pub struct Retain {
    /// The newest.
    #[schemars(range(min = 0, max = 1000))]
    pub last: i32,
    /// The newest of each of the last hours that have one.
    #[schemars(range(min = 0, max = 1000))]
    pub hourly: i32,
    /// The newest of each of the last days that have one.
    #[schemars(range(min = 0, max = 1000))]
    pub daily: i32,
    /// The newest of each of the last weeks that have one.
    #[schemars(range(min = 0, max = 1000))]
    pub weekly: i32,
    /// The newest of each of the last months that have one.
    #[schemars(range(min = 0, max = 1000))]
    pub monthly: i32,
    /// The newest of each of the last years that have one.
    #[schemars(range(min = 0, max = 1000))]
    pub yearly: i32,
    /// All that were taken so long before the newest, for example `48h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = rules::duration()))]
    pub within: Option<String>,
    /// All that have one of these tags, which people give with `volferry snapshot tag`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 128)))]
    pub tags: Vec<String>,
    /// Of what the other fields keep, or of all without another: the newest that take at most this many bytes together,
    /// for example `10Gi`. Snapshots that are pinned, tagged or within the time stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 20), extend("x-kubernetes-validations" = rules::file_size()))]
    pub max_bytes: Option<String>,
}

/// When a run counts as slower than those before it.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Regression {
    /// How many successful runs of one kind and size the baseline is the median of; at most `historyLimit.succeeded`.
    #[schemars(range(min = 3, max = 50))]
    pub window: i32,
    /// The slowdown to find, as a decimal number in quotes: how many times the usual runs take.
    #[schemars(length(min = 1, max = 8), extend("x-kubernetes-validations" = rules::threshold()))]
    pub threshold: String,
}

impl Default for Regression {
    fn default() -> Self {
        Self { window: 10, threshold: "1.5".into() }
    }
}

/// When to give up.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// The longest that a run may take, retries included, for example `90s`, `10m` or `6h`.
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = rules::duration()))]
    pub timeout: String,
    /// How often a failed run is tried again before it counts as failed.
    #[schemars(range(min = 0, max = 100))]
    pub retries: i32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { timeout: "6h".into(), retries: 3 }
    }
}

/// How many runs that ended are kept, as of a CronJob.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct HistoryLimit {
    /// The newest of those that succeeded.
    #[schemars(range(min = 0, max = 50))]
    pub succeeded: i32,
    /// The newest of all others.
    #[schemars(range(min = 0, max = 50))]
    pub failed: i32,
}

impl Default for HistoryLimit {
    fn default() -> Self {
        Self { succeeded: 10, failed: 5 }
    }
}

/// Commands run around each run.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::hooks()))]
pub struct Hooks {
    /// Before the pods of the run's first try start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Hook>,
    /// After the last try, however the run ended, and also if `before` failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Hook>,
}

/// One command in the pods of a workload.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Hook {
    /// Where the command runs: in one pod after another, in the order of their names.
    pub target: HookTarget,
    /// The command and its arguments; no shell reads them.
    #[schemars(length(min = 1, max = 64), inner(length(max = 4096)))]
    pub command: Vec<String>,
    /// How long the command may take, in all pods together.
    #[serde(default = "one_minute")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = rules::duration()))]
    pub timeout: String,
    /// What a command that fails means for the run. Fail: the run fails; if that is `before`, no pods are started, and
    /// `after` runs. Continue: the run goes on, and an event names the failure.
    #[serde(default)]
    pub on_failure: OnHookFailure,
}

/// The pods that a hook runs in: `before` in all that are ready, `after` in all that run; at most 64.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HookTarget {
    /// Labels of the pods, in the SyncJob's namespace.
    #[schemars(length(min = 1, max = 32))]
    pub match_labels: std::collections::BTreeMap<String, String>,
    /// The container. Absent: the pod's first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub container: Option<String>,
}

/// What a hook that fails means for the run.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnHookFailure {
    /// The run fails.
    #[default]
    Fail,
    /// The run goes on; an event names the failure.
    Continue,
}

/// What becomes of the claim that a SyncJob made when it is deleted.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeletionPolicy {
    /// It stays.
    #[default]
    Retain,
    /// It is deleted too.
    Delete,
}

fn last_five() -> Retain {
    Retain { last: 5, ..Retain::default() }
}

fn one() -> i32 {
    1
}

fn one_minute() -> String {
    "1m".into()
}
