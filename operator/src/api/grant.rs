use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;

/// Which namespaces' SyncJobs may read or write which claims of this namespace.
#[allow(clippy::duplicated_attributes)] // taken for attributes: the arguments that printer columns have in common
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "volferry.dev",
    version = "v1alpha1",
    kind = "SyncGrant",
    plural = "syncgrants",
    namespaced,
    shortname = "sg",
    category = "volferry",
    derive = "PartialEq",
    doc = "The consent of a namespace's owner to SyncJobs of other namespaces.",
    printcolumn(name = "From", type_ = "string", json_path = ".spec.from"),
    printcolumn(name = "Access", type_ = "string", json_path = ".spec.access"),
    printcolumn(name = "Claims", type_ = "string", json_path = ".spec.claimNames"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct SyncGrantSpec {
    /// Whose SyncJobs may use the claims.
    #[schemars(length(min = 1, max = 64))]
    pub from: Vec<GrantSubject>,
    /// What they may do. Read: use the claims as a source. ReadWrite: use them as a source or as a destination.
    pub access: GrantAccess,
    /// The claims of this namespace that are granted. Absent or empty: all.
    #[serde(default)]
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    #[schemars(extend("x-kubernetes-validations" = rules::each_object_name()))]
    pub claim_names: Vec<String>,
}

/// SyncJobs of another namespace.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct GrantSubject {
    /// The namespace that the SyncJobs are in.
    #[schemars(length(min = 1, max = 63), extend("x-kubernetes-validations" = rules::namespace()))]
    pub namespace: String,
    /// One SyncJob of that namespace. Absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub sync_job_name: Option<String>,
}

/// What a grant allows.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GrantAccess {
    /// The claims may be a SyncJob's source.
    #[default]
    Read,
    /// The claims may be a SyncJob's source or destination.
    ReadWrite,
}
