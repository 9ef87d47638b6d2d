//! The JSON output of the commands. Programs rely on it: fields are added, but never renamed.

use schemars::JsonSchema;
use serde::Serialize;

use super::time::rfc3339;
use syncer::{
    path::RelPath,
    snapshot::{
        Engine, Snapshot,
        browse::{Change, Node, Version, What},
        retention::{KeptBy, Until, Verdict},
        store::{Event, Period},
    },
};

/// A snapshot.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SnapshotJson {
    /// Its name: 16 hexadecimal digits.
    pub id: String,
    /// The hash of its tree: equal trees have equal digests.
    pub digest: String,
    /// When it was begun, as RFC 3339 has it.
    pub began: String,
    /// When it was published.
    pub taken: String,
    /// Entries of the tree.
    pub entries: u64,
    /// Bytes of all files together.
    pub bytes: u64,
    /// Bytes that it added to the store.
    pub added_bytes: u64,
    /// Entries that could not be read and are missing.
    pub failed: u64,
    /// Files that another process may have been writing to while they were read, so that their content may be a mix.
    /// Only `show` looks for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub in_motion: Vec<String>,
    /// How content got into the store: `clone` or `copy`.
    pub engine: &'static str,
    /// What it was taken for: `manual`, `afterRun`, or `safety`, the state before a restore.
    pub purpose: &'static str,
    /// The run that took it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub run: String,
    /// The SyncJob that it belongs to.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub job: String,
    /// Who took it.
    pub user: String,
    /// What a user says about it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub note: String,
    /// Labels to find it by.
    pub tags: Vec<String>,
    /// Whether it is kept whatever a policy says.
    pub pinned: bool,
    /// Whether it was imported, or other users could write to the list: a restore believes no owners, set-id bits,
    /// capabilities and devices then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exposed: bool,
    /// When it was forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forgotten: Option<String>,
    /// The id of the volume that it was taken of, if it was copied from another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

impl From<&Snapshot> for SnapshotJson {
    fn from(snapshot: &Snapshot) -> Self {
        Self {
            id: snapshot.id.to_string(),
            digest: snapshot.digest().to_hex().to_string(),
            began: rfc3339(snapshot.began),
            taken: rfc3339(snapshot.taken),
            entries: snapshot.entries,
            bytes: snapshot.bytes,
            added_bytes: snapshot.added_bytes,
            failed: snapshot.failed,
            in_motion: Vec::new(),
            engine: engine_name(snapshot.engine),
            purpose: snapshot.purpose.name(),
            run: snapshot.run.clone(),
            job: snapshot.job.clone(),
            user: snapshot.user.clone(),
            note: snapshot.note.clone(),
            tags: snapshot.tags.iter().cloned().collect(),
            pinned: snapshot.pinned,
            exposed: snapshot.is_exposed,
            forgotten: snapshot.forgotten.map(rfc3339),
            origin: snapshot.origin.map(|volume| volume.to_string()),
        }
    }
}

/// A snapshot of the list, and why it is kept.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListedJson {
    /// The snapshot.
    #[serde(flatten)]
    pub snapshot: SnapshotJson,
    /// Why it is kept, by the rules that its job applied last: until the last of these ends. None if it is forgotten,
    /// or if these rules no longer keep it.
    pub reasons: Vec<ReasonJson>,
    /// Whether the limit of bytes may end all reasons sooner.
    pub limited: bool,
}

impl ListedJson {
    pub(super) fn new(snapshot: &Snapshot, verdict: Option<&Verdict>) -> Self {
        Self {
            snapshot: snapshot.into(),
            reasons: verdict.iter().flat_map(|verdict| &verdict.reasons).map(ReasonJson::from).collect(),
            limited: verdict.is_some_and(|verdict| verdict.is_limited),
        }
    }
}

/// A rule that keeps a snapshot.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReasonJson {
    /// The rule: `last`, `hourly`, `daily`, `weekly`, `monthly`, `yearly`, each also after `oldest `; `within`,
    /// `tag TAG`, `pinned`, `newest whole`, `in the future`, `room`, `safety`, or `no rule`.
    pub rule: String,
    /// The event that ends it.
    pub until: UntilJson,
}

/// The event that ends a reason to keep a snapshot.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", tag = "event")]
pub(super) enum UntilJson {
    /// A person unpins it.
    Unpinned,
    /// A person takes the tag from it.
    Untagged,
    /// This many newer periods have a snapshot.
    Newer {
        /// `snapshot`, `hour`, `day`, `week`, `month` or `year`.
        period: &'static str,
        /// How many.
        count: u32,
    },
    /// A newer snapshot is taken in the same period.
    NewerInPeriod {
        /// The period, as above.
        period: &'static str,
    },
    /// A newer snapshot is taken after this time.
    NewerAfter {
        /// The time.
        time: String,
    },
    /// The clock reaches this time.
    Clock {
        /// The time.
        time: String,
    },
    /// A newer snapshot has every entry.
    NewerWhole,
    /// Newer ones need the room.
    Room,
    /// A person prunes the volume.
    Prune,
}

