use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{pods::EndPodSettings, rules};

/// Where the files are.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SourceEndpoint {
    /// The claim that is read, in the SyncJob's namespace.
    pub persistent_volume_claim: ClaimReference,
    /// The folder inside the volume whose content is synced. It must be there, and no part of the path may be a
    /// symbolic link. Where the destination's claim has volumeMode Block and this one a file system: the file that is
    /// restored to that device.
    #[serde(default = "root")]
    #[schemars(length(min = 1, max = 4096), extend("x-kubernetes-validations" = rules::folder()))]
    pub path: String,
    /// Restore: copy a snapshot that is kept on that volume in place of its files: the one with this name or its first
    /// digits, the newest one with this tag, `latest`, or the newest of a time or before, such as
    /// `as-of:2026-11-22T18:00:00Z`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::snapshot()))]
    pub snapshot: Option<String>,
    /// Settings of the syncer pods of this end, over those in `spec.pods`.
    #[serde(default, skip_serializing_if = "EndPodSettings::is_empty")]
    pub pods: EndPodSettings,
}

/// Where the files are to be.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::destination()))]
pub struct DestinationEndpoint {
    /// The claim that is written, in the SyncJob's namespace.
    pub persistent_volume_claim: ClaimReference,
    /// Make the claim if it is not there. Absent: it must be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create: Option<CreateClaim>,
    /// The folder inside the volume that is made equal to the source's. What is missing of it is made; no part of the
    /// path may be a symbolic link. Where the source's claim has volumeMode Block and this one a file system: the file
    /// that becomes the image of that device.
    #[serde(default = "root")]
    #[schemars(length(min = 1, max = 4096), extend("x-kubernetes-validations" = rules::folder()))]
    pub path: String,
    /// Settings of the syncer pods of this end, over those in `spec.pods`.
    #[serde(default, skip_serializing_if = "EndPodSettings::is_empty")]
    pub pods: EndPodSettings,
}

/// A PersistentVolumeClaim.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimReference {
    /// The claim's name.
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub claim_name: String,
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
    /// Let a claim that is there grow to that size before a run, if its storage class allows expansion; `size` may then
    /// be raised. A claim never shrinks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub grow: bool,
}

/// How a volume can be mounted. A destination is always written to, so that `ReadOnlyMany` is not among them.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the modes of core/v1 PersistentVolumeClaim
pub enum AccessMode {
    ReadWriteOnce,
    ReadWriteMany,
    ReadWriteOncePod,
}

fn root() -> String {
    "/".into()
}

fn read_write_once() -> Vec<AccessMode> {
    vec![AccessMode::ReadWriteOnce]
}
