use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{human::plural, reason::Reason};

/// The number of snapshots that a report names; [`SnapshotReport::count`] counts all of them.
pub const MAX_SNAPSHOTS: usize = 20;

/// The number of damaged objects that a report names; [`VerifyReport::damaged`] counts all of them.
pub const MAX_DAMAGED: usize = 10;

/// The word for the newest snapshot.
pub const LATEST: &str = "latest";

/// The prefix of a text that selects the newest snapshot begun at a time or before; the time follows.
pub const AS_OF: &str = "as-of:";

/// The longest tag, in bytes.
pub const MAX_TAG_BYTES: usize = 128;

/// Returns whether a text can be a tag: one word that does not select a snapshot in another way.
pub fn is_tag(text: &str) -> bool {
    let is_word = !text.is_empty() && !text.chars().any(|c| c.is_whitespace() || c.is_control());
    is_word && text.len() <= MAX_TAG_BYTES && text != LATEST && !text.starts_with(AS_OF)
}

/// The parameters of the snapshot that the owner of a destination wants after each run that succeeds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotParams {
    /// Labels to find it by.
    pub tags: Vec<String>,
    /// The job that it belongs to: `NAMESPACE/NAME` of a SyncJob. Policies judge the snapshots of each job separately.
    pub job: String,
    /// How content gets into the snapshot.
    pub engine: SnapshotEngine,
    /// The snapshots of this job that are kept. Without a rule, all are.
    pub keep: Retention,
    /// The number of this job's snapshots that stay at least when room has to be made for the next one; `None` for 1.
    pub min_keep: Option<u32>,
    /// The check of the volume's snapshots that follows, if any.
    pub verify: Option<SnapshotVerify>,
}

/// How content gets into a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum SnapshotEngine {
    /// By clones if the file system can, else by copies.
    #[default]
    Auto,
    /// By clones, or not at all.
    Clone,
    /// By copies of every byte.
    Copy,
}

/// A check of one part of all snapshots of a volume after each run. As many runs as there are parts check everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotVerify {
    /// The number of parts, from 1.
    pub parts: u64,
    /// The bandwidth limit of the check, in bytes per second.
    pub bandwidth_limit: Option<u64>,
}

/// The rules that keep snapshots of a job. A snapshot is kept when one rule keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Retention {
    /// The newest ones, this many.
    pub last: u32,
    /// The last one of each of this many hours.
    pub hourly: u32,
    /// The last one of each of this many days.
    pub daily: u32,
    /// The last one of each of this many weeks, which begin on Monday.
    pub weekly: u32,
    /// The last one of each of this many months.
    pub monthly: u32,
    /// The last one of each of this many years.
    pub yearly: u32,
    /// All that were taken at most this many seconds before the newest.
    pub within_seconds: Option<u64>,
    /// All that have one of these tags.
    pub tags: BTreeSet<String>,
    /// Of the snapshots that the rules keep, or of all without another rule: the newest that take at most this many
    /// bytes together.
    pub max_bytes: Option<u64>,
}

impl Retention {
    /// Returns whether it has a rule.
    pub fn has_rule(&self) -> bool {
        *self != Self::default()
    }

    /// Returns whether the limit of bytes is the only rule, or there is none.
    pub fn is_only_limit(&self) -> bool {
        *self == Self { max_bytes: self.max_bytes, ..Self::default() }
    }
}

impl SnapshotParams {
    /// Returns the flags that follow `--snapshot` of `volferry receive` and `sync`, and express these parameters.
    pub fn to_args(&self) -> Vec<String> {
        let Self { tags, job, engine, keep, min_keep, verify } = self;
        let mut args: Vec<_> = tags.iter().map(|tag| format!("--snapshot-tag={tag}")).collect();
        if !job.is_empty() {
            args.push(format!("--snapshot-job={job}"));
        }
        if *engine != SnapshotEngine::Auto {
            args.push(format!("--snapshot-engine={engine}"));
        }
        let Retention { last, hourly, daily, weekly, monthly, yearly, within_seconds, tags: kept, max_bytes } =
            keep;
        let counts = [
            ("last", last),
            ("hourly", hourly),
            ("daily", daily),
            ("weekly", weekly),
            ("monthly", monthly),
            ("yearly", yearly),
        ];
        let counts = counts.into_iter().filter(|(_, count)| **count > 0);
        args.extend(counts.map(|(rule, count)| format!("--snapshot-keep-{rule}={count}")));
        args.extend(within_seconds.map(|seconds| format!("--snapshot-keep-within={seconds}s")));
        args.extend(kept.iter().map(|tag| format!("--snapshot-keep-tag={tag}")));
        args.extend(max_bytes.map(|bytes| format!("--snapshot-max-bytes={bytes}")));
        args.extend(min_keep.map(|count| format!("--snapshot-min-keep={count}")));
        if let Some(SnapshotVerify { parts, bandwidth_limit }) = verify {
            args.push(format!("--snapshot-verify={parts}"));
            let limit = bandwidth_limit.map(|bytes| format!("--snapshot-verify-bandwidth-limit={bytes}"));
            args.extend(limit);
        }
        args
    }
}

