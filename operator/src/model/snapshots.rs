//! Snapshots of a destination: what the engine is asked for, and what the status keeps of its answer. Pure.

use std::collections::BTreeSet;

use contract::{MAX_SNAPSHOTS, Retention, RunParams, SnapshotEntry, SnapshotParams, SnapshotReport};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::fields::{ValidationError, duration, field_of, invalid, number};
use crate::{
    api::{
        KeptSnapshot, Placement, Retain, Run, SnapshotStatus, SyncJobSpec,
        conditions::{self, Cause},
    },
    human,
};

/// The most bytes of a message that comes from a pod.
const MAX_MESSAGE_BYTES: usize = 1024;
/// The most tags and reasons of one snapshot, and the most bytes of each.
const MAX_WORDS: usize = 8;
const MAX_WORD_BYTES: usize = 128;
/// How many snapshots a SyncJob's status lists.
const LISTED: usize = 10;
/// The reason of a run that took no snapshot because it did not succeed, which is no fault of the snapshot's.
const RUN_NOT_WHOLE: &str = "RunNotWhole";

/// Returns what a spec asks of the engine, for the SyncJob `job`: its namespace and name, because SyncJobs of several
/// namespaces may share a volume.
///
/// # Errors
/// If a field is out of range, or does not go with another one.
pub fn params(spec: &SyncJobSpec, job: String) -> Result<Option<SnapshotParams>, ValidationError> {
    let Some(snapshots) = &spec.snapshots else { return Ok(None) };
    if spec.parallelism > 1 {
        let problem = "a run of several shards takes no snapshot; remove it, or set parallelism back to 1";
        return Err(invalid("snapshots", problem));
    }
    let keep = keep(&snapshots.retain)?;
    if !keep.has_rule() {
        return Err(invalid("snapshots.retain", "would keep no snapshot; set one of its fields above 0"));
    }
    Ok(Some(SnapshotParams { tags: Vec::new(), job, keep }))
}

