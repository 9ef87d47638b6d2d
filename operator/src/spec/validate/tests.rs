use serde_json::{Value, json};

use super::*;
use crate::spec::inner_folder::InnerFolder;

fn spec(more: &Value) -> SyncJobSpec {
    let mut spec = json!({
        "source": {"persistentVolumeClaim": {"claimName": "a"}},
        "destination": {"persistentVolumeClaim": {"claimName": "b"}},
    });
    merge(&mut spec, more);
    serde_json::from_value(spec).unwrap()
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn judged(more: &Value) -> Result<ValidatedSyncJob, ValidationError> {
    validate(&spec(more), "web", "prod")
}

fn claim(name: &str) -> NamespacedClaim {
    NamespacedClaim { namespace: "prod".into(), name: name.into() }
}

fn path(end: &EndKind) -> &str {
    end.mounted().unwrap().folder.as_str()
}

const KEY: &str = "2Ej8lyFbGXtk9sU3e3mYwA3HnJpKKeG1kcLEcQWvY1Q=";

#[test]
fn an_end_is_a_claim_or_an_endpoint() {
    let endpoint = json!({"address": "copy.example.org::web/x", "publicKey": KEY});
    let to = json!({"destination": {"persistentVolumeClaim": null, "endpoint": endpoint}});
    let job = judged(&to).unwrap();
    assert_eq!(job.outside(), Some(Side::Sink));
    assert_eq!(job.ends.sink.to_string(), "the endpoint copy.example.org:7400::web/x");
    assert!(!job.is_local && job.ends.source.claim().is_some());
    for (more, field) in [
        (json!({"destination": {"endpoint": endpoint}}), "spec.destination: "),
        (json!({"source": {"persistentVolumeClaim": null}}), "spec.source: "),
    ] {
        let said = judged(&more).unwrap_err().to_string();
        assert!(said.starts_with(field) && said.contains("exactly one"), "{said}");
    }
}

/// The CRD's rules refuse the same, from the same table; an older CRD does not.
#[test]
fn each_limit_of_an_endpoint_refuses_a_spec() {
    let endpoint = json!({"address": "copy.example.org::web", "publicKey": KEY});
    let from = json!({"persistentVolumeClaim": null, "endpoint": endpoint});
    let asked = [
        json!({"source": from, "destination": from}),
        json!({"source": {"path": "/x"}}),
        json!({"destination": {"path": "/x"}}),
        json!({"source": {"pointInTime": {"method": "Snapshot"}}}),
        json!({"source": {"snapshot": "latest", "trustStore": true}}),
        json!({"source": {"pods": {"nodeSelector": {"a": "b"}}}}),
        json!({"destination": {"pods": {"nodeSelector": {"a": "b"}}}}),
        json!({"destination": {"create": {}}}),
        json!({"destination": {"volumeSnapshots": {}}}),
        json!({"snapshots": {}}),
        json!({"source": {"persistentVolumeClaim": {"claimName": "a", "namespace": "other"}}}),
        json!({"destination": {"persistentVolumeClaim": {"claimName": "b", "namespace": "other"}}}),
        json!({"transfer": {"placement": "Local"}}),
        json!({"parallelism": 2}),
    ];
    let of_buckets = [
        json!({"source": from}),
        json!({"source": {"persistentVolumeClaim": {"claimName": "a", "namespace": "other"}}}),
        json!({"source": {"snapshot": "latest"}}),
        json!({"source": {"history": "All"}}),
        json!({"destination": {"path": "/x"}}),
        json!({"destination": {"create": {}}}),
        json!({"snapshots": {"minKeep": 1}}),
        json!({"files": {"delete": true}}),
    ];
    assert_eq!(asked.len() + of_buckets.len(), REMOTE_LIMITS.len());
    for (more, limit) in asked.iter().zip(REMOTE_LIMITS) {
        let is_of_source = limit.field.starts_with("source.") && !limit.field.contains("Claim")
            || limit.field.starts_with("destination.persistent");
        let mut remote = if is_of_source { json!({"source": from}) } else { json!({"destination": from}) };
        merge(&mut remote, more);
        let said = judged(&remote).unwrap_err().to_string();
        assert_eq!(said, format!("spec.{}: {}", limit.field, limit.problem), "{remote}");
    }
    let limits = REMOTE_LIMITS.iter().skip(asked.len());
    for (more, limit) in of_buckets.iter().zip(limits) {
        let said = judged(&to_bucket(more)).unwrap_err().to_string();
        assert_eq!(said, format!("spec.{}: {}", limit.field, limit.problem), "{more}");
    }
}

/// Adds object storage as the destination.
fn to_bucket(more: &Value) -> Value {
    let store = json!({"url": "s3://backups/web/", "secretRef": {"name": "s3"}});
    let mut spec = json!({"destination": {"persistentVolumeClaim": null, "objectStore": store}});
    merge(&mut spec, more);
    spec
}

#[test]
fn object_storage_is_asked_for_snapshots_alone() {
    let job = judged(&to_bucket(&json!({}))).unwrap();
    assert_eq!(job.outside(), Some(Side::Sink));
    assert_eq!(job.ends.sink.to_string(), "the object storage s3://backups/web");
    assert!(!job.is_local && job.remote().is_none());
    let asked = job.params.demands.snapshot.unwrap();
    assert!(!asked.keep.has_rule() && asked.job.ends_with("/web"), "{asked:?}");
    let rules = judged(&to_bucket(&json!({"snapshots": {"retain": {"daily": 7}}}))).unwrap();
    assert_eq!(rules.params.demands.snapshot.unwrap().keep.daily, 7);
    for (more, field) in [
        (json!({"files": {"write": "InPlace"}}), "files.write"),
        (json!({"files": {"minSize": "1Ki"}}), "files.minSize"),
        (json!({"files": {"compare": "Size"}}), "files.compare"),
        (json!({"transfer": {"compression": "None"}}), "transfer.compression"),
        (json!({"destination": {"objectStore": {"url": "s3://b/../c"}}}), "destination.objectStore.url"),
    ] {
        let said = judged(&to_bucket(&more)).unwrap_err().to_string();
        assert!(said.starts_with(&format!("spec.{field}: ")), "{said}");
    }
}

#[test]
fn the_least_spec_gets_the_documented_defaults() {
    let job = judged(&json!({})).unwrap();
    assert_eq!((job.ends.source.claim(), job.ends.sink.claim()), (Some(&claim("a")), Some(&claim("b"))));
    assert_eq!((path(&job.ends.source), job.timeout.as_secs(), job.retries), ("/", 6 * 3600, 3));
    assert_eq!(
        (job.history_limit, job.params),
        (KeptRuns { succeeded: 10, failed: 5 }, RunParams::default())
    );
}

#[test]
fn what_works_is_carried_over() {
    let job = judged(&json!({
        "source": {"path": "/in", "persistentVolumeClaim": {"namespace": "prod"}},
        "destination": {"path": "/out/x"},
        "trigger": "t", "suspend": true, "historyLimit": {"succeeded": 3},
        "files": {"delete": true, "deleteLimit": {"percent": 7}, "include": ["i"], "exclude": ["-e"]},
        "limits": {"timeout": "1h30m", "retries": 0},
        "transfer": {"placement": "Network"},
        "pods": {"priorityClassName": "high"},
    }))
    .unwrap();
    assert_eq!((path(&job.ends.source), path(&job.ends.sink)), ("/in", "/out/x"));
    assert_eq!((job.trigger.as_deref(), job.suspend, job.history_limit.succeeded), (Some("t"), true, 3));
    assert_eq!((job.timeout.as_secs(), job.retries), (5400, 0));
    assert_eq!(
        job.params.to_args(),
        ["--delete", "--adopt", "--delete-limit=7", "--include=i", "--exclude=-e"]
    );
    assert_eq!(job.pods.priority_class_name.as_deref(), Some("high"));
}

#[test]
fn runs_are_compared_by_default_over_as_many_as_the_history_keeps() {
    assert_eq!(judged(&json!({})).unwrap().regression, None);
    let rule = judged(&json!({"regression": {}})).unwrap().regression.unwrap();
    assert_eq!((rule.window, rule.threshold), (10, 1.5));
    for (spec, field, word) in [
        (json!({"regression": {"window": 11}}), "regression.window", "historyLimit.succeeded keeps 10"),
        (json!({"regression": {}, "historyLimit": {"succeeded": 9}}), "regression.window", "keeps 9"),
        (json!({"regression": {"threshold": "1"}}), "regression.threshold", "not a factor above 1"),
    ] {
        match judged(&spec) {
            Err(ValidationError::Invalid { field: named, problem }) => {
                assert!(named == field && problem.contains(word), "{spec}: {named}: {problem}");
            }
            other => panic!("{spec}: {other:?}"),
        }
    }
}

#[test]
fn which_files_take_part_and_what_makes_them_equal_reaches_the_engine() {
    let files = json!({"ignoreFiles": true, "minSize": "1k", "maxSize": "2Gi", "compare": "Content"});
    let job = judged(&json!({"files": files})).unwrap();
    let flags = ["--ignore-files", "--min-size=1000", "--max-size=2147483648", "--compare=content"];
    assert_eq!(job.params.to_args(), flags);
}

#[test]
fn shards_share_the_runs_bandwidth() {
    let transfer = json!({"bandwidthLimit": "300k"});
    let job = judged(&json!({"parallelism": 3, "transfer": transfer})).unwrap();
    assert_eq!((job.parallelism, job.params.bandwidth_limit), (3, Some(100_000)));
}

#[test]
fn a_snapshot_is_restored_by_one_pod() {
    let job = judged(&json!({"source": {"snapshot": "latest"}})).unwrap();
    assert!(job.is_local);
    assert_eq!(job.params.source_snapshot.as_deref(), Some("latest"));
}

#[test]
fn a_job_onto_itself_is_refused_however_its_namespace_is_written() {
    let onto = |from: &str, to: &str| {
        judged(&json!({
            "source": {"path": from, "persistentVolumeClaim": {"claimName": "b", "namespace": "prod"}},
            "destination": {"path": to},
        }))
    };
    for (from, to) in [("/", "/"), ("/a", "/a"), ("/a", "/a/b"), ("/a/b", "/a"), ("/", "/a"), ("/a", "/")] {
        assert_eq!(onto(from, to).unwrap_err().reason(), "InvalidSpec", "{from} {to}");
    }
    for (from, to) in [("/a", "/b"), ("/a", "/ab"), ("/ab", "/a"), ("/x/a", "/x/b")] {
        assert!(onto(from, to).is_ok(), "{from} {to}");
    }
}

#[test]
fn what_needs_a_claim_of_the_own_namespace_is_refused_by_its_field_for_one_of_another() {
    let (from, to) = (
        json!({"source": {"persistentVolumeClaim": {"namespace": "other"}}}),
        json!({"destination": {"persistentVolumeClaim": {"namespace": "other"}}}),
    );
    for (elsewhere, field, value) in [
        (&from, "source.pointInTime", json!({"source": {"pointInTime": {"method": "Clone"}}})),
        (&to, "destination.create", json!({"destination": {"create": {}}})),
        (&from, "transfer.placement", json!({"transfer": {"placement": "Local"}})),
    ] {
        judged(&value).unwrap();
        let mut both = elsewhere.clone();
        merge(&mut both, &value);
        let error = judged(&both).unwrap_err().to_string();
        assert!(error.starts_with(&format!("spec.{field}: ")) && error.contains("namespace"), "{error}");
    }
}

#[test]
fn a_path_never_leads_out_of_the_volume() {
    for path in ["", "a", "..", "/..", "/a/../b", "/a/", "//", "/./a", "/.volferry", "/a/.volferry/x", "/a\0"]
    {
        assert_eq!(InnerFolder::new(path), None, "{path:?}");
        let error = judged(&json!({"source": {"path": path}})).unwrap_err();
        assert!(error.to_string().starts_with("spec.source.path: "), "{error}");
    }
    for path in ["/", "/a", "/a/b.c/..d", "/ a "] {
        assert!(InnerFolder::new(path).is_some(), "{path:?}");
    }
}

#[test]
fn what_an_older_crd_let_through_is_refused_with_the_field() {
    for (field, more) in [
        ("limits.timeout", json!({"limits": {"timeout": "tomorrow"}})),
        ("limits.timeout", json!({"limits": {"timeout": "0s"}})),
        ("limits.timeout", json!({"limits": {"timeout": "-1h"}})),
        ("limits.retries", json!({"limits": {"retries": -1}})),
        ("files.deleteLimit.percent", json!({"files": {"deleteLimit": {"percent": 300}}})),
        ("historyLimit.failed", json!({"historyLimit": {"failed": -1}})),
        ("schedule.cron", json!({"schedule": {"cron": "0 0 31 2 *"}})),
        ("schedule.timeZone", json!({"schedule": {"cron": "@daily", "timeZone": "Europe/Atlantis"}})),
        ("schedule.interval", json!({"schedule": {"interval": "0s"}})),
        ("files.minSize", json!({"files": {"minSize": "big"}})),
        ("files.maxSize", json!({"files": {"maxSize": "1.5Gi"}})),
        ("files.minSize", json!({"files": {"minSize": "2k", "maxSize": "1k"}})),
        (
            "transfer.placement",
            json!({
                "source": {"persistentVolumeClaim": {"claimName": "b"}, "path": "/x", "snapshot": "v1"},
                "destination": {"path": "/y"},
                "transfer": {"placement": "Network"},
            }),
        ),
        ("parallelism", json!({"source": {"snapshot": "v1"}, "parallelism": 2})),
        ("source.snapshot", json!({"source": {"snapshot": "v1"}, "files": {"exclude": ["*.tmp"]}})),
        ("parallelism", json!({"parallelism": 0})),
        ("parallelism", json!({"parallelism": 65})),
    ] {
        let error = judged(&more).unwrap_err();
        assert_eq!(error.reason(), "InvalidSpec");
        assert!(error.to_string().starts_with(&format!("spec.{field}: ")), "{error}");
    }
}

#[test]
fn parameters_of_the_engine_are_carried() {
    let spec = spec(&json!({
        "transfer": {"compression": "Zstd", "bandwidthLimit": "100Mi"},
        "files": {"compare": "Content", "write": "InPlace", "preserve": {"xattrs": false}},
    }));
    let params = params(&spec).unwrap();
    assert_eq!((params.compression, params.bandwidth_limit), (Compression::Level(3), Some(100 << 20)));
    assert!(!params.preserve.xattrs);
    assert_eq!((params.compare, params.write), (contract::Compare::Content, contract::WriteMode::InPlace));
}
