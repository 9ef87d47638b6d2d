//! The phases of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The phase that a running end is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)] // each is described at the field of `Timings` that it is timed in
pub enum Phase {
    #[default]
    Connect,
    Scan,
    Plan,
    Delta,
    Transfer,
    Apply,
    Commit,
    Snapshot,
}

impl Phase {
    /// The number of phases.
    pub const COUNT: usize = Self::Snapshot as usize + 1;
    /// All phases, in their order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Connect,
        Self::Scan,
        Self::Plan,
        Self::Delta,
        Self::Transfer,
        Self::Apply,
        Self::Commit,
        Self::Snapshot,
    ];
}
