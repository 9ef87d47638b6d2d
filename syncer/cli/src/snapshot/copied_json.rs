//! What `snapshot copy` and `import` print with `--json`.

use schemars::JsonSchema;
use serde::Serialize;

use super::json::SnapshotJson;
use syncer::snapshot::{SnapshotId, copy::CopiedHistory};

/// What a copy did.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CopiedJson {
    /// The snapshots that TO did not have, or had forgotten and that were named.
    copied: Vec<SnapshotJson>,
    /// The ids of those that it had.
    present: Vec<String>,
    /// The ids of those in which damaged objects were replaced.
    healed: Vec<String>,
    /// The ids of those that were forgotten there, and stay away.
    forgotten: Vec<String>,
    /// Those that cannot be copied.
    failed: Vec<NotCopiedJson>,
    /// Bytes of contents that have crossed.
    bytes: u64,
}

/// A snapshot that was imported.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ImportedJson {
    /// The snapshot.
    #[serde(flatten)]
    pub snapshot: SnapshotJson,
    /// Attributes that were left out, because snapshots keep none of their kind, or their form is not read.
    pub left_out: u64,
}

/// A snapshot that cannot be copied.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NotCopiedJson {
    id: String,
    error: String,
}

impl From<&CopiedHistory> for CopiedJson {
    fn from(done: &CopiedHistory) -> Self {
        let ids = |ids: &[SnapshotId]| ids.iter().map(ToString::to_string).collect();
        let failed = done.failed.iter();
        Self {
            copied: done.copied.iter().map(SnapshotJson::from).collect(),
            present: ids(&done.present),
            healed: ids(&done.healed),
            forgotten: ids(&done.forgotten),
            failed: failed
                .map(|(id, error)| NotCopiedJson { id: id.to_string(), error: error.clone() })
                .collect(),
            bytes: done.bytes,
        }
    }
}
