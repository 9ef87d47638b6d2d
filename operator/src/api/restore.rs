use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;

/// A restore in place.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Restore {
    /// The snapshot on the destination's volume: its name or the first digits of that, the newest one with this tag,
    /// `latest`, or the newest of a time or before, such as `as-of:2026-11-22T18:00:00Z`.
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::snapshot()))]
    pub snapshot: String,
    /// Keep the state before in a pinned snapshot with the tag `before-` and the SyncRun's name.
    #[serde(default = "yes")]
    pub safety: bool,
}

fn yes() -> bool {
    true
}
