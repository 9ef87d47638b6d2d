use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{duration, rules};

/// How the source is captured at one instant, from which a run then reads.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PointInTime {
    /// Snapshot: a VolumeSnapshot, and a temporary claim made from it. Clone: a temporary claim that is a clone of the
    /// source's. Group: for the SyncJobs of a SyncJobSet, a VolumeGroupSnapshot of all its sources at one instant, once
    /// the runs of all are ready for it, and a temporary claim from the source's snapshot in it. All is gone after the
    /// run.
    pub method: CaptureMethod,
    /// The class of the VolumeSnapshot. Absent: the driver's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub volume_snapshot_class_name: Option<String>,
    /// The class of the VolumeGroupSnapshot, with the method Group. Absent: the driver's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub volume_group_snapshot_class_name: Option<String>,
    /// The storage class of the temporary claim. Absent: that of the source's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub storage_class_name: Option<String>,
    /// How the temporary claim can be mounted. Absent: as the source's, or `ReadOnlyMany` with CephFS, which then needs
    /// no copy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub access_modes: Vec<CaptureAccess>,
    /// How long the capture may take before the run fails: the application may be held by `hooks.before` meanwhile.
    /// With the method Group, waiting for the set's other runs counts.
    #[serde(default = "ten_minutes")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = duration::rule()))]
    pub timeout: String,
}

impl Default for PointInTime {
    fn default() -> Self {
        Self {
            method: CaptureMethod::default(),
            volume_snapshot_class_name: None,
            volume_group_snapshot_class_name: None,
            storage_class_name: None,
            access_modes: Vec::new(),
            timeout: ten_minutes(),
        }
    }
}

/// The way in which a source is captured.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // described at `PointInTime`
pub enum CaptureMethod {
    #[default]
    Snapshot,
    Clone,
    Group,
}

/// How the temporary claim can be mounted.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the modes of core/v1 PersistentVolumeClaim
pub enum CaptureAccess {
    ReadWriteOnce,
    ReadOnlyMany,
    ReadWriteMany,
    ReadWriteOncePod,
}

impl CaptureAccess {
    /// Returns the word of core/v1.
    pub fn word(self) -> &'static str {
        match self {
            Self::ReadWriteOnce => "ReadWriteOnce",
            Self::ReadOnlyMany => "ReadOnlyMany",
            Self::ReadWriteMany => "ReadWriteMany",
            Self::ReadWriteOncePod => "ReadWriteOncePod",
        }
    }
}

/// The capture of a run's source.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Capture {
    /// The name of the temporary claim, and of the VolumeSnapshot that is made for it alone.
    pub name: String,
    /// When the capture began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begin_time: Option<MicroTime>,
    /// When the source was captured; what its application writes from then on is not in the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_time: Option<MicroTime>,
    /// The UID of the VolumeSnapshot, since another may get its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

fn ten_minutes() -> String {
    "10m".into()
}
