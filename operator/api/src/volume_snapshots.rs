use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{duration, rules};

/// The VolumeSnapshots of the destination: one after each run that succeeded.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshots {
    /// Which of them are kept. One that a claim is being made from stays until that is done.
    #[serde(default)]
    pub retain: RetainImages,
    /// The class of the VolumeSnapshots. Absent: the driver's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub volume_snapshot_class_name: Option<String>,
    /// How long the storage may take for one. The next run waits meanwhile.
    #[serde(default = "ten_minutes")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = duration::rule()))]
    pub timeout: String,
}

/// How many VolumeSnapshots of a destination are kept.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetainImages {
    /// The newest ones.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 100))]
    pub last: u32,
}

impl Default for RetainImages {
    fn default() -> Self {
        Self { last: three() }
    }
}

impl Default for VolumeSnapshots {
    fn default() -> Self {
        Self { retain: RetainImages::default(), volume_snapshot_class_name: None, timeout: ten_minutes() }
    }
}

fn three() -> u32 {
    3
}

fn ten_minutes() -> String {
    "10m".into()
}
