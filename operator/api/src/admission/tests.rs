use std::slice::from_ref;

use super::*;
use crate::HistoryLimit;

const LEAST: &str = "
apiVersion: volferry.dev/v1alpha1
kind: SyncJob
metadata: {name: web}
spec:
  source: {persistentVolumeClaim: {claimName: a}}
  destination: {persistentVolumeClaim: {claimName: b}}
";

fn job(fields: &str) -> Result<SyncJob, AdmissionError> {
    let manifest = serde_saphyr::from_str(&format!("{LEAST}\n{fields}")).unwrap();
    admit(manifest).map(|admitted| match admitted {
        Admitted::SyncJob(job) => *job,
        other => panic!("{other:?}"),
    })
}

/// Returns the problems of the minimal SyncJob with its value at `pointer` replaced.
fn problems(pointer: &str, value: Value) -> Vec<Problem> {
    let mut manifest: Value = serde_saphyr::from_str(LEAST).unwrap();
    set(&mut manifest, pointer, value);
    problems_of(admit(manifest))
}

fn set(manifest: &mut Value, pointer: &str, value: Value) {
    let place = pointer.split('/').skip(1).fold(manifest, |at, key| &mut at[key]);
    *place = value;
}

fn problems_of(judged: Result<Admitted, AdmissionError>) -> Vec<Problem> {
    match judged {
        Ok(_) => Vec::new(),
        Err(AdmissionError::Invalid { problems, .. }) => problems,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn the_least_manifest_is_taken_and_gets_its_defaults() {
    let job = job("").unwrap();
    assert_eq!((job.spec.limits.timeout.as_str(), job.spec.files.delete_limit.percent), ("6h", 50));
    assert_eq!(
        (job.spec.parallelism, job.spec.history_limit.clone(), job.spec.source.path.as_str()),
        (1, HistoryLimit { succeeded: 10, failed: 5 }, "/")
    );
}

#[test]
fn a_bad_cron_is_refused_with_what_to_write_instead() {
    let error = job("  schedule: {cron: bad cron}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "SyncJob web is invalid:\n  spec.schedule.cron: \"bad cron\" is not a cron schedule: write five fields \
         (minute, hour, day of month, month, day of week), such as \"0 3 * * *\" for each day at 03:00 or \
         \"*/15 8-18 * * MON-FRI\", or one of @hourly, @daily, @weekly, @monthly, @yearly; a range goes from the \
         lower to the higher, and one of the months has such a day"
    );
}

#[test]
fn there_are_up_to_64_shards() {
    assert_eq!(job("  parallelism: 64\n  files: {write: InPlace}").unwrap().spec.parallelism, 64);
    assert!(job("  parallelism: 65").is_err());
}

#[test]
fn good_values_are_taken() {
    for (pointer, value) in [
        ("/spec/schedule", json!({"cron": "*/15 8-18 1,15 JAN-mar MON-FRI"})),
        ("/spec/schedule", json!({"cron": "59 23 31 12 7", "timeZone": "Europe/Berlin", "jitter": "10m"})),
        ("/spec/schedule", json!({"cron": "@daily", "timeZone": "America/Argentina/Buenos_Aires"})),
        ("/spec/schedule", json!({"cron": "0 0 * * sun", "timeZone": "Etc/GMT+2"})),
        ("/spec/schedule", json!({"cron": "@daily", "timeZone": "europe/berlin"})),
        (
            "/spec/source",
            json!({"persistentVolumeClaim": {"claimName": "a"}, "snapshot": "latest", "keepGoing": true}),
        ),
        ("/spec/schedule", json!({"interval": "30s"})),
        ("/spec/limits", json!({"timeout": "1h30m", "retries": 0})),
        ("/spec/transfer", json!({"bandwidthLimit": "100Mi", "compression": "Zstd", "compressionLevel": 9})),
        ("/spec/transfer", json!({"bandwidthLimit": "999999Ti"})),
        ("/spec/source/path", json!("/a b/..c/d.")),
        ("/spec/source/snapshot", json!("latest")),
        ("/spec/source/snapshot", json!("as-of:2026-11-22T18:00:00Z")),
        ("/spec/source/snapshot", json!("as-of:2026-11-22T18:00+01:00")),
        ("/spec/destination/create", json!({"size": "1.5Gi", "accessModes": ["ReadWriteMany"]})),
        ("/spec/files/exclude", json!(["*.tmp", " x", "it's \"quoted\""])),
        ("/spec/snapshots", json!({})),
        ("/spec/snapshots", json!({"retain": {"yearly": 1}})),
        ("/spec/snapshots", json!({"verify": {"bandwidthLimit": "50Mi"}})),
        ("/spec/snapshots/retain", json!({"tags": ["gold"]})),
        ("/spec/snapshots/retain", json!({"maxBytes": "10Gi"})),
        ("/spec/regression", json!({"threshold": "1.05"})),
        ("/spec/pods", json!({"resources": {"limits": {"cpu": 2, "memory": "1Gi"}}})),
        ("/spec/pods", json!({"tolerations": [{"operator": "Exists"}], "labels": {"team": "x"}})),
        ("/metadata/labels", json!({"a": "b"})),
        ("/status", json!({"phase": "Running", "observedGeneration": 3})),
        ("/spec/pods", json!({"resources": {"requests": {"cpu": "100m", "memory": 1000}, "limits": {}}})),
    ] {
        assert_eq!(problems(pointer, value.clone()), [], "{pointer} {value}");
    }
}

/// Checks that each value is refused at its field, or at one around or below it, with a message that has its advice.
#[track_caller]
fn assert_refused(cases: &[(&str, Value, &str)]) {
    for (pointer, value, advice) in cases {
        let found = problems(pointer, value.clone());
        let field = dotted(pointer);
        let said = |it: &Problem| {
            it.message.contains(advice) && (field.starts_with(&it.field) || it.field.starts_with(&field))
        };
        assert!(found.iter().any(said), "{pointer} {value}: {found:?}");
    }
}

#[test]
fn bad_schedules_are_refused_at_their_field_and_with_advice() {
    assert_refused(&[
        ("/spec/schedule/cron", json!("* * * *"), "write five fields"),
        ("/spec/schedule/cron", json!("60 * * * *"), "write five fields"),
        ("/spec/schedule/cron", json!("* 24 * * *"), "write five fields"),
        ("/spec/schedule/cron", json!("* * 0 * *"), "write five fields"),
        ("/spec/schedule/cron", json!("* * * 13 *"), "write five fields"),
        ("/spec/schedule/cron", json!("* * * * 8"), "write five fields"),
        ("/spec/schedule/cron", json!("* * * * * *"), "write five fields"),
        ("/spec/schedule/cron", json!("*/0 * * * *"), "write five fields"),
        ("/spec/schedule/cron", json!("@reboot"), "write five fields"),
        ("/spec/schedule/cron", json!("0 0 * * 5-1"), "from the lower to the higher"),
        ("/spec/schedule/cron", json!("0 0 30 2 *"), "has such a day"),
        ("/spec/schedule", json!({}), "exactly one of cron"),
        ("/spec/schedule", json!({"cron": "@daily", "interval": "1m"}), "exactly one of cron"),
        ("/spec/schedule", json!({"interval": "1m", "timeZone": "UTC"}), "goes with cron"),
        ("/spec/schedule", json!({"cron": "@daily", "timeZone": "Europe/Berln"}), "IANA database"),
        ("/spec/schedule/interval", json!("0s"), "such as 90s"),
        ("/spec/schedule/interval", json!("1 day"), "such as 90s"),
    ]);
}

#[test]
fn bad_ends_are_refused_at_their_field_and_with_advice() {
    let a = json!({"claimName": "a"});
    assert_refused(&[
        ("/spec/source", json!({"persistentVolumeClaim": a, "trustStore": true}), "go with snapshot"),
        (
            "/spec/source",
            json!({"persistentVolumeClaim": a, "history": "All", "snapshot": "v1"}),
            "remove one of the two",
        ),
        (
            "/spec/source",
            json!({"persistentVolumeClaim": a, "history": "All", "pointInTime": {"method": "Clone"}}),
            "remove one of the two",
        ),
        ("/spec/source/history", json!("Kept"), "source.history: Kept keeps what"),
        ("/spec/source/history", json!("Some"), "\"Kept\""),
        ("/spec/source/path", json!("a"), "begins with /"),
        ("/spec/source/path", json!("/a/"), "does not end with it"),
        ("/spec/source/path", json!("/a//b"), "empty"),
        ("/spec/source/path", json!("/a/../b"), ".."),
        ("/spec/source/path", json!("/.volferry/index"), ".volferry"),
        ("/spec/destination/path", json!("/.."), ".."),
        ("/spec/source/persistentVolumeClaim/claimName", json!("Web_Data"), "lower-case letters"),
        ("/spec/source/persistentVolumeClaim/namespace", json!("A b"), "lower-case letters"),
        ("/spec/source/persistentVolumeClaim", json!({}), "is missing"),
        ("/spec/source/persistentVolumeClaim", json!({"claim": "a"}), "unknown field claim"),
        ("/spec/source/remote", json!({}), "unknown field remote"),
        ("/spec/source", json!({}), "exactly one of persistentVolumeClaim and endpoint"),
        ("/spec/source/pointsInTime", json!("Clone"), "unknown field pointsInTime"),
        ("/spec/source/pointInTime", json!({"method": "Copy"}), "Group"),
        ("/spec/destination/volumeSnapshots", json!({"retain": {"last": 0}}), "less than the minimum"),
        ("/spec/destination/create/size", json!("10 GB"), "such as 500Mi"),
        ("/spec/destination/create/size", json!("0"), "such as 500Mi"),
        ("/spec/destination/create/accessModes", json!(["ReadOnlyMany"]), "\"ReadWriteOnce\""),
        ("/spec/destination", json!({"persistentVolumeClaim": a}), "overlap"),
        ("/spec/source/snapshot", json!("as-of:yesterday"), "is not a time"),
        ("/spec/source/snapshot", json!("as-of:2026-11-22T18:00"), "is not a time"),
    ]);
}

#[test]
fn other_bad_values_are_refused_at_their_field_and_with_advice() {
    assert_refused(&[
        ("/spec/limits/timeout", json!("6"), "such as 90s"),
        ("/spec/limits/timeout", json!(6), "is not of type \"string\""),
        ("/spec/limits/retries", json!(-1), "-1 is less than the minimum of 0"),
        ("/spec/transfer/bandwidthLimit", json!("fast"), "such as 500k"),
        ("/spec/transfer/bandwidthLimit", json!("100"), "64Ki or more"),
        ("/spec/transfer/bandwidthLimit", json!("1.5Mi"), "whole bytes"),
        ("/spec/transfer", json!({"compressionLevel": 3}), "goes with compression: Zstd"),
        ("/spec/transfer", json!({"placement": "Local", "bandwidthLimit": "1Mi"}), "remove one of the two"),
        ("/spec/transfer/compression", json!("gzip"), "\"Auto\""),
        ("/spec/files/deleteLimit/percent", json!(101), "greater than the maximum"),
        ("/spec/deletionPolicy", json!("Delete"), "destination.create"),
        ("/spec/files", json!({"deleteAnyway": true}), "goes with delete: true"),
        ("/spec/files", json!({"deleteTiming": "Before"}), "goes with delete: true"),
        ("/spec/files/exclude", json!(["ok", "two\nlines"]), "one pattern an entry"),
        ("/spec/files/exclude", json!("*.tmp"), "is not of type \"array\""),
        ("/spec/snapshots/retain", json!({"daily": 0}), "would keep no snapshot"),
        ("/spec/snapshots/retain", json!({"tags": []}), "would keep no snapshot"),
        ("/spec/snapshots/retain/maxBytes", json!("much"), "is not a size"),
        ("/spec/snapshots", json!({"verify": {"parts": 0}}), "less than the minimum"),
        ("/spec/regression/threshold", json!("1"), "\"1.5\""),
        ("/spec/regression/threshold", json!("fast"), "\"1.5\""),
        ("/spec/hooks", json!({}), "before, after or both"),
        ("/spec/historyLimit", json!({"failed": 51}), "greater than the maximum"),
        ("/spec/parallelism", json!(0), "less than the minimum"),
        ("/spec/pods/labels", json!({"volferry.dev/run": "x"}), "choose another prefix"),
        ("/spec/pods/annotations", json!({"volferry.dev/x": "x"}), "choose another prefix"),
        ("/spec/pods/resources/limits", json!({"cpu": true}), "is not of types"),
        ("/spec/pods/resources", json!({"limits": {"memory": "much"}}), "does not match"),
        ("/spec/pods/resources", json!({"requests": {"cpu": "1 core"}}), "does not match"),
        ("/status/made", json!("up"), "unknown field made"),
        ("/spec/sources", json!({}), "unknown field sources"),
        ("/specs", json!({}), "unknown field specs"),
        ("/metadata/nam", json!("x"), "unknown field nam"),
        ("/metadata/name", json!("Web"), "lower-case letters"),
        ("/metadata", json!({}), "metadata.name"),
    ]);
}

/// Returns the violated rules of a change from the minimal SyncJob with `old` to the one with `new`.
fn changed(old: &[(&str, Value)], new: &[(&str, Value)]) -> Vec<String> {
    let with = |changes: &[(&str, Value)]| {
        let mut manifest: Value = serde_saphyr::from_str(LEAST).unwrap();
        changes.iter().for_each(|(pointer, value)| set(&mut manifest, pointer, value.clone()));
        drop_nulls(&mut manifest);
        manifest
    };
    let kind = kind_of(&with(new)).unwrap().unwrap();
    let judged = Validator::new().validate_compiled(&kind.rules, &with(new), Some(&with(old)));
    judged.err().into_iter().flatten().map(|it| format!("{}: {}", it.field_path, it.message)).collect()
}

#[test]
fn what_would_orphan_data_cannot_change() {
    const CLAIM: &str = "/spec/destination/persistentVolumeClaim";
    let size = |size: &str| [("/spec/destination/create", json!({"size": size}))];
    let refused = [
        (changed(&[], &[(CLAIM, json!({"claimName": "c"}))]), "the destination's claim cannot change"),
        (changed(&[], &[("/spec/destination/path", json!("/x"))]), "destination.path cannot change"),
        (
            changed(&size("1Gi"), &[size("1Gi")[0].clone(), ("/spec/deletionPolicy", json!("Delete"))]),
            "deletionPolicy cannot change",
        ),
        (changed(&size("1Gi"), &size("2Gi")), "destination.create cannot change"),
        (
            changed(&[("/spec/destination/create", json!({"size": "1Gi", "grow": true}))], &size("2Gi")),
            "destination.create cannot change",
        ),
    ];
    for (problems, advice) in refused {
        assert!(problems.len() == 1 && problems[0].contains(advice), "{advice}: {problems:?}");
    }
}

#[test]
fn a_claim_that_may_grow_can_be_told_a_size() {
    let grows = |size: &str| [("/spec/destination/create", json!({"size": size, "grow": true}))];
    assert_eq!(changed(&[("/spec/destination/create", json!({}))], &grows("1Gi")), Vec::<String>::new());
    assert_eq!(changed(&grows("1Gi"), &grows("2Gi")), Vec::<String>::new());
    let other = [("/spec/destination/create", json!({"size": "2Gi", "grow": true, "storageClassName": "x"}))];
    assert_eq!(changed(&grows("1Gi"), &other).len(), 1, "its class cannot change");
}

#[test]
fn all_else_may_change() {
    for new in [
        ("/spec/source/persistentVolumeClaim/claimName", json!("c")),
        ("/spec/source/path", json!("/x")),
        ("/spec/destination/create", json!({})),
        ("/spec/trigger", json!("2")),
        ("/spec/files", json!({"delete": true})),
    ] {
        assert_eq!(changed(&[], from_ref(&new)), Vec::<String>::new(), "{new:?}");
        assert_eq!(changed(from_ref(&new), &[]), Vec::<String>::new(), "{new:?}");
    }
}

#[test]
fn one_mistake_gives_one_problem() {
    for (pointer, value) in [
        ("/spec/schedule/cron", json!("bad")),
        ("/spec/transfer/bandwidthLimit", json!("bad")),
        ("/spec/limits/timeout", json!("bad")),
        ("/spec/source/path", json!("bad")),
        ("/spec/destination/create/size", json!("bad")),
        ("/spec/regression/threshold", json!("bad")),
        ("/spec/files/include", json!(["\n", "\n"])),
    ] {
        assert_eq!(problems(pointer, value).len(), 1, "{pointer}");
    }
}

#[test]
fn what_is_not_of_this_api_is_named() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    let error = admit(pod).unwrap_err();
    assert!(error.to_string().starts_with("Pod p is not an object of Volferry"), "{error}");
    let old: Value = serde_saphyr::from_str(&LEAST.replace("v1alpha1", "v1")).unwrap();
    assert!(matches!(admit(old), Err(AdmissionError::Kind { .. })));
    assert!(matches!(admit(json!("just text")), Err(AdmissionError::Kind { .. })));
}

#[test]
fn booleans_are_read_as_kubectl_reads_them() {
    let job = job("  files: {delete: yes}\n  suspend: on").unwrap();
    assert!(job.spec.files.delete && job.spec.suspend);
}