fn keep(retain: &Retain) -> Result<Retention, ValidationError> {
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

/// Reads tags as the engine's flags take them.
fn tags(tags: &[String]) -> Result<BTreeSet<String>, ValidationError> {
    let is_odd = |tag: &&String| tag.is_empty() || tag.chars().any(|c| c.is_whitespace() || c.is_control());
    match tags.iter().find(is_odd) {
        None => Ok(tags.iter().cloned().collect()),
        Some(odd) => {
            let problem = format!("{odd:?} cannot be a tag; write one word without spaces");
            Err(invalid("snapshots.retain.tags", problem))
        }
    }
}

/// Refuses what does not go with a source that is a snapshot.
///
/// # Errors
/// With the field to change.
pub fn check_source(spec: &SyncJobSpec, params: &RunParams) -> Result<(), ValidationError> {
    if params.source_snapshot.is_none() {
        return Ok(());
    }
    if spec.transfer.placement == Placement::Network {
        let problem = "Network cannot restore a snapshot: one pod mounts both volumes; write Local or Auto";
        return Err(invalid("transfer.placement", problem));
    }
    if spec.parallelism > 1 {
        return Err(invalid("parallelism", "above 1 cannot restore a snapshot, which one pod does; write 1"));
    }
    match params.flags_of_live_sources().next().map(field_of) {
        Some(field) => Err(invalid(
            "source.snapshot",
            format!("is copied as a whole; remove {field}, or source.snapshot"),
        )),
        None => Ok(()),
    }
}

/// Bounds what a pod reports, before it gets into a status.
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
        freed_bytes: report.freed_bytes,
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

/// Whether text is the name of a snapshot.
fn is_id(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns what the SyncJob's status keeps of a run's report, or what it had if that run took no snapshot.
pub fn status(run: &Run, before: Option<SnapshotStatus>) -> Option<SnapshotStatus> {
    let Some(report) = run.snapshot.as_ref().filter(|report| report.made.is_some()) else { return before };
    Some(SnapshotStatus {
        count: i32::try_from(report.count).unwrap_or(i32::MAX),
        latest: report.made.as_ref().map(|made| made.id.clone()),
        bytes: report.bytes,
        items: report.kept.iter().take(LISTED).map(kept).collect(),
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

/// Says whether the snapshot of a run that got to its end failed. A run that did not succeed says nothing of it.
pub fn tell(conditions: &mut Vec<Condition>, run: &Run, now: Timestamp) {
    let reason = run.snapshot.as_ref().and_then(|snapshot| snapshot.reason.as_deref());
    match (&run.snapshot, reason) {
        (_, Some(RUN_NOT_WHOLE)) => {}
        (Some(snapshot), Some(reason)) => {
            let message = format!("Run {}: {}", run.id, human::sentence(&snapshot.message));
            let cause = Cause { reason, message: &message, generation: run.generation };
            conditions::set(conditions, conditions::SNAPSHOT_FAILED, true, cause, now);
        }
        _ => conditions::remove(conditions, conditions::SNAPSHOT_FAILED),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(more: &serde_json::Value) -> Result<Option<SnapshotParams>, ValidationError> {
        let mut spec = json!({
            "source": {"persistentVolumeClaim": {"claimName": "a"}},
            "destination": {"persistentVolumeClaim": {"claimName": "b"}},
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params(&serde_json::from_value(spec).unwrap(), "prod/web".into())
    }

    #[test]
    fn the_engine_is_asked_for_what_the_spec_keeps_of_this_job() {
        assert_eq!(asked(&json!({})), Ok(None));
        let args = asked(&json!({"snapshots": {}})).unwrap().unwrap().to_args();
        assert_eq!(args, ["--snapshot", "--snapshot-job=prod/web", "--snapshot-keep-last=5"]);
        let retain = json!({"daily": 7, "within": "48h"});
        let args = asked(&json!({"snapshots": {"retain": retain}})).unwrap().unwrap().to_args();
        assert_eq!(args[2..], ["--snapshot-keep-daily=7", "--snapshot-keep-within=172800s"]);
        let retain = json!({"tags": ["gold"], "maxBytes": "10Gi"});
        let args = asked(&json!({"snapshots": {"retain": retain}})).unwrap().unwrap().to_args();
        assert_eq!(args[2..], ["--snapshot-keep-tag=gold", "--snapshot-max-bytes=10737418240"]);
    }

    #[test]
    fn what_cannot_be_asked_for_is_refused_with_its_field() {
        for (field, more) in [
            ("snapshots.retain.last", json!({"snapshots": {"retain": {"last": -1}}})),
            ("snapshots.retain", json!({"snapshots": {"retain": {"last": 0}}})),
            ("snapshots.retain.within", json!({"snapshots": {"retain": {"within": "long"}}})),
            ("snapshots.retain.tags", json!({"snapshots": {"retain": {"tags": ["two words"]}}})),
            ("snapshots.retain.maxBytes", json!({"snapshots": {"retain": {"maxBytes": "much"}}})),
            ("snapshots", json!({"snapshots": {}, "parallelism": 2})),
        ] {
            let error = asked(&more).unwrap_err().to_string();
            assert!(error.starts_with(&format!("spec.{field}: ")), "{error}");
        }
    }

    fn entry(id: &str) -> SnapshotEntry {
        SnapshotEntry {
            id: id.into(),
            taken: "2026-11-22T18:00:00Z".into(),
            tags: vec!["x".repeat(5000); 100],
            ..SnapshotEntry::default()
        }
    }

    fn run(snapshot: Option<SnapshotReport>) -> Run {
        Run { id: "web-1".into(), snapshot, ..Run::default() }
    }

    #[test]
    fn what_a_pod_reports_is_bounded() {
        let id = "0123456789abcdef";
        let report = SnapshotReport {
            made: Some(entry("../../etc")),
            reason: Some("a b\n".repeat(100)),
            message: "m".repeat(100_000),
            kept: vec![entry(id); 1000],
            dropped: vec![id.into(), "x".repeat(100_000)],
            ..SnapshotReport::default()
        };
        let bounded = bounded(&report);
        assert_eq!((bounded.made.as_ref(), bounded.dropped.len()), (None, 1));
        assert_eq!(bounded.kept.len(), MAX_SNAPSHOTS);
        assert!(json!(bounded).to_string().len() < 32 * 1024);
    }

    #[test]
    fn the_status_lists_the_newest_and_keeps_what_it_had_when_a_run_took_none() {
        let made = Some(entry("00000000000000ff"));
        let kept = (0..15).map(|nth| entry(&format!("{nth:016x}"))).collect();
        let report = SnapshotReport { made, kept, count: 15, bytes: 7, ..SnapshotReport::default() };
        let first = status(&run(Some(report)), None).unwrap();
        assert_eq!((first.count, first.bytes, first.items.len()), (15, 7, LISTED));
        assert_eq!(first.latest.as_deref(), Some("00000000000000ff"));
        assert!(first.items[0].time.is_some());
        for none in [None, Some(SnapshotReport::of_failed_run())] {
            assert_eq!(status(&run(none), Some(first.clone())).as_ref(), Some(&first));
        }
    }

    #[test]
    fn a_snapshot_that_failed_is_a_condition_until_one_succeeds() {
        let now = Timestamp::UNIX_EPOCH;
        let mut conditions = Vec::new();
        let failed = SnapshotReport {
            reason: Some("SnapshotFailed".into()),
            message: "no room".into(),
            ..SnapshotReport::default()
        };
        let mut after = |snapshot: Option<SnapshotReport>| {
            tell(&mut conditions, &run(snapshot), now);
            conditions::find(&conditions, conditions::SNAPSHOT_FAILED).map(|it| it.message.clone())
        };
        assert_eq!(after(Some(failed)).as_deref(), Some("Run web-1: no room."));
        assert!(after(Some(SnapshotReport::of_failed_run())).is_some(), "nothing is known yet");
        assert_eq!(after(Some(SnapshotReport::default())), None);
    }
}
