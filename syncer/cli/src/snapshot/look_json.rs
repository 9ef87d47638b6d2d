//! What `snapshot status`, `find` and `stats` print with `--json`.

use schemars::JsonSchema;
use serde::Serialize;

use super::json::VersionJson;

/// A path where the volume's files differ from a snapshot.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DifferenceJson {
    /// `added`, `removed`, `modified` or `metadata`, from the snapshot to the volume.
    pub change: &'static str,
    /// Its path.
    pub path: String,
    /// Its kind.
    pub kind: &'static str,
}

/// A path that matches a pattern.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct FoundJson {
    /// The path.
    pub path: String,
    /// Its versions, the oldest first.
    pub versions: Vec<VersionJson>,
}

/// What a store takes.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatsJson {
    /// Each snapshot, the oldest first, also forgotten ones.
    pub snapshots: Vec<SnapshotStatsJson>,
    /// Bytes of all objects that snapshots refer to, each once.
    pub bytes: u64,
    /// Bytes of all files of all snapshots, as if each were alone.
    pub file_bytes: u64,
}

/// What a snapshot takes.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SnapshotStatsJson {
    /// The snapshot.
    pub id: String,
    /// Bytes that it added to the store when it was taken or copied.
    pub added_bytes: u64,
    /// Bytes of what it refers to.
    pub bytes: u64,
    /// Bytes of what it shares with other snapshots.
    pub shared_bytes: u64,
    /// Bytes of what only it refers to: about what removing it alone would free.
    pub own_bytes: u64,
}
