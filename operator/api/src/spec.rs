use contract::{Side, SnapshotEngine};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    active_run::MAX_PARALLELISM,
    duration,
    ends::{ClaimReference, DestinationEndpoint, SourceEndpoint},
    files::Files,
    pods::PodSettings,
    rules,
    status::SyncJobStatus,
    transfer::Transfer,
};

/// Which volumes to keep in step, when, and how.
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
        description = "Whether the spec is observed and nothing needs a person"
    ),
    printcolumn(
        name = "Synced",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Synced\")].status",
        description = "Whether there is a copy and the last run succeeded"
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
    /// Where the files are copied to.
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
    /// The priority among the runs that wait: the highest comes first, and at equal priority the namespaces take turns.
    /// Above 0, only what the namespace's annotation `volferry.dev/max-priority` allows counts.
    /// A run that has started is never stopped for another.
    #[serde(default)]
    #[schemars(range(min = -1000, max = 1000))]
    pub priority: i32,
    /// What happens if a run falls due by `trigger`, a change of the spec or the schedule while another is under way.
    /// Forbid: the new run waits for the other to end. Replace: the other is stopped first, and what it has transferred
    /// is kept for the new one. A restore in place is never stopped.
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
    /// The number of parts (shards) that the tree is divided into; all are synced at the same time, each by a pod of
    /// its own at either end. With a ReadWriteOnce claim, all pods of that end run on one node; a ReadWriteOncePod
    /// claim cannot be shared.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = MAX_PARALLELISM))]
    pub parallelism: i32,
    /// Commands run in a workload's pods around each run, to quiesce and resume it. A command may run twice, if the
    /// operator is restarted meanwhile. The operator needs a right for it: `hooks.enabled` of the chart. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Hooks>,
    /// What happens to the claim from `destination.create` when the SyncJob is deleted. Retain: the claim stays.
    /// Delete: it is deleted too, with all that is on it, snapshots included. A claim that existed before always stays.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// How many ended runs `status.history` keeps.
    #[serde(default)]
    pub history_limit: HistoryLimit,
    /// Settings of the syncer pods of both ends; `source.pods` and `destination.pods` override or extend them.
    #[serde(default, skip_serializing_if = "PodSettings::is_empty")]
    pub pods: PodSettings,
}

impl SyncJobSpec {
    /// Returns the claims of both ends, the source's first. An end that is an endpoint has none.
    pub fn claims(&self) -> impl Iterator<Item = (Side, &ClaimReference)> {
        let source = self.source.persistent_volume_claim.as_ref().map(|claim| (Side::Source, claim));
        let sink = self.destination.persistent_volume_claim.as_ref().map(|claim| (Side::Sink, claim));
        source.into_iter().chain(sink)
    }

    /// Returns whether one of the ends is no claim.
    pub fn has_remote_end(&self) -> bool {
        let destination = &self.destination;
        self.source.endpoint.is_some() || destination.endpoint.is_some() || destination.object_store.is_some()
    }
}

/// When to run: exactly one of `cron` and `interval`.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::schedule()))]
pub struct Schedule {
    /// Five fields: minute, hour, day of month, month, day of week. Names of months and days, ranges, lists and steps
    /// are accepted (in the month, steps of `*` only, such as `*/3`), and so are `@hourly`, `@daily`, `@weekly`,
    /// `@monthly` and `@yearly`. If both a day of month and a day of week are given, a run falls due on either.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128), extend("x-kubernetes-validations" = rules::cron()))]
    pub cron: Option<String>,
    /// Starts a run this long after the last one began, for example `30m`; the first one at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = duration::rule()))]
    pub interval: Option<String>,
    /// The IANA time zone that `cron` is read in, for example `Europe/Berlin`. Absent: UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-validations" = rules::time_zone()))]
    pub time_zone: Option<String>,
    /// Delays each run by a fraction of this duration that is derived from the job's UID, so that jobs with the same
    /// schedule do not all start at once. An interval becomes longer by that fraction.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = duration::rule()))]
    pub jitter: Option<String>,
    /// Leaves out a run that could not begin this long after its time, for example because the operator was away or
    /// another run of the job took longer: the next time counts. Absent: it is made up for once, however late.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = duration::rule()))]
    pub starting_deadline: Option<String>,
}

