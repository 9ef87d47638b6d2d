use contract::Reason;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, MicroTime};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::rules;

/// Which claims get a SyncJob each, and what these are like.
#[allow(clippy::duplicated_attributes)] // taken for attributes: the arguments that printer columns have in common
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "volferry.dev",
    version = "v1alpha1",
    kind = "SyncJobSet",
    plural = "syncjobsets",
    namespaced,
    status = "SyncJobSetStatus",
    shortname = "sjs",
    category = "volferry",
    derive = "PartialEq",
    doc = "Makes one SyncJob for each claim that a selector matches, and owns them: deleting it deletes them.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether each claim has its SyncJob, and all of these are ready"
    ),
    printcolumn(name = "Matched", type_ = "integer", json_path = ".status.matched"),
    printcolumn(
        name = "Synced",
        type_ = "integer",
        json_path = ".status.synced",
        description = "SyncJobs with a copy whose last run succeeded"
    ),
    printcolumn(name = "Running", type_ = "integer", json_path = ".status.running"),
    printcolumn(name = "Failed", type_ = "integer", json_path = ".status.failed"),
    printcolumn(
        name = "Worst",
        type_ = "string",
        json_path = ".status.worst.name",
        description = "The SyncJob to look at first"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SyncJobSetSpec {
    /// The claims of this namespace that get a SyncJob each. Claims that a SyncJob of this set writes to, and the
    /// temporary ones of runs, never match.
    #[schemars(extend("x-kubernetes-validations" = rules::claim_selector()))]
    pub claim_selector: LabelSelector,
    /// What each SyncJob is like. In all texts but keys and hooks, `{{ .claim.name }}` stands for the claim's name, and
    /// `{{ .claim.labels.KEY }}` for the value of its label KEY; nothing else is replaced.
    pub template: SyncJobTemplate,
    /// How many runs of the set's SyncJobs may be under way at a time; others wait in the queue. Absent: as many as
    /// the operator's limits allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_runs: Option<i32>,
    /// What happens to the SyncJob of a claim that is gone, or does not match any more. Keep: it stays and is
    /// suspended, until the claim matches again. Delete: it is deleted, with the claim that its `destination.create`
    /// made if its own `deletionPolicy` is Delete. One whose claim matches, and which the template gives another name
    /// by now, always stays and is suspended.
    #[serde(default)]
    pub deletion_policy: SetDeletionPolicy,
}

/// What a SyncJob of a set is like.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SyncJobTemplate {
    /// Its name, labels and annotations.
    #[serde(default)]
    pub metadata: TemplateMetadata,
    /// Its spec, in the form of a SyncJob's `spec`, whose schema has its rules. They are checked once for each claim.
    #[schemars(schema_with = "rules::opaque")]
    pub spec: Map<String, Value>,
}

/// The metadata of a set's SyncJobs.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Its name, in which `{{ .claim.name }}` makes it another one for each claim. Absent: the set's name, a dash and
    /// the claim's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub name: Option<String>,
    /// Its labels, besides `volferry.dev/syncjobset`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: BTreeMap<String, String>,
}

/// What happens to the SyncJob of a claim that went away.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SetDeletionPolicy {
    /// It stays, and is suspended.
    #[default]
    Keep,
    /// It is deleted.
    Delete,
}

/// How the SyncJobs of a set stand.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("default" = {"observedGeneration": -1}))]
pub struct SyncJobSetStatus {
    /// The `metadata.generation` that this status is about; -1 until the operator has seen the SyncJobSet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Reconciling and Stalled, by the rules of kstatus.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The number of claims that match.
    #[serde(default)]
    pub matched: i32,
    /// How many of their SyncJobs are ready.
    #[serde(default)]
    pub ready: i32,
    /// How many of them have a copy, and their last run succeeded.
    #[serde(default)]
    pub synced: i32,
    /// How many of them have a run under way.
    #[serde(default)]
    pub running: i32,
    /// How many of them need a person, or their last run failed.
    #[serde(default)]
    pub failed: i32,
    /// The number of SyncJobs that stay although their claim is gone or does not match any more, or the template gives
    /// its SyncJob another name.
    #[serde(default)]
    pub kept: i32,
    /// The SyncJob to look at first. Absent while none has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<WorstJob>,
    /// The VolumeGroupSnapshot from which runs read (`pointInTime.method: Group`). Absent before it is asked for, and
    /// once it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_capture: Option<GroupCapture>,
    /// The first few claims that cannot get their SyncJob, or not as the template says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub problems: Vec<SetProblem>,
}

/// All sources of a set, captured at one instant.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct GroupCapture {
    /// The name of the VolumeGroupSnapshot.
    #[schemars(length(max = 253))]
    pub name: String,
    /// When the last of the runs was ready for it.
    pub begin_time: MicroTime,
    /// The runs that read from it: `name` in `status.activeRun.capture` of each SyncJob.
    #[schemars(length(max = 1000))]
    pub captures: Vec<String>,
}

/// A SyncJob that a person should look at.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct WorstJob {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The reason of its condition, or of its last run.
    #[schemars(length(max = 1024))]
    pub reason: Reason,
    /// What happened, and what to do next.
    pub message: String,
}

/// A claim that cannot get its SyncJob.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SetProblem {
    /// The claim. Absent if the template suits no claim at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub claim: Option<String>,
    /// The name that its SyncJob would have, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub sync_job: Option<String>,
    /// A word for programs.
    #[schemars(length(max = 64))]
    pub reason: Reason,
    /// What stands in the way, and what to do next.
    pub message: String,
}
