use std::collections::BTreeMap;

use contract::Contact;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference};
use kube::{CustomResource, Resource as _};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    active_run::{MAX_PARALLELISM, RunCause, RunFolder, RunHooks, Stage},
    benchmark::Benchmark,
    reports::{self, Reports},
    restore::Restore,
    rules,
    spec::{SyncJob, SyncJobSpec},
    status::{JobIdentity, Run, RunProgress, Summary},
};

/// One run of a SyncJob, as it was requested at its start. It does not change afterwards.
#[allow(clippy::duplicated_attributes)] // taken for attributes: the arguments that printer columns have in common
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "volferry.dev",
    version = "v1alpha1",
    kind = "SyncRun",
    plural = "syncruns",
    namespaced,
    status = "SyncRunStatus",
    shortname = "sr",
    category = "volferry",
    derive = "PartialEq",
    doc = "One run of a SyncJob. The operator makes one for each run that falls due; one that a person makes asks for a run now.",
    printcolumn(name = "SyncJob", type_ = "string", json_path = ".spec.syncJob.name"),
    printcolumn(name = "Cause", type_ = "string", json_path = ".spec.cause"),
    printcolumn(name = "Stage", type_ = "string", json_path = ".status.stage"),
    printcolumn(name = "Result", type_ = "string", json_path = ".status.report.result"),
    printcolumn(
        name = "Files",
        type_ = "string",
        json_path = ".status.summary.files",
        description = "Entries changed, of entries at the source"
    ),
    printcolumn(
        name = "Transferred",
        type_ = "string",
        json_path = ".status.summary.transferred",
        description = "Bytes of changed files"
    ),
    printcolumn(
        name = "Duration",
        type_ = "string",
        json_path = ".status.summary.duration",
        description = "How long both ends ran"
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
#[schemars(extend("x-kubernetes-validations" = rules::run()))]
pub struct SyncRunSpec {
    /// The SyncJob of this run, in the same namespace. A person who creates a SyncRun writes only this field and, where
    /// wanted, `force`, `restore` or `benchmark`.
    pub sync_job: SyncJobReference,
    /// Let the guards pass in this run: it deletes more than `files.deleteLimit`, also where the source is empty, and
    /// replaces newer files by older ones or a file by one of another name. Look first whether the right volumes are
    /// mounted. What the owner of a destination demands in a SyncGrant or at an endpoint still holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Bring the destination back to one of its own snapshots, in place of a run from the source. Afterwards the
    /// SyncJob starts no run until a person resumes it; its condition Restored says how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore: Option<Restore>,
    /// Measure how fast files get from the source's volume to the destination's, in place of a run: with generated
    /// files in folders of their own, which are removed afterwards. The result is in `status.report.benchmark`; it does
    /// not count as one of the SyncJob's runs, nor for its history and baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub benchmark: Option<Benchmark>,
    /// Why the run was started. Filled in by the operator, as are `number`, `job`, `source`, `destination` and `local`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<RunCause>,
    /// 1 for a job's first run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<i64>,
    /// The SyncJob's spec at the start, in the form of a SyncJob's `spec`, whose schema has its rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::opaque")]
    pub job: Option<SyncJobSpec>,
    /// The folder that the run reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<RunFolder>,
    /// The folder that the run writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<RunFolder>,
    /// Whether one pod has both volumes, so that there is no network between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<bool>,
}

/// A SyncJob of the same namespace.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SyncJobReference {
    /// Its name.
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub name: String,
    /// Its UID; filled in by the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub uid: Option<String>,
    /// The `metadata.generation` of the SyncJob that the run was started for; filled in by the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}

/// The state of a SyncRun. The run's pods write `contacts`, `free`, `identity`, `progress`, `summary`, `ends` and the
/// stage `Running`, from which the operator only decides how the run's own try ended; it writes all other fields
/// itself. A new SyncRun already has the fields that the pods of its first try write into, so that the operator need
/// not add them.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend(
    "default" = {"observedGeneration": -1, "stage": "Queued", "try": 1, "contacts": {}, "free": {}, "ends": {}},
    "x-kubernetes-validations" = rules::run_status(),
))]
pub struct SyncRunStatus {
    /// The `metadata.generation` that the conditions are about; -1 until the operator has seen the SyncRun.
    #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How far the run is. The status of a run that is `Done` can no longer be changed by anyone.
    #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// Ready, Reconciling and Stalled, by the rules of kstatus.
    #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The number of the current try. The run's pods name it in all that they write, so that pods of an earlier try
    /// cannot write any more.
    #[serde(
        rename = "try",
        default,
        deserialize_with = "if_readable",
        skip_serializing_if = "Option::is_none"
    )]
    pub try_number: Option<i32>,
    /// The number of tries that failed.
    #[serde(default, deserialize_with = "if_readable")]
    pub retries: i32,
    /// The addresses and keys by which the ends of the current try find and recognise each other: `source` and `sink`,
    /// or with the shard's number `source-0`, `sink-0` and so on. Each pod writes its own entry once, and trusts the
    /// entry of its peer.
    #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 2 * MAX_PARALLELISM, "x-kubernetes-validations" = rules::contacts()))]
    pub contacts: Option<BTreeMap<String, Contact>>,
    /// The ends of the current try, named as in `contacts`, that found their volumes free and wait for `hooks.before`.
    #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 2 * MAX_PARALLELISM))]
    pub free: Option<BTreeMap<String, bool>>,
    /// The key by which the pod of the run makes itself known to an endpoint; the pod writes its public half.
    #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    pub identity: Option<JobIdentity>,
    /// How far the try under way is.
    #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub progress: Option<RunProgress>,
    /// What the printer columns show.
    #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// The state of the run's hooks.
    #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    pub hooks: Option<RunHooks>,
    /// What the ends of the try under way reported, as JSON, named as in `contacts`.
    #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "reports::schema")]
    pub ends: Option<Reports>,
    /// The result of the run, as `status.lastRun` of the SyncJob had it when the run ended.
    #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    pub report: Option<Run>,
}

