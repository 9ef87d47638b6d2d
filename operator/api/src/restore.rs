use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;

/// A restore in place.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Restore {
    /// The snapshot on the destination's volume: the one with this name or these first digits of it, the newest with
    /// this tag, `latest`, or, with `as-of:` and a time, the newest of that time or before, such as
    /// `as-of:2026-11-22T18:00:00Z`.
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::snapshot()))]
    pub snapshot: String,
    /// Only these files and folders of the snapshot, such as `/accounts/2026.csv`; all else stays as it is. Absent: all
    /// of the snapshot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 1024)))]
    #[schemars(extend("x-kubernetes-validations" = rules::restored_paths()))]
    pub paths: Vec<String>,
    /// Before anything changes, keep the state in a snapshot with the tag `before-` and the SyncRun's name. No rule
    /// drops it; a volume keeps the last three.
    #[serde(default = "yes")]
    pub safety: bool,
    /// Restore all that is whole of a damaged snapshot. The rest counts as failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_going: bool,
    /// Restore the owners, set-id bits, capabilities and devices that the snapshot has, although other users can write
    /// to the volume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trust_store: bool,
}

fn yes() -> bool {
    true
}
