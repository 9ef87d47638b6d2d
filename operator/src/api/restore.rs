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
    /// First keep the state before the restore in a pinned snapshot with the tag `before-` and the SyncRun's name.
    #[serde(default = "yes")]
    pub safety: bool,
}

fn yes() -> bool {
    true
}
