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
    assert_eq!(args, ["--snapshot-job=prod/web", "--snapshot-keep-last=5"]);
    let retain = json!({"daily": 7, "within": "48h"});
    let args = asked(&json!({"snapshots": {"retain": retain}})).unwrap().unwrap().to_args();
    assert_eq!(args[1..], ["--snapshot-keep-daily=7", "--snapshot-keep-within=172800s"]);
    let retain = json!({"tags": ["gold"], "maxBytes": "10Gi"});
    let args = asked(&json!({"snapshots": {"retain": retain}})).unwrap().unwrap().to_args();
    assert_eq!(args[1..], ["--snapshot-keep-tag=gold", "--snapshot-max-bytes=10737418240"]);
    let args = asked(&json!({"snapshots": {"engine": "Copy"}})).unwrap().unwrap().to_args();
    assert_eq!(args[1], "--snapshot-engine=copy");
    let args = asked(&json!({"snapshots": {"minKeep": 3}})).unwrap().unwrap().to_args();
    assert_eq!(args[2..], ["--snapshot-min-keep=3"]);
    let verify = json!({"snapshots": {"verify": {"bandwidthLimit": "1Mi"}}});
    let args = asked(&verify).unwrap().unwrap().to_args();
    assert_eq!(args[2..], ["--snapshot-verify=30", "--snapshot-verify-bandwidth-limit=1048576"]);
}

#[test]
fn what_cannot_be_asked_for_is_refused_with_its_field() {
    for (field, more) in [
        ("snapshots.retain.last", json!({"snapshots": {"retain": {"last": -1}}})),
        ("snapshots.retain", json!({"snapshots": {"retain": {"last": 0}}})),
        ("snapshots.retain.within", json!({"snapshots": {"retain": {"within": "long"}}})),
        ("snapshots.retain.tags", json!({"snapshots": {"retain": {"tags": ["two words"]}}})),
        ("snapshots.retain.tags", json!({"snapshots": {"retain": {"tags": ["latest"]}}})),
        ("snapshots.retain.tags", json!({"snapshots": {"retain": {"tags": ["as-of:2026-11-22"]}}})),
        ("snapshots.minKeep", json!({"snapshots": {"minKeep": -1}})),
        ("snapshots.retain.maxBytes", json!({"snapshots": {"retain": {"maxBytes": "much"}}})),
        ("snapshots", json!({"snapshots": {}, "parallelism": 2})),
        ("snapshots.verify.parts", json!({"snapshots": {"verify": {"parts": 0}}})),
        ("snapshots.verify.bandwidthLimit", json!({"snapshots": {"verify": {"bandwidthLimit": "much"}}})),
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
        reason: Some("a b\n".repeat(100).into()),
        message: "m".repeat(100_000),
        kept: vec![entry(id); 1000],
        dropped: vec![id.into(), "x".repeat(100_000)],
        verify: Some(VerifyReport {
            part: "p".repeat(100_000),
            files: vec!["f".repeat(100_000); 1000],
            ..VerifyReport::default()
        }),
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
    let first = status(Some(&report), None).unwrap();
    assert_eq!((first.count, first.bytes, first.items.len()), (15, 7, LISTED));
    assert_eq!(first.latest.as_deref(), Some("00000000000000ff"));
    assert!(first.items[0].time.is_some());
    for none in [None, Some(SnapshotReport::of_failed_run())] {
        assert_eq!(status(none.as_ref(), Some(first.clone())).as_ref(), Some(&first));
    }
}

#[test]
fn snapshots_that_no_rule_dropped_and_that_are_gone_are_a_condition_until_the_spec_changes() {
    let report = |kept: &[u8], dropped: &[u8]| SnapshotReport {
        made: Some(entry("00000000000000ff")),
        kept: kept.iter().map(|nth| entry(&format!("{nth:016x}"))).collect(),
        dropped: dropped.iter().map(|nth| format!("{nth:016x}")).collect(),
        dropped_count: dropped.len() as u64,
        ..SnapshotReport::default()
    };
    let before = status(Some(&report(&[2, 1], &[])), None);
    let told = |conditions: &mut Vec<Condition>, kept: &[u8], dropped: &[u8], generation: i64| {
        let run = Run { generation, ..run(Some(report(kept, dropped))) };
        report_gone(conditions, &run, before.as_ref(), Timestamp::UNIX_EPOCH);
        conditions::find(conditions, conditions::SNAPSHOTS_GONE).map(|it| it.message.clone())
    };
    let mut conditions = Vec::new();
    for (kept, dropped) in [(&[3, 2, 1][..], &[][..]), (&[3, 2], &[1]), (&[3], &[2, 1]), (&[3, 1], &[])] {
        assert_eq!(told(&mut conditions, kept, dropped, 1), None, "{kept:?} {dropped:?}");
    }
    let message = told(&mut conditions, &[3], &[], 1).unwrap();
    assert!(message.contains("among them 0000000000000002"), "{message}");
    assert!(told(&mut conditions, &[3, 2], &[], 1).is_some(), "a person has not seen it yet");
    assert_eq!(told(&mut conditions, &[3, 2], &[], 2), None);
}

#[test]
fn damage_is_a_condition_until_a_check_finds_none_or_none_is_asked_for() {
    let mut status = SyncJobStatus::default();
    let mut after = |damaged: Option<u64>| {
        let files = vec!["large in 00000000000000ff".into()];
        let verify = damaged.map(|damaged| VerifyReport { damaged, files, ..VerifyReport::default() });
        let report = SnapshotReport { verify, ..SnapshotReport::default() };
        report_damage(&mut status, &run(Some(report)), Timestamp::UNIX_EPOCH);
        let told = conditions::find(&status.conditions, conditions::CORRUPT).map(|it| it.message.clone());
        (told, status.snapshots.as_ref().and_then(|snapshots| snapshots.damaged))
    };
    assert_eq!(after(None), (None, None));
    let (told, count) = after(Some(2));
    let told = told.unwrap();
    assert!(told.contains("2 objects of the snapshots damaged"), "{told}");
    assert!(told.contains("large in 00000000000000ff, …"), "{told}");
    assert_eq!(count, Some(2));
    assert!(after(None).0.is_some(), "a run that checked nothing");
    assert_eq!(after(Some(0)), (None, Some(0)));
    after(Some(1));
    forget_damage(&mut status);
    assert!(status.conditions.is_empty() && status.snapshots.unwrap().damaged.is_none());
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
        set_conditions(&mut conditions, &run(snapshot), now);
        conditions::find(&conditions, conditions::SNAPSHOT_FAILED).map(|it| it.message.clone())
    };
    assert_eq!(after(Some(failed)).as_deref(), Some("Run web-1: no room."));
    assert!(after(Some(SnapshotReport::of_failed_run())).is_some(), "nothing is known yet");
    assert_eq!(after(Some(SnapshotReport::default())), None);
}
