//! Derives the engine's snapshot parameters from the spec, and the snapshot status from the engine's report. Pure.

use std::collections::BTreeSet;

use contract::{
    AS_OF, Flag, History, HistoryReport, LATEST, MAX_DAMAGED, MAX_SNAPSHOTS, Reason, Retention, RunParams,
    SnapshotEntry, SnapshotParams, SnapshotReport, SnapshotVerify, VerifyReport,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::{
    api::{
        KeptSnapshot, Placement, Retain, Run, SnapshotStatus, Snapshots, SyncJobSpec, SyncJobStatus,
        VerifySnapshots,
        conditions::{self, Cause},
    },
    human,
    spec::fields::{ValidationError, duration, invalid, number},
};

/// The maximum length of a message from a pod, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024;
/// The maximum number of tags and reasons of one snapshot, and the maximum length of each, in bytes.
const MAX_WORDS: usize = 8;
const MAX_WORD_BYTES: usize = 128;
/// The maximum length of a damaged file's name, in bytes.
const MAX_NAME_BYTES: usize = 512;
/// The number of snapshots that a SyncJob's status lists.
const LISTED: usize = 10;

/// Returns the snapshot parameters for the engine; `None` if the spec has none. `job` is the SyncJob's namespace and
/// name, because SyncJobs of several namespaces may share a volume.
///
/// If a field is out of range, or excludes another one.
pub fn params(spec: &SyncJobSpec, job: String) -> Result<Option<SnapshotParams>, ValidationError> {
    let Some(snapshots) = &spec.snapshots else {
        // Object storage gets nothing but snapshots: without rules, all stay.
        let of_job = || SnapshotParams { job, ..SnapshotParams::default() };
        return Ok(spec.destination.object_store.as_ref().map(|_| of_job()));
    };
    if spec.parallelism > 1 {
        let problem = "a run of several shards takes no snapshot; remove it, or set parallelism back to 1";
        return Err(invalid("snapshots", problem));
    }
    of_field(snapshots, job).map(Some)
}

/// Returns the snapshot parameters that a field `snapshots` asks for, of the job with that name.
///
/// # Errors
/// The field is invalid.
pub fn of_field(snapshots: &Snapshots, job: String) -> Result<SnapshotParams, ValidationError> {
    let keep = retention(&snapshots.retain)?;
    if !keep.has_rule() {
        return Err(invalid("snapshots.retain", "would keep no snapshot; set one of its fields above 0"));
    }
    let verify = snapshots.verify.as_ref().map(verify).transpose()?;
    let min_keep = snapshots.min_keep.map(|count| number("snapshots.minKeep", count)).transpose()?;
    Ok(SnapshotParams { tags: Vec::new(), job, engine: snapshots.engine, keep, min_keep, verify })
}

fn verify(verify: &VerifySnapshots) -> Result<SnapshotVerify, ValidationError> {
    let parts: u64 = number("snapshots.verify.parts", verify.parts)?;
    if parts == 0 {
        return Err(invalid("snapshots.verify.parts", "0 is out of range; write 1 or more"));
    }
    let limit = verify.bandwidth_limit.as_deref().map(contract::parse_bytes).transpose();
    let bandwidth_limit =
        limit.map_err(|error| invalid("snapshots.verify.bandwidthLimit", error.to_string()))?;
    Ok(SnapshotVerify { parts, bandwidth_limit })
}

fn retention(retain: &Retain) -> Result<Retention, ValidationError> {
    let within = retain.within.as_deref().map(|within| duration("snapshots.retain.within", within));
    let max_bytes = retain.max_bytes.as_deref().map(|bytes| {
        contract::parse_bytes(bytes).map_err(|error| invalid("snapshots.retain.maxBytes", error.to_string()))
    });
    Ok(Retention {
        last: number("snapshots.retain.last", retain.last)?,
        hourly: number("snapshots.retain.hourly", retain.hourly)?,
        daily: number("snapshots.retain.daily", retain.daily)?,
        weekly: number("snapshots.retain.weekly", retain.weekly)?,
        monthly: number("snapshots.retain.monthly", retain.monthly)?,
        yearly: number("snapshots.retain.yearly", retain.yearly)?,
        within_seconds: within.transpose()?.map(|within| within.as_secs()),
        tags: tags(&retain.tags)?,
        max_bytes: max_bytes.transpose()?,
    })
}

/// Parses tags as the engine's flags do. Fails if one is no word, or selects a snapshot in another way.
fn tags(tags: &[String]) -> Result<BTreeSet<String>, ValidationError> {
    match tags.iter().find(|tag| !contract::is_tag(tag)) {
        None => Ok(tags.iter().cloned().collect()),
        Some(odd) => {
            let problem = format!(
                "{odd:?} cannot be a tag; write one word that is not {LATEST} and does not begin with {AS_OF}"
            );
            Err(invalid("snapshots.retain.tags", problem))
        }
    }
}

/// Rejects fields that cannot be combined with a snapshot as the source.
///
/// # Errors
/// Names the field to change.
pub fn check_source(spec: &SyncJobSpec, params: &RunParams) -> Result<(), ValidationError> {
    if params.source_snapshot.is_none() {
        let of_snapshots =
            [("source.trustStore", params.trust_store), ("source.keepGoing", params.keep_going)];
        return match of_snapshots.iter().find(|(_, is_set)| *is_set) {
            Some((field, _)) => {
                Err(invalid(*field, "goes with source.snapshot; remove it, or name a snapshot"))
            }
            None => Ok(()),
        };
    }
    let claims = (&spec.source.persistent_volume_claim, &spec.destination.persistent_volume_claim);
    if spec.transfer.placement == Placement::Network && claims.0.is_some() && claims.0 == claims.1 {
        let problem = "Network cannot restore a snapshot of the destination's own claim; write Local or Auto";
        return Err(invalid("transfer.placement", problem));
    }
    if spec.parallelism > 1 {
        let problem = "above 1 cannot restore a snapshot, which is copied by one run; write 1";
        return Err(invalid("parallelism", problem));
    }
    match params.flags_of_live_sources().next().map(Flag::field_or_name) {
        Some(field) => Err(invalid(
            "source.snapshot",
            format!("is copied as a whole; remove {field}, or source.snapshot"),
        )),
        None => Ok(()),
    }
}

/// Rejects fields that cannot be combined with the history of the source.
///
/// # Errors
/// Names the field to change.
pub fn check_history(spec: &SyncJobSpec, params: &RunParams) -> Result<(), ValidationError> {
    let problem = |problem: String| Err(invalid("source.history", problem));
    match params.history {
        History::None => return Ok(()),
        History::Kept if spec.snapshots.is_none() => {
            return problem("Kept keeps what snapshots.retain keeps; set that, or write All".into());
        }
        History::Kept | History::All => {}
    }
    if spec.source.point_in_time.is_some() {
        return problem(
            "copies the snapshots that the volume has now; remove it, or source.pointInTime".into(),
        );
    }
    if spec.parallelism > 1 {
        return problem("is copied by one run; remove it, or set parallelism back to 1".into());
    }
    match params.flags_without_history().next().map(Flag::field_or_name) {
        Some(field) => problem(format!("copies snapshots as a whole; remove {field}, or source.history")),
        None => Ok(()),
    }
}

/// Bounds the message of a pod's report before it gets into a status.
pub fn bounded_history(report: &HistoryReport) -> HistoryReport {
    HistoryReport {
        reason: report.reason.as_deref().map(conditions::reason_word),
        message: human::clipped(&report.message, MAX_MESSAGE_BYTES),
        ..report.clone()
    }
}

/// Bounds the strings and lists of a pod's report before it gets into a status.
pub fn bounded(report: &SnapshotReport) -> SnapshotReport {
    SnapshotReport {
        made: report.made.as_ref().and_then(bounded_entry),
        reason: report.reason.as_deref().map(conditions::reason_word),
        message: human::clipped(&report.message, MAX_MESSAGE_BYTES),
        count: report.count,
        bytes: report.bytes,
        kept: report.kept.iter().take(MAX_SNAPSHOTS).filter_map(bounded_entry).collect(),
        dropped_count: report.dropped_count,
        dropped: report.dropped.iter().take(MAX_SNAPSHOTS).filter(|id| is_id(id)).cloned().collect(),
        dropped_for_room: report.dropped_for_room,
        freed_bytes: report.freed_bytes,
        verify: report.verify.as_ref().map(bounded_verify),
    }
}

fn bounded_verify(report: &VerifyReport) -> VerifyReport {
    let files = report.files.iter().take(MAX_DAMAGED);
    VerifyReport {
        part: human::clipped(&report.part, MAX_WORD_BYTES),
        files: files.map(|name| human::clipped(name, MAX_NAME_BYTES)).collect(),
        ..*report
    }
}

fn bounded_entry(entry: &SnapshotEntry) -> Option<SnapshotEntry> {
    let words = |words: &[String]| {
        words.iter().take(MAX_WORDS).map(|word| human::clipped(word, MAX_WORD_BYTES)).collect()
    };
    is_id(&entry.id).then(|| SnapshotEntry {
        id: entry.id.clone(),
        taken: entry.taken.parse::<Timestamp>().map(|taken| taken.to_string()).unwrap_or_default(),
        tags: words(&entry.tags),
        reasons: words(&entry.reasons),
        ..entry.clone()
    })
}

/// Returns whether text is a snapshot id: 16 hexadecimal digits.
fn is_id(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Sets the condition that snapshots of this job are gone that no rule has dropped: `before` lists the newest that the
/// run before had found, and none of them is left. A person ends it by any change of the spec.
pub fn report_gone(
    conditions: &mut Vec<Condition>,
    run: &Run,
    before: Option<&SnapshotStatus>,
    now: Timestamp,
) {
    let told = conditions::find(conditions, conditions::SNAPSHOTS_GONE);
    if told.is_some_and(|told| told.observed_generation != Some(run.generation)) {
        conditions::remove(conditions, conditions::SNAPSHOTS_GONE);
    }
    let Some(report) = run.snapshot.as_ref().filter(|report| report.made.is_some()) else { return };
    let Some(before) = before.filter(|before| !before.items.is_empty()) else { return };
    let names = || before.items.iter().map(|item| &item.name);
    let is_left = |name: &String| report.kept.iter().any(|kept| kept.id == *name);
    let is_listed = report.dropped_count <= report.dropped.len() as u64;
    if !is_listed || names().any(|name| is_left(name) || report.dropped.contains(name)) {
        return;
    }
    let message = format!(
        "Run {} found none of the {} snapshots that the destination had after the run before, among them {}: somebody \
         removed them, or .volferry/snapshots as a whole. Bring that folder back from a backup if there is one. Any \
         change of the spec, such as of spec.trigger, ends this condition.",
        run.id, before.count, before.items[0].name
    );
    let cause = Cause { reason: &Reason::SnapshotsGone, message: &message, generation: run.generation };
    conditions::set(conditions, conditions::SNAPSHOTS_GONE, true, cause, now);
}

/// Returns the snapshot status after a run with that result for its snapshot; if it took none, the status `before`.
pub fn status(report: Option<&SnapshotReport>, before: Option<SnapshotStatus>) -> Option<SnapshotStatus> {
    let Some(report) = report.filter(|report| report.made.is_some()) else { return before };
    Some(SnapshotStatus {
        count: i32::try_from(report.count).unwrap_or(i32::MAX),
        latest: report.made.as_ref().map(|made| made.id.clone()),
        bytes: report.bytes,
        items: report.kept.iter().take(LISTED).map(kept).collect(),
        damaged: before.and_then(|before| before.damaged),
    })
}

fn kept(entry: &SnapshotEntry) -> KeptSnapshot {
    KeptSnapshot {
        name: entry.id.clone(),
        time: entry.taken.parse().ok().map(Time),
        tags: entry.tags.clone(),
        reasons: entry.reasons.clone(),
    }
}

/// Sets the condition that says whether the snapshot of a completed run failed. A run that did not succeed leaves it
/// unchanged.
pub fn set_conditions(conditions: &mut Vec<Condition>, run: &Run, now: Timestamp) {
    let reason = run.snapshot.as_ref().and_then(|snapshot| snapshot.reason.as_ref());
    match (&run.snapshot, reason) {
        (_, Some(Reason::RunNotWhole | Reason::SnapshotsDamaged)) => {}
        (Some(snapshot), Some(reason)) => {
            let message = format!("Run {}: {}", run.id, human::sentence(&snapshot.message));
            let cause = Cause { reason, message: &message, generation: run.generation };
            conditions::set(conditions, conditions::SNAPSHOT_FAILED, true, cause, now);
        }
        _ => conditions::remove(conditions, conditions::SNAPSHOT_FAILED),
    }
}

/// Records the result of a run's snapshot verification. A run without one changes nothing.
pub fn report_damage(status: &mut SyncJobStatus, run: &Run, now: Timestamp) {
    let Some(found) = run.snapshot.as_ref().and_then(|snapshot| snapshot.verify.as_ref()) else { return };
    status.snapshots.get_or_insert_default().damaged = Some(i64::try_from(found.damaged).unwrap_or(i64::MAX));
    let Some(damage) = found.damage() else {
        return conditions::remove(&mut status.conditions, conditions::CORRUPT);
    };
    let message = format!("Run {} found {}", run.id, human::sentence(&damage));
    let message = human::clipped(&message, MAX_MESSAGE_BYTES);
    let cause = Cause { reason: &Reason::SnapshotsDamaged, message: &message, generation: run.generation };
    conditions::set(&mut status.conditions, conditions::CORRUPT, true, cause, now);
}

/// Removes the results of earlier verifications, because the spec no longer asks for them.
pub fn forget_damage(status: &mut SyncJobStatus) {
    conditions::remove(&mut status.conditions, conditions::CORRUPT);
    if let Some(snapshots) = &mut status.snapshots {
        snapshots.damaged = None;
    }
}

#[cfg(test)]
mod tests;
