//! The reasons to keep a snapshot, and the event that ends each.

use std::fmt;

pub use crate::snapshot::store::Period;
use crate::{entry::Time, snapshot::store::SnapshotId};

/// The rule that keeps a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// It is pinned.
    Pinned,
    /// It has a tag that is kept.
    Tag(String),
    /// It is the last of a period.
    Last(Period),
    /// It is the oldest, and a rule has periods left.
    Oldest(Period),
    /// It was taken shortly before the newest one.
    Within,
    /// Its time is in the future: a clock was wrong, and it is unknown which.
    Future,
    /// It is the newest one that has every entry.
    NewestWhole,
    /// The limit of bytes is the only rule, and it is within that.
    Room,
    /// It has the state before one of the last restores.
    Safety,
    /// Its job has applied no rules.
    NoRule,
}

/// The event that ends a reason to keep a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// A person unpins it.
    Unpinned,
    /// A person takes the tag from it.
    Untagged,
    /// This many newer periods have a snapshot.
    Newer(Period, u32),
    /// A newer snapshot is taken in the same period, which is not over.
    NewerInPeriod(Period),
    /// A newer snapshot is taken after this time.
    Time(Time),
    /// The clock reaches its time.
    Clock(Time),
    /// A newer snapshot has every entry.
    NewerWhole,
    /// Newer ones need the room.
    Room,
    /// A person prunes the volume.
    Prune,
}

/// A rule that keeps a snapshot, and the event up to which it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptBy {
    /// The rule.
    pub rule: Rule,
    /// The event.
    pub until: Until,
}

impl KeptBy {
    pub(crate) fn new(rule: Rule, until: Until) -> Self {
        Self { rule, until }
    }
}

impl fmt::Display for KeptBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rule.fmt(f)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = |period: &Period| match period {
            Period::Snapshot => "last",
            Period::Hour => "hourly",
            Period::Day => "daily",
            Period::Week => "weekly",
            Period::Month => "monthly",
            Period::Year => "yearly",
        };
        match self {
            Self::Pinned => f.write_str("pinned"),
            Self::Tag(tag) => write!(f, "tag {tag}"),
            Self::Last(of) => f.write_str(period(of)),
            Self::Oldest(of) => write!(f, "oldest {}", period(of)),
            Self::Within => f.write_str("within"),
            Self::Future => f.write_str("in the future"),
            Self::NewestWhole => f.write_str("newest whole"),
            Self::Room => f.write_str("room"),
            Self::Safety => f.write_str("safety"),
            Self::NoRule => f.write_str("no rule"),
        }
    }
}

/// The policy's verdict on a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The snapshot.
    pub id: SnapshotId,
    /// The reasons to keep it; none if it goes. It is kept until the last of them ends.
    pub reasons: Vec<KeptBy>,
    /// Whether the limit of bytes may end all reasons sooner.
    pub is_limited: bool,
}

impl Verdict {
    /// Returns whether the snapshot is kept.
    pub fn is_kept(&self) -> bool {
        !self.reasons.is_empty()
    }
}