impl From<&KeptBy> for ReasonJson {
    fn from(reason: &KeptBy) -> Self {
        let until = match reason.until {
            Until::Unpinned => UntilJson::Unpinned,
            Until::Untagged => UntilJson::Untagged,
            Until::Newer(period, count) => UntilJson::Newer { period: period_name(period), count },
            Until::NewerInPeriod(period) => UntilJson::NewerInPeriod { period: period_name(period) },
            Until::Time(time) => UntilJson::NewerAfter { time: rfc3339(time) },
            Until::Clock(time) => UntilJson::Clock { time: rfc3339(time) },
            Until::NewerWhole => UntilJson::NewerWhole,
            Until::Room => UntilJson::Room,
            Until::Prune => UntilJson::Prune,
        };
        Self { rule: reason.to_string(), until }
    }
}

/// Returns the word for a period.
pub(super) fn period_name(period: Period) -> &'static str {
    match period {
        Period::Snapshot => "snapshot",
        Period::Hour => "hour",
        Period::Day => "day",
        Period::Week => "week",
        Period::Month => "month",
        Period::Year => "year",
    }
}

/// Returns the word for an engine.
pub(super) fn engine_name(engine: Engine) -> &'static str {
    match engine {
        Engine::Clone => "clone",
        Engine::Copy => "copy",
    }
}

/// An entry of a snapshot.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeJson {
    /// From the root of the volume; bytes that are not UTF-8 are written as `\\xNN`.
    pub path: String,
    /// `file`, `directory`, `symlink`, `hardLink`, `fifo`, `charDevice` or `blockDevice`.
    pub kind: &'static str,
    /// The twelve permission bits.
    pub mode: u16,
    /// User, by number.
    pub uid: u32,
    /// Group, by number.
    pub gid: u32,
    /// When it was modified.
    pub mtime: String,
    /// The length of a file in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// BLAKE3 of a file's bytes; none of an empty one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Where a link leads to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Whether another process may have been writing to the file while it was read, so that its content may be a mix.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub in_motion: bool,
}

impl NodeJson {
    pub(super) fn new(path: &RelPath, node: &Node) -> Self {
        let (size, content, target) = match &node.what {
            What::File { len, content } => (Some(*len), content.map(|content| content.id.to_string()), None),
            What::Symlink(target) | What::HardLink(target) => {
                (None, None, Some(syncer::path::display(target)))
            }
            _ => (None, None, None),
        };
        let meta = &node.meta;
        Self {
            path: path.to_string(),
            kind: node.what.name(),
            mode: meta.mode,
            uid: meta.owner.uid,
            gid: meta.owner.gid,
            mtime: rfc3339(meta.mtime),
            size,
            content,
            target,
            in_motion: node.in_motion,
        }
    }
}

/// A path that differs between two snapshots.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChangeJson {
    /// `added`, `removed`, `modified` or `metadata`.
    pub change: &'static str,
    /// What the second snapshot has there; of something removed, what the first has.
    pub entry: NodeJson,
}

impl ChangeJson {
    pub(super) fn new(change: Change, path: &RelPath, node: &Node) -> Self {
        Self { change: change_name(change), entry: NodeJson::new(path, node) }
    }
}

pub(super) fn change_name(change: Change) -> &'static str {
    match change {
        Change::Added => "added",
        Change::Removed => "removed",
        Change::Modified => "modified",
        Change::Metadata => "metadata",
    }
}

/// A version of a path.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct VersionJson {
    /// How it differs from the version before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<&'static str>,
    /// The first snapshot that has it so.
    pub first: String,
    /// When that was taken.
    pub first_taken: String,
    /// The last snapshot in a row that has it so.
    pub last: String,
    /// What they have there; nothing where it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<NodeJson>,
}

impl VersionJson {
    pub(super) fn new(path: &RelPath, version: &Version<'_>) -> Self {
        Self {
            change: version.change.map(change_name),
            first: version.first.id.to_string(),
            first_taken: rfc3339(version.first.taken),
            last: version.last.id.to_string(),
            entry: version.node.as_ref().map(|node| NodeJson::new(path, node)),
        }
    }
}

/// Why a command failed, as a line on standard error.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ErrorJson {
    /// What happened.
    pub error: String,
    /// The next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// What a prune did, or would do.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PruneJson {
    /// Nothing was changed.
    pub dry_run: bool,
    /// The ids of the snapshots that went.
    pub removed: Vec<String>,
    /// Those that a policy kept.
    pub kept: Vec<VerdictJson>,
    /// Bytes that became free.
    pub freed_bytes: u64,
    /// Files of the store that went.
    pub freed_files: u64,
    /// A restore reads from the store, so that the next prune gives the room back.
    pub deferred: bool,
}

/// A snapshot that is kept.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct VerdictJson {
    /// The snapshot.
    pub id: String,
    /// Why.
    pub reasons: Vec<ReasonJson>,
}

impl From<&Verdict> for VerdictJson {
    fn from(verdict: &Verdict) -> Self {
        Self { id: verdict.id.to_string(), reasons: verdict.reasons.iter().map(ReasonJson::from).collect() }
    }
}

/// A line of the audit log.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventJson {
    /// When.
    pub time: String,
    /// What was done.
    pub action: String,
    /// The user or the run.
    pub by: String,
    /// The snapshots that it is about.
    pub snapshots: Vec<String>,
    /// What else is to be known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl From<&Event> for EventJson {
    fn from(event: &Event) -> Self {
        let Event { time, action, by, snapshots, note, changes: _ } = event.clone();
        Self { time, action, by, snapshots, note }
    }
}
