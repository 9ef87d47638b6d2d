//! Which kind of work a run mostly had to do, by its counts. Runs of different kinds are not compared. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::work::Work;

/// The kind of work that a run mostly had to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RunKind {
    /// At least half of the source's entries were new at the destination.
    First,
    /// Something was changed.
    Changed,
    /// Nothing was changed.
    Unchanged,
}

impl RunKind {
    /// Returns the kind of a run by its counts.
    pub fn of(work: &Work) -> Self {
        match work.changed() {
            0 => Self::Unchanged,
            _ if work.files_created.saturating_mul(2) >= work.files_scanned => Self::First,
            _ => Self::Changed,
        }
    }
}
