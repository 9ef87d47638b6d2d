//! Copies of snapshots from one volume to another.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    human::plural,
    parse_error::{ParseParamError, bad},
    reason::Reason,
};

/// The snapshots that are copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CopySelection {
    /// Those that these texts name. They are copied although they were forgotten here.
    Named(Vec<String>),
    /// All that are not forgotten there, without those from before restores.
    All,
    /// Those of [`Self::All`] that come after this one.
    Since(String),
}

/// What a peer asks of the history of a folder of a service, instead of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HistoryRequest {
    /// The snapshots that the service copies from the peer. A peer that reads selects for itself.
    pub selection: CopySelection,
    /// How long the service waits for the lock of its folder, in seconds.
    pub wait_seconds: u64,
}

/// The snapshots of the source that travel with a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum History {
    /// None.
    #[default]
    None,
    /// Those that the rules of the destination's own snapshots keep. Copies of the source's snapshots that these rules
    /// do not keep any more are dropped.
    Kept,
    /// All that are not forgotten at the source, without those from before restores. No rule drops the copies.
    All,
}

impl History {
    /// Returns whether no snapshots travel along.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Kept => "kept",
            Self::All => "all",
        })
    }
}

impl FromStr for History {
    type Err = ParseParamError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "kept" => Ok(Self::Kept),
            "all" => Ok(Self::All),
            _ => Err(bad(text, "none, kept or all")),
        }
    }
}

/// The result of a copy of snapshots into the destination's store.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HistoryReport {
    /// The number of snapshots that the destination did not have.
    pub copied: u64,
    /// The number of snapshots that the destination had.
    pub present: u64,
    /// The number of those in which damaged objects were replaced.
    pub healed: u64,
    /// The number of snapshots that were forgotten at the destination, and stay away.
    pub forgotten: u64,
    /// The number of copies of earlier runs that the rules do not keep any more, and that were dropped.
    pub dropped: u64,
    /// The number of snapshots that are damaged at the source, or cannot be copied for another reason.
    pub failed: u64,
    /// Bytes of contents that the destination lacked.
    pub bytes: u64,
    /// A word for programs if something is missing: `HistoryFailed` or `HistoryNotWhole`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What happened, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl HistoryReport {
    /// Reports that no more snapshots could be copied, because of an error.
    #[must_use]
    pub fn failed_by(mut self, error: &str) -> Self {
        self.reason = Some(Reason::HistoryFailed);
        self.message = format!("the snapshots of the source could not be copied: {error}");
        self
    }

    /// Says what was not copied, of which this is the first.
    pub fn name_first_failed(&mut self, id: &str, error: &str) {
        self.reason = Some(Reason::HistoryNotWhole);
        let failed = plural(self.failed, "snapshot", "snapshots");
        self.message = format!("{failed} of the source could not be copied, first {id}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_nothing_that_this_program_does_not_know() {
        let request = HistoryRequest { selection: CopySelection::Since("v1".into()), wait_seconds: 7 };
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(text, r#"{"selection":{"since":"v1"},"waitSeconds":7}"#);
        assert_eq!(serde_json::from_str::<HistoryRequest>(&text).unwrap(), request);
        assert!(
            serde_json::from_str::<HistoryRequest>(r#"{"selection":"all","waitSeconds":1,"x":2}"#).is_err()
        );
    }
}