/// Reads a field that a pod may write, as absent if it is not of its type: no pod can make its SyncRun unreadable.
fn if_readable<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(from: D) -> Result<T, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).unwrap_or_default())
}

impl SyncRun {
    /// Returns whether a SyncJob of that UID owns this SyncRun.
    pub fn is_of(&self, job_uid: &str) -> bool {
        let owners = self.metadata.owner_references.iter().flatten();
        owners.filter(|owner| owner.kind == SyncJob::kind(&())).any(|owner| owner.uid == job_uid)
    }

    /// Returns whether a person created this SyncRun, and no run has started for it.
    pub fn is_asked_for(&self) -> bool {
        self.metadata.owner_references.iter().flatten().next().is_none()
            && self.spec.number.is_none()
            && self.metadata.deletion_timestamp.is_none()
    }

    /// Returns whether this SyncRun has the record of a run that has ended.
    pub fn has_ended(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.report.is_some())
    }

    /// Returns whether this SyncRun outlives its SyncJob, for its hook `after`: then its namespace owns it, too.
    pub fn is_held(&self) -> bool {
        self.metadata.owner_references.iter().flatten().any(is_namespace)
    }

    /// Returns the time of creation.
    pub fn created(&self) -> Option<Timestamp> {
        self.metadata.creation_timestamp.as_ref().map(|time| time.0)
    }
}

/// Returns whether an owner is the namespace.
pub fn is_namespace(owner: &OwnerReference) -> bool {
    owner.api_version == "v1" && owner.kind == "Namespace"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_value_that_a_pod_writes_makes_a_run_unreadable() {
        let odd = [
            ("retries", json!(4_294_967_296_u64)),
            ("try", json!("2")),
            ("stage", json!("Dreaming")),
            ("observedGeneration", json!(1e300)),
            ("conditions", json!([{"type": "Ready", "lastTransitionTime": "2026-11-22T00:00:00+99:99"}])),
            ("contacts", json!({"sink": 7})),
            ("free", json!(["sink"])),
            ("identity", json!({"publicKey": "no key"})),
            ("progress", json!({"run": "web-1", "files": -1})),
            ("summary", json!([])),
            ("hooks", json!({"before": {"startTime": "soon"}})),
            ("ends", json!(["sink"])),
            ("report", json!(7)),
        ];
        let mut whole = json!({});
        for (field, value) in odd {
            whole[field] = value;
        }
        let spec = json!({"syncJob": {"name": "web"}});
        let run: SyncRun = serde_json::from_value(json!({
            "apiVersion": "volferry.dev/v1alpha1", "kind": "SyncRun", "metadata": {"name": "web-1"},
            "spec": spec, "status": whole,
        }))
        .unwrap();
        assert_eq!(run.status, Some(SyncRunStatus::default()));
        let fields = serde_json::to_value(schemars::schema_for!(SyncRunStatus)).unwrap();
        for field in fields["properties"].as_object().unwrap().keys() {
            assert!(!whole[field].is_null(), "status.{field} has no odd value here");
        }
    }
}
