use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;

/// Where the files are: exactly one of `persistentVolumeClaim` and `remote`.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::source()))]
pub struct SourceEndpoint {
    /// A claim in this cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimReference>,
    /// The far end of a cross-cluster pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
    /// The folder inside the volume whose content is synced. It must be there, and no part of the path may be a
    /// symbolic link. Where the destination's claim has volumeMode Block and this one a file system: the file that is
    /// restored to that device.
    #[serde(default = "root")]
    #[schemars(length(min = 1, max = 4096), extend("x-kubernetes-validations" = rules::folder()))]
    pub path: String,
    /// What a run reads. None: the volume itself, while others may write to it. Snapshot: a VolumeSnapshot of it,
    /// restored into a claim for the time of the run. Clone: a clone of the claim, made for the time of the run.
    #[serde(default)]
    pub point_in_time: PointInTime,
    /// The VolumeSnapshotClass to use with `pointInTime: Snapshot`. Absent: the cluster's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub volume_snapshot_class_name: Option<String>,
    /// Restore: copy a snapshot that is kept on that volume in place of its files: the one with this name or its first
    /// digits, the newest one with this tag, `latest`, or the newest of a time or before, such as
    /// `as-of:2026-11-22T18:00:00Z`. One pod mounts both volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::snapshot()))]
    pub snapshot: Option<String>,
}

/// Where the files are to be: exactly one of `persistentVolumeClaim` and `remote`.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::destination()))]
pub struct DestinationEndpoint {
    /// A claim in this cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimReference>,
    /// The far end of a cross-cluster pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
    /// Make the claim if it is not there. Absent: it must be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create: Option<CreateClaim>,
    /// The folder inside the volume that is made equal to the source's. What is missing of it is made; no part of the
    /// path may be a symbolic link. Where the source's claim has volumeMode Block and this one a file system: the file
    /// that becomes the image of that device.
    #[serde(default = "root")]
    #[schemars(length(min = 1, max = 4096), extend("x-kubernetes-validations" = rules::folder()))]
    pub path: String,
}

/// A PersistentVolumeClaim.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimReference {
    /// The claim's name.
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub claim_name: String,
    /// The claim's namespace. Absent: the SyncJob's. Another one needs a SyncGrant there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), extend("x-kubernetes-validations" = rules::namespace()))]
    pub namespace: Option<String>,
}

/// The claim that is made where none of its name is there.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CreateClaim {
    /// The storage class. Absent: the cluster's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub storage_class_name: Option<String>,
    /// How the volume can be mounted.
    #[serde(default = "read_write_once")]
    #[schemars(length(min = 1, max = 3))]
    pub access_modes: Vec<AccessMode>,
    /// The volume's size, for example `10Gi`. Absent: that of the source's claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = rules::volume_size()))]
    pub size: Option<String>,
}

/// How a volume can be mounted. A destination is always written to, so that `ReadOnlyMany` is not among them.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the modes of core/v1 PersistentVolumeClaim
pub enum AccessMode {
    ReadWriteOnce,
    ReadWriteMany,
    ReadWriteOncePod,
}

/// The far end of a cross-cluster pair: exactly one of `listen` and `dial`.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::remote()))]
pub struct Remote {
    /// This cluster waits for the far end: it makes a Service, and a Secret with all that the far end needs,
    /// named in `status.connectionSecretRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<Listen>,
    /// This cluster reaches out to the far end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dial: Option<Dial>,
}

/// How the far end reaches this one.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Listen {
    /// The kind of Service.
    #[serde(default)]
    pub service_type: ServiceType,
    /// Annotations of the Service, for the load balancer.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    #[schemars(length(max = 32))]
    pub annotations: std::collections::BTreeMap<String, String>,
    /// The host name or address that the far end dials. Absent: what the Service says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub advertise: Option<String>,
}

/// How this end reaches the far one.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Dial {
    /// A Secret in the SyncJob's namespace: the copy of the one that the listening end made.
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub secret_name: String,
    /// `host:port` in place of the Secret's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 261), extend("x-kubernetes-validations" = rules::host_port()))]
    pub address: Option<String>,
}

/// The kind of Service that the listening end gets.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the kinds of core/v1 Service
pub enum ServiceType {
    #[default]
    ClusterIP,
    NodePort,
    LoadBalancer,
}

/// What a run reads.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PointInTime {
    /// The volume itself, while others may write to it.
    #[default]
    None,
    /// A VolumeSnapshot, restored into a claim for the time of the run.
    Snapshot,
    /// A clone of the claim, made for the time of the run.
    Clone,
}

fn root() -> String {
    "/".into()
}

fn read_write_once() -> Vec<AccessMode> {
    vec![AccessMode::ReadWriteOnce]
}
