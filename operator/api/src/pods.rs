use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, ResourceRequirements, SELinuxOptions, Toleration,
    TopologySpreadConstraint,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;

/// Settings of the syncer pods of both ends.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PodSettings {
    /// CPU and memory of the syncer container.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = rules::quantities)]
    pub resources: Option<ResourceRequirements>,
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 64))]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tolerations: Vec<Toleration>,
    /// Scheduling constraints, beside those that the volumes impose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// The pods' PriorityClass.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub priority_class_name: Option<String>,
    /// The pods' RuntimeClass.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub runtime_class_name: Option<String>,
    /// How the pods spread over the cluster, where no volume ties them to a node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Labels added to the pods; those of Volferry cannot be replaced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-validations" = rules::labels()))]
    pub labels: BTreeMap<String, String>,
    /// Annotations added to the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-validations" = rules::annotations()))]
    pub annotations: BTreeMap<String, String>,
    /// Secrets to pull the syncer's image with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// The pods' ServiceAccount, to which the operator gives the rights that they need. Absent: one is made for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub service_account_name: Option<String>,
    /// User and groups that the pods run as.
    #[serde(default, skip_serializing_if = "PodSecurity::is_empty")]
    pub security_context: PodSecurity,
}

impl PodSettings {
    /// Returns whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns those of these settings that also hold for pods in another namespace than the SyncJob's: without what
    /// Services, policies, webhooks and quotas of that namespace go by, and without its secrets and accounts.
    #[must_use]
    pub fn abroad(&self) -> Self {
        Self {
            resources: self.resources.clone(),
            node_selector: self.node_selector.clone(),
            tolerations: self.tolerations.clone(),
            affinity: self.affinity.clone(),
            topology_spread_constraints: self.topology_spread_constraints.clone(),
            security_context: self.security_context.clone(),
            ..Self::default()
        }
    }

    /// Returns these settings, completed by those of all SyncJobs, which they override.
    #[must_use]
    pub fn over(&self, common: &CommonPodSettings) -> Self {
        let own = EndPodSettings {
            resources: self.resources.clone(),
            node_selector: self.node_selector.clone(),
            tolerations: self.tolerations.clone(),
            affinity: self.affinity.clone(),
            priority_class_name: self.priority_class_name.clone(),
            runtime_class_name: self.runtime_class_name.clone(),
            topology_spread_constraints: self.topology_spread_constraints.clone(),
            labels: self.labels.clone(),
            annotations: self.annotations.clone(),
        };
        let secrets = common.image_pull_secrets.iter().chain(&self.image_pull_secrets);
        let rest = Self {
            image_pull_secrets: secrets.cloned().collect(),
            service_account_name: self.service_account_name.clone(),
            security_context: self.security_context.clone(),
            ..Self::default()
        };
        rest.with(&common.settings).with(&own)
    }

    /// Returns these settings, overridden by those of one end.
    #[must_use]
    pub fn with(mut self, end: &EndPodSettings) -> Self {
        let EndPodSettings {
            resources,
            node_selector,
            tolerations,
            affinity,
            priority_class_name,
            runtime_class_name,
            topology_spread_constraints,
            labels,
            annotations,
        } = end.clone();
        self.resources = resources.or(self.resources);
        self.affinity = affinity.or(self.affinity);
        self.priority_class_name = priority_class_name.or(self.priority_class_name);
        self.runtime_class_name = runtime_class_name.or(self.runtime_class_name);
        if !topology_spread_constraints.is_empty() {
            self.topology_spread_constraints = topology_spread_constraints;
        }
        self.node_selector.extend(node_selector);
        self.labels.extend(labels);
        self.annotations.extend(annotations);
        self.tolerations.extend(tolerations);
        self
    }
}

/// Settings of the syncer pods of one end, which override or extend those in `spec.pods`. If one pod mounts both
/// volumes, it has the settings of both ends, and the destination's count where the two differ.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EndPodSettings {
    /// CPU and memory of the syncer container, in place of those in `spec.pods`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = rules::quantities)]
    pub resources: Option<ResourceRequirements>,
    /// Labels that a node must have, beside those in `spec.pods`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 64))]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods tolerate, beside those in `spec.pods`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tolerations: Vec<Toleration>,
    /// Scheduling constraints, in place of those in `spec.pods`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// The pods' PriorityClass, in place of that in `spec.pods`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub priority_class_name: Option<String>,
    /// The pods' RuntimeClass, in place of that in `spec.pods`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub runtime_class_name: Option<String>,
    /// How the pods spread over the cluster, in place of that in `spec.pods`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Labels added to the pods, beside those in `spec.pods`; those of Volferry cannot be replaced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-validations" = rules::labels()))]
    pub labels: BTreeMap<String, String>,
    /// Annotations added to the pods, beside those in `spec.pods`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-validations" = rules::annotations()))]
    pub annotations: BTreeMap<String, String>,
}

impl EndPodSettings {
    /// Returns those of these settings that also hold for pods in another namespace than the SyncJob's.
    #[must_use]
    pub fn abroad(&self) -> Self {
        Self {
            priority_class_name: None,
            runtime_class_name: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            ..self.clone()
        }
    }

    /// Returns whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Settings of the syncer pods of all SyncJobs of an operator. They name no user, group or account, because the owner
/// of a namespace decides who runs there.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CommonPodSettings {
    /// Resources, scheduling, labels and annotations.
    #[serde(flatten)]
    pub settings: EndPodSettings,
    /// Secrets to pull the syncer's image with, beside those of a SyncJob.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
}

/// User and groups that the pods run as. All else is fixed by the restricted PodSecurity standard.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PodSecurity {
    /// The user. Absent: 65532, or the one that the cluster assigns to the namespace (OpenShift). 0 needs a namespace
    /// annotated `volferry.dev/privileged-syncers: "true"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub run_as_user: Option<i64>,
    /// The primary group. Absent: 65532, or the one that the cluster assigns; for root, its own group.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub run_as_group: Option<i64>,
    /// The group that owns the destination's files, where the volume's kind supports that. Absent: 65532, or the one
    /// that the cluster assigns, and none for root.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub fs_group: Option<i64>,
    /// Where the group is taken from in place of `fsGroup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_group_from: Option<FsGroupFrom>,
    /// Further groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(range(min = 0, max = 2_147_483_647)))]
    pub supplemental_groups: Vec<i64>,
    /// The SELinux label of the pods, where the nodes use SELinux: `level` is that of the workload whose files are
    /// read, such as `s0:c123,c456`. PodSecurity allows few types and no user or role.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = rules::se_linux()))]
    pub se_linux_options: Option<SELinuxOptions>,
}

/// Where the pods of an end take their `fsGroup` from. Workload: from the pods that use its claim, as they were last
/// seen, so that files need not change their group for a run and back. If no pod uses the destination, its group is the
/// source's. `fsGroup` then only applies to claims that were never seen in use. No effect on pods that run as root.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum FsGroupFrom {
    /// From the pods that use the claim.
    Workload,
}

impl PodSecurity {
    /// Returns whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
