//! The JSON schema of what the commands print with `--json`.

use contract::Report;
use schemars::JsonSchema;

use super::{
    copied_json::{CopiedJson, ImportedJson},
    damage_json::{RepairJson, VerifyJson},
    json::{ChangeJson, EventJson, ListedJson, NodeJson, PruneJson, SnapshotJson, VersionJson},
    look_json::{DifferenceJson, FoundJson, StatsJson},
};

/// What each command prints with `--json`.
#[derive(Debug, JsonSchema)]
#[allow(dead_code)] // only its schema is of use
struct Commands {
    create: SnapshotJson,
    list: Vec<ListedJson>,
    show: SnapshotJson,
    tag: Vec<SnapshotJson>,
    untag: Vec<SnapshotJson>,
    pin: Vec<SnapshotJson>,
    unpin: Vec<SnapshotJson>,
    forget: Vec<SnapshotJson>,
    ls: Vec<NodeJson>,
    diff: Vec<ChangeJson>,
    history: Vec<VersionJson>,
    prune: PruneJson,
    verify: VerifyJson,
    repair: RepairJson<'static>,
    restore: Report,
    log: Vec<EventJson>,
    copy: CopiedJson,
    import: ImportedJson,
    status: Vec<DifferenceJson>,
    find: Vec<FoundJson>,
    stats: StatsJson,
}

/// Returns the schema of the output of each command: an object with a property for each command.
pub(super) fn schema() -> schemars::Schema {
    schemars::schema_for!(Commands)
}