/// What happens if a run falls due while another is under way.
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
    /// How content gets into a snapshot. Auto: by clones if the destination's file system supports them, else by
    /// copies. Clone: by clones, or not at all. Copy: by copies, for a destination that other programs write to.
    #[serde(default)]
    pub engine: SnapshotEngine,
    /// Which snapshots of this SyncJob are kept; its others are removed after each run that succeeds. Snapshots of
    /// other SyncJobs and of people stay, and so do pinned ones. Absent: the last five.
    #[serde(default = "last_five")]
    pub retain: Retain,
    /// How many snapshots of this SyncJob stay at least when the next one needs room.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub min_keep: Option<i32>,
    /// After the snapshot of each run, check the next part of the snapshots there, and repair damage from good copies.
    /// Damage that is left raises the condition Corrupt. In an object store that is all damage; the next run sends
    /// again what the claim still has of it. Absent: no check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifySnapshots>,
}

/// A check of the snapshots in parts.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct VerifySnapshots {
    /// The number of parts; it takes this many runs to check everything.
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
    /// How many of the newest snapshots are kept.
    #[schemars(range(min = 0, max = 1000))]
    pub last: i32,
    /// How many of the last hours keep their newest snapshot; hours without a snapshot do not count.
    #[schemars(range(min = 0, max = 1000))]
    pub hourly: i32,
    /// How many of the last days keep their newest snapshot; days without a snapshot do not count.
    #[schemars(range(min = 0, max = 1000))]
    pub daily: i32,
    /// How many of the last weeks keep their newest snapshot; weeks without a snapshot do not count.
    #[schemars(range(min = 0, max = 1000))]
    pub weekly: i32,
    /// How many of the last months keep their newest snapshot; months without a snapshot do not count.
    #[schemars(range(min = 0, max = 1000))]
    pub monthly: i32,
    /// How many of the last years keep their newest snapshot; years without a snapshot do not count.
    #[schemars(range(min = 0, max = 1000))]
    pub yearly: i32,
    /// All snapshots that were taken at most this long before the newest one are kept, for example `48h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = duration::rule()))]
    pub within: Option<String>,
    /// All snapshots that have one of these tags are kept; people assign tags with `volferry snapshot tag`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        inner(length(min = 1, max = 128)),
        extend("x-kubernetes-validations" = rules::tags())
    )]
    pub tags: Vec<String>,
    /// Limits the snapshots that the other fields keep, or all if no other field is set: only the newest that take at
    /// most this many bytes together stay, for example `10Gi`. Pinned snapshots and those kept by `tags` or `within`
    /// always stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 20), extend("x-kubernetes-validations" = rules::file_size()))]
    pub max_bytes: Option<String>,
}

/// When a run counts as slower than those before it.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Regression {
    /// The number of successful runs of one kind and size whose median is the baseline; at most
    /// `historyLimit.succeeded`.
    #[schemars(range(min = 3, max = 50))]
    pub window: i32,
    /// The slowdown to detect, as a decimal number in quotes: `1.5` is one and a half times the usual duration.
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
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = duration::rule()))]
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

/// How many ended runs are kept, as for a CronJob.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct HistoryLimit {
    /// How many of the newest successful runs are kept.
    #[schemars(range(min = 0, max = 50))]
    pub succeeded: i32,
    /// How many of the newest other runs are kept.
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
    /// The command that runs before a run reads its source: once the pods of its first try have found both volumes
    /// free, or with `source.pointInTime` before the capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Hook>,
    /// The command that runs after the last try, however the run ended, and also if `before` failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Hook>,
}

/// One command in the pods of a workload.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Hook {
    /// Where the command runs: in all of these pods at once.
    pub target: HookTarget,
    /// The command and its arguments; no shell reads them.
    #[schemars(length(min = 1, max = 64), inner(length(max = 4096)))]
    pub command: Vec<String>,
    /// How long the command may take, in all pods together.
    #[serde(default = "one_minute")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = duration::rule()))]
    pub timeout: String,
    /// What a failed command means for the run. Fail: the run fails; if the hook is `before`, nothing is synced, and
    /// `after` still runs. Continue: the run goes on, and an event names the failure.
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

/// What happens to the claim that was created for a SyncJob when the SyncJob is deleted.
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
