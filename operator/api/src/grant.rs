use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;

/// Which SyncJobs of other namespaces may use which claims of this one, and until when.
#[allow(clippy::duplicated_attributes)] // taken for attributes: the arguments that printer columns have in common
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "volferry.dev",
    version = "v1alpha1",
    kind = "SyncGrant",
    plural = "syncgrants",
    namespaced,
    status = "SyncGrantStatus",
    shortname = "sg",
    category = "volferry",
    derive = "PartialEq",
    doc = "Lets SyncJobs of other namespaces use claims of this one. It owns what runs here for them: deleting it ends their runs.",
    printcolumn(name = "Access", type_ = "string", json_path = ".spec.access"),
    printcolumn(
        name = "Until",
        type_ = "string",
        json_path = ".spec.until",
        description = "When it ends by itself"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct SyncGrantSpec {
    /// The namespaces whose SyncJobs may use the claims.
    #[schemars(length(min = 1, max = 64))]
    pub from: Vec<GrantedNamespace>,
    /// The claims of this namespace that they may use.
    #[schemars(length(min = 1, max = 64))]
    pub claims: Vec<GrantedClaim>,
    /// Read: the claims may be sources. Write: they may be destinations, too; what is on them can be changed and
    /// deleted.
    pub access: GrantAccess,
    /// When the grant ends by itself, for example `2027-01-01T00:00:00Z`. Absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// Namespaces that a grant is for.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::one_of("namespace", "namespaceSelector")))]
pub struct GrantedNamespace {
    /// A namespace's name. If the namespace is deleted and made anew, `status.namespaces` still has the one before, and
    /// the grant is not for the new one until its spec changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), extend("x-kubernetes-validations" = rules::object_name()))]
    pub namespace: Option<String>,
    /// All namespaces with these labels, whoever set them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<GrantSelector>,
}

/// Claims that a grant is for.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::one_of("name", "selector")))]
pub struct GrantedClaim {
    /// A claim's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub name: Option<String>,
    /// All claims with these labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<GrantSelector>,
}

/// Labels that an object must have.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GrantSelector {
    /// The labels and their values, at least one; all must match.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 16))]
    pub match_labels: BTreeMap<String, String>,
}

impl GrantSelector {
    /// Returns whether an object with these labels is selected. An empty selector selects nothing.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        !self.match_labels.is_empty()
            && self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

/// What a grant allows. Each includes those before it.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum GrantAccess {
    /// To read a claim.
    #[default]
    Read,
    /// To read and to write it.
    Write,
}

/// What the operator remembers of a grant.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SyncGrantStatus {
    /// The `metadata.generation` that `namespaces` is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The namespaces that `spec.from` names and whose SyncJobs have used the grant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub namespaces: Vec<KnownNamespace>,
}

/// A namespace as it was when a SyncJob of it first used a grant.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct KnownNamespace {
    /// Its name.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Its UID: a namespace that is made anew under its name is another one.
    #[schemars(length(max = 64))]
    pub uid: String,
}
