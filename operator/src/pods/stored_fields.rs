//! The Jobs and pods of runs with the fields that the controller reads, since its stores hold some of each SyncJob. In
//! Kubernetes' own types, the fields that are left empty would take most of the room.

use k8s_openapi::{
    api::{
        batch::v1 as batch,
        core::v1::{self as core, ContainerState, PersistentVolumeClaimVolumeSource},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Resource, api::ObjectMeta};
use serde::Deserialize;

/// A Job.
#[derive(Resource, Deserialize, Debug, Clone, Default)]
#[resource(inherit = "batch::Job")]
#[serde(default)]
pub struct Job {
    /// Its name, labels and owners.
    pub metadata: ObjectMeta,
    /// The pods that it makes.
    pub spec: Option<JobSpec>,
    /// How it ended.
    pub status: Option<JobStatus>,
}

/// The pods that a Job makes.
#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default)]
pub struct JobSpec {
    /// Their template.
    pub template: PodTemplate,
}

/// The template of a Job's pods.
#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default)]
pub struct PodTemplate {
    /// Their spec.
    pub spec: Option<PodSpec>,
}

/// How a Job ended.
#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default, rename_all = "camelCase")]
pub struct JobStatus {
    /// Whether it is over.
    pub conditions: Option<Vec<Condition>>,
    /// The indexes of the pods that succeeded.
    pub completed_indexes: Option<String>,
    /// The indexes of the pods that failed.
    pub failed_indexes: Option<String>,
}

/// A condition of a Job or a pod.
#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// A word for programs.
    pub reason: Option<String>,
    /// A sentence for people.
    pub message: Option<String>,
    /// When `status` changed.
    pub last_transition_time: Option<Time>,
}

/// A pod.
#[derive(Resource, Deserialize, Debug, Clone, Default)]
#[resource(inherit = "core::Pod")]
#[serde(default)]
pub struct Pod {
    /// Its name, labels and owners.
    pub metadata: ObjectMeta,
    /// Where it runs, and with which volumes.
    pub spec: Option<PodSpec>,
    /// Its state.
    pub status: Option<PodStatus>,
}

/// Where a pod runs, and with which volumes.
#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// Its containers.
    pub containers: Vec<Container>,
    /// Its node, once it has one.
    pub node_name: Option<String>,
    /// Its service account.
    pub service_account_name: Option<String>,
    /// Its volumes.
    pub volumes: Option<Vec<Volume>>,
}

/// A container of a pod.
#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default)]
pub struct Container {
    /// Its image.
    pub image: Option<String>,
}

/// A volume of a pod.
#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default, rename_all = "camelCase")]
pub struct Volume {
    /// The claim that it mounts, if any.
    pub persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
}

/// The state of a pod.
#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    pub phase: Option<String>,
    /// Why it failed, as a word for programs.
    pub reason: Option<String>,
    /// Why it failed, as a sentence for people.
    pub message: Option<String>,
    /// Whether it has a node, and is being disrupted.
    pub conditions: Option<Vec<Condition>>,
    /// The states of its containers.
    pub container_statuses: Option<Vec<ContainerStatus>>,
}

/// The state of a container.
#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default)]
pub struct ContainerStatus {
    /// The container's name.
    pub name: String,
    /// Its present state.
    pub state: Option<ContainerState>,
}
