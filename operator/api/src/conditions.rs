//! The conditions of a SyncJob, which follow the rules of kstatus.
//!
//! `Ready` and `Synced` are always set. `Reconciling` and `Stalled` exist only while they are true, because kstatus and
//! tools based on it look only for their presence with status `True`. `Ready` is false exactly while one of the two
//! exists. A run that the schedule alone asked for leaves all three as they are.

use contract::Reason;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The spec has been observed, no run that it or a person asked for is outstanding, and nothing needs a person.
pub const READY: &str = "Ready";
/// There is a copy, and the last run succeeded.
pub const SYNCED: &str = "Synced";
/// A run that a person or a change of the spec asked for is under way, or a claim is being prepared.
pub const RECONCILING: &str = "Reconciling";
/// The job needs a person to go on.
pub const STALLED: &str = "Stalled";
/// The last completed run left files out. Set only while true.
pub const INCOMPLETE: &str = "Incomplete";
/// The last completed run could not keep the owners of some entries. Set only while true.
pub const OWNERS_NOT_KEPT: &str = "OwnersNotKept";
/// A run's snapshot of its destination failed, or old ones could not be dropped. Set only while true.
pub const SNAPSHOT_FAILED: &str = "SnapshotFailed";
/// Snapshots that no rule has dropped are gone from the destination. Set only while true.
pub const SNAPSHOTS_GONE: &str = "SnapshotsGone";
/// The last verification of the destination's snapshots found damage that has no good copy. Set only while true.
pub const CORRUPT: &str = "Corrupt";
/// A restore in place holds back all runs that no person asks for. Set only while true.
pub const RESTORED: &str = "Restored";
/// Three comparable runs in a row took longer than usual by more than `spec.regression` allows. Set only with that
/// field, and once the usual duration is known.
pub const PERFORMANCE_REGRESSED: &str = "PerformanceRegressed";

/// The cause of a condition's status.
#[derive(Debug, Clone, Copy)]
pub struct Cause<'a> {
    /// The reason.
    pub reason: &'a Reason,
    /// The message for people: what happened and what to do next.
    pub message: &'a str,
    /// The `metadata.generation` that the condition is about.
    pub generation: i64,
}

/// Sets `Ready=True`: nothing has to be done now.
pub fn ready(conditions: &mut Vec<Condition>, cause: Cause<'_>, now: Timestamp) {
    set(conditions, READY, true, cause, now);
    remove(conditions, RECONCILING);
    remove(conditions, STALLED);
}

/// Sets `Reconciling=True` and `Ready=False`: what the spec or a person asked for is under way.
pub fn reconciling(conditions: &mut Vec<Condition>, cause: Cause<'_>, now: Timestamp) {
    set(conditions, READY, false, cause, now);
    set(conditions, RECONCILING, true, cause, now);
    remove(conditions, STALLED);
}

/// Sets `Stalled=True` and `Ready=False`: a person has to act; `cause.message` says how.
pub fn stalled(conditions: &mut Vec<Condition>, cause: Cause<'_>, now: Timestamp) {
    set(conditions, READY, false, cause, now);
    set(conditions, STALLED, true, cause, now);
    remove(conditions, RECONCILING);
}

/// Sets one condition. Its transition time changes only with its status, so that setting it again changes nothing.
pub fn set(conditions: &mut Vec<Condition>, type_: &str, status: bool, cause: Cause<'_>, now: Timestamp) {
    let status = if status { "True" } else { "False" };
    let since = find(conditions, type_)
        .filter(|there| there.status == status)
        .map_or(Time(now), |there| there.last_transition_time.clone());
    let condition = Condition {
        type_: type_.into(),
        status: status.into(),
        reason: cause.reason.to_string(),
        message: cause.message.into(),
        observed_generation: Some(cause.generation),
        last_transition_time: since,
    };
    match conditions.iter_mut().find(|there| there.type_ == type_) {
        Some(there) => *there = condition,
        None => conditions.push(condition),
    }
}

/// Removes a condition, if it exists.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) {
    conditions.retain(|there| there.type_ != type_);
}

/// Returns the condition of that type, if it exists.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|there| there.type_ == type_)
}

/// Returns whether the condition of that type exists and is true.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|there| there.status == "True")
}

const MAX_REASON_BYTES: usize = 64;

/// Converts a pod's reason to one that the conditions of Kubernetes allow.
pub fn reason_word(text: &str) -> Reason {
    let letters = text.chars().filter(char::is_ascii_alphanumeric).skip_while(char::is_ascii_digit);
    let word: String = letters.take(MAX_REASON_BYTES).collect();
    if word.is_empty() { Reason::Failed } else { word.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(reason: &'static Reason) -> Cause<'static> {
        Cause { reason, message: "m", generation: 2 }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn stalled_and_reconciling_are_never_both_there() {
        let mut conditions = Vec::new();
        reconciling(&mut conditions, cause(&Reason::Running), at(1));
        assert!(is_true(&conditions, RECONCILING) && !is_true(&conditions, READY));
        stalled(&mut conditions, cause(&Reason::ClaimNotFound), at(2));
        assert!(is_true(&conditions, STALLED) && find(&conditions, RECONCILING).is_none());
        ready(&mut conditions, cause(&Reason::Succeeded), at(3));
        assert!(is_true(&conditions, READY) && find(&conditions, STALLED).is_none());
    }

    #[test]
    fn a_new_reason_keeps_the_time_of_the_last_transition() {
        let mut conditions = Vec::new();
        reconciling(&mut conditions, cause(&Reason::Preparing), at(1));
        reconciling(&mut conditions, cause(&Reason::Running), at(2));
        let there = find(&conditions, RECONCILING).unwrap();
        assert_eq!((there.reason.as_str(), there.last_transition_time.0), ("Running", at(1)));
    }

    #[test]
    fn a_new_status_moves_the_time_of_the_transition() {
        let mut conditions = Vec::new();
        stalled(&mut conditions, cause(&Reason::Failed), at(1));
        ready(&mut conditions, cause(&Reason::Succeeded), at(2));
        assert_eq!(find(&conditions, READY).unwrap().last_transition_time.0, at(2));
    }
}