/// The result for the snapshot of the destination that a run was to take.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotReport {
    /// The snapshot that was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made: Option<SnapshotEntry>,
    /// A word for programs if something is missing: `RunNotWhole`, because only a run that succeeds takes a snapshot;
    /// `SnapshotFailed`, `SnapshotNotWhole`, `SnapshotInMotion`, `RetentionFailed`, `VerifyFailed`, or
    /// `SnapshotsDamaged`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What happened, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The number of snapshots that the job has now.
    pub count: u64,
    /// Bytes that these snapshots added to the store.
    pub bytes: u64,
    /// The newest [`MAX_SNAPSHOTS`] of them, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<SnapshotEntry>,
    /// The number of snapshots that the rules dropped.
    pub dropped_count: u64,
    /// The ids of the first [`MAX_SNAPSHOTS`] of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// The number of them that were dropped before the snapshot was taken, because it did not fit.
    pub dropped_for_room: u64,
    /// Bytes that were freed by dropping them.
    pub freed_bytes: u64,
    /// The result of the check of the volume's snapshots; absent if none was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyReport>,
}

/// The result of a check of one part of the destination's snapshots, of all jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VerifyReport {
    /// The part that was checked, as `N/M`.
    pub part: String,
    /// Objects that were checked.
    pub checked: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Damaged objects that have no good copy: those of this part, and those of other parts that earlier checks found
    /// and this one found again.
    pub damaged: u64,
    /// Damaged objects that this check healed.
    pub healed: u64,
    /// A file that needs each of the first [`MAX_DAMAGED`] damaged objects, as `PATH in SNAPSHOT`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
}

impl VerifyReport {
    /// Describes the damage, for people; `None` if there is none.
    pub fn damage(&self) -> Option<String> {
        let mut named = self.files.clone();
        if self.damaged > named.len() as u64 {
            named.push("…".into());
        }
        let objects = plural(self.damaged, "object", "objects");
        let text = format!("{objects} of the snapshots damaged, without a good copy: {}", named.join(", "));
        (self.damaged > 0).then_some(text)
    }
}

/// A snapshot, as reports and statuses describe it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotEntry {
    /// Its name: 16 hexadecimal digits.
    pub id: String,
    /// When it was published, RFC 3339.
    pub taken: String,
    /// Entries of its tree.
    pub entries: u64,
    /// Bytes of all its files together.
    pub bytes: u64,
    /// Bytes that it added to the store.
    pub added_bytes: u64,
    /// Its tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The reasons why it is kept; none if no rules were given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

impl SnapshotReport {
    /// Reports that a run that did not succeed takes no snapshot.
    pub fn of_failed_run() -> Self {
        Self {
            reason: Some(Reason::RunNotWhole),
            message: "no snapshot was taken, because the run did not succeed".into(),
            ..Self::default()
        }
    }

    /// Returns whether a run that succeeded otherwise did not get the snapshot that it was to take.
    pub fn is_failure(&self) -> bool {
        self.reason.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rules_that_keep_something_are_flags() {
        let keep = Retention {
            last: 2,
            weekly: 4,
            within_seconds: Some(172_800),
            tags: ["gold".into()].into(),
            max_bytes: Some(1 << 30),
            ..Retention::default()
        };
        assert!(keep.has_rule() && !Retention::default().has_rule());
        let verify = Some(SnapshotVerify { parts: 30, bandwidth_limit: Some(1 << 20) });
        let params = SnapshotParams {
            tags: vec!["-x".into(), "b".into()],
            job: "prod/web".into(),
            engine: SnapshotEngine::Copy,
            keep,
            min_keep: Some(3),
            verify,
        };
        let expected = [
            "--snapshot-tag=-x",
            "--snapshot-tag=b",
            "--snapshot-job=prod/web",
            "--snapshot-engine=copy",
            "--snapshot-keep-last=2",
            "--snapshot-keep-weekly=4",
            "--snapshot-keep-within=172800s",
            "--snapshot-keep-tag=gold",
            "--snapshot-max-bytes=1073741824",
            "--snapshot-min-keep=3",
            "--snapshot-verify=30",
            "--snapshot-verify-bandwidth-limit=1048576",
        ];
        assert_eq!(params.to_args(), expected);
        assert!(SnapshotParams::default().to_args().is_empty());
    }
}
