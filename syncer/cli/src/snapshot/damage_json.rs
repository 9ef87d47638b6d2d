//! The JSON output about damage: what a check found, and what a repair does about it.

use bucket::StoreRepairStep;
use schemars::JsonSchema;
use serde::Serialize;

use syncer::snapshot::{
    SnapshotId,
    check::{ListDamage, RepairStep, StoreShare, Verified},
};

/// What a check found.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct VerifyJson {
    /// The part of the contents that was read, as `N/M`; `1/1` for all.
    pub part: String,
    /// Objects that were checked.
    pub objects: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// The objects that are damaged.
    pub damaged: Vec<DamageJson>,
    /// The snapshots that need a damaged object without a good copy.
    pub snapshots: Vec<String>,
    /// Places of the list of snapshots that cannot be read, and that its copy does not have.
    pub damaged_records: u64,
    /// Damage of the list of snapshots by which none is lost: `list`, `onlyCopy` or `copy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<&'static str>,
    /// Whether the list and its copy were written anew.
    pub list_healed: bool,
    /// The first line of the audit log that does not fit what is before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit_broken_at: Option<u64>,
}

/// A damaged object.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DamageJson {
    /// Where it is.
    pub object: String,
    /// What is wrong with it.
    pub error: String,
    /// How many files and directories need it.
    pub count: u64,
    /// Their paths.
    pub files: Vec<DamagedFileJson>,
    /// What it was put right from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healed_from: Option<String>,
}

/// A file or directory that needs a damaged object.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DamagedFileJson {
    /// The snapshot.
    pub snapshot: String,
    /// The path in it.
    pub path: String,
    /// The last of the snapshots after it in the list that need the object at the same path.
    pub last: String,
    /// The number of these snapshots.
    pub snapshots: u64,
}

impl VerifyJson {
    pub(super) fn new(part: StoreShare, verified: &Verified, snapshots: &[SnapshotId]) -> Self {
        let damaged = verified.damaged.iter().map(|damage| DamageJson {
            object: damage.object.clone(),
            error: damage.error.clone(),
            count: damage.count,
            files: damage
                .files
                .iter()
                .map(|file| DamagedFileJson {
                    snapshot: file.first.to_string(),
                    path: file.path.to_string(),
                    last: file.last.to_string(),
                    snapshots: file.snapshots,
                })
                .collect(),
            healed_from: damage.healed_from.clone(),
        });
        Self {
            part: part.to_string(),
            objects: verified.objects,
            bytes: verified.bytes,
            damaged: damaged.collect(),
            snapshots: snapshots.iter().map(ToString::to_string).collect(),
            damaged_records: verified.damaged_records,
            list: verified.list.map(|list| match list {
                ListDamage::List => "list",
                ListDamage::OnlyCopy => "onlyCopy",
                ListDamage::Copy => "copy",
            }),
            list_healed: verified.is_list_healed,
            audit_broken_at: verified.audit_broken_at,
        }
    }
}

/// What a repair did, or would do.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RepairJson<'a> {
    /// Whether it was carried out.
    pub applied: bool,
    /// What it does, in this order.
    pub steps: &'a [RepairStepJson],
}

/// A step of a repair.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RepairStepJson {
    /// `bringBack`, `leaveOut`, `forget`, `writeList` or `newLog`; of object storage `beginList`, `olderList`,
    /// `writeIndexes` or `notWhole`.
    pub step: &'static str,
    /// The snapshot that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The same as a sentence.
    pub message: String,
}

impl From<&RepairStep> for RepairStepJson {
    fn from(step: &RepairStep) -> Self {
        let (name, snapshot) = match step {
            RepairStep::BringBack(id, _) => ("bringBack", Some(*id)),
            RepairStep::LeaveOut(id, _) => ("leaveOut", Some(*id)),
            RepairStep::Forget(id) => ("forget", *id),
            RepairStep::WriteList(_) => ("writeList", None),
            RepairStep::NewLog(_) => ("newLog", None),
        };
        let snapshot = snapshot.map(|id| id.to_string());
        Self { step: name, snapshot, message: step.to_string() }
    }
}

impl From<&StoreRepairStep> for RepairStepJson {
    fn from(step: &StoreRepairStep) -> Self {
        let (name, snapshot) = match step {
            StoreRepairStep::BeginList => ("beginList", None),
            StoreRepairStep::OlderList { .. } => ("olderList", None),
            StoreRepairStep::WriteIndexes(_) => ("writeIndexes", None),
            StoreRepairStep::NotWhole(id) => ("notWhole", Some(*id)),
        };
        let snapshot = snapshot.map(|id| id.to_string());
        Self { step: name, snapshot, message: step.to_string() }
    }
}
