//! Validation and defaults by the API server itself: mistakes fail at `kubectl apply` with a message that names the
//! correction.

use e2e::{
    apiserver::{ApiServer, User},
    syncjob::{manifest, merge},
};

use crate::prelude::*;

/// Returns the answer of `kubectl apply` to a SyncJob whose spec has `others` in it. Nothing is stored.
fn try_apply(others: Value) -> Result<String, String> {
    try_manifest(&manifest("a", "from", "to", others))
}

/// Returns the answer of `kubectl apply` to a manifest. Nothing is stored.
fn try_manifest(manifest: &Value) -> Result<String, String> {
    let apply = ["apply", "--dry-run=server", "-f", "-"];
    let kubectl = ApiServer::shared().kubectl("default");
    let applied = kubectl.and_then(|kubectl| kubectl.pipe(&apply, &manifest.to_string()));
    applied.map_err(|error| error.to_string())
}

/// Asserts that `others` is refused with a message that contains each of `words`.
#[track_caller]
fn assert_refused(others: Value, words: &[&str]) {
    let shown = others.to_string();
    let message = try_apply(others).expect_err(&shown);
    for word in words {
        assert!(message.contains(word), "{shown}: no “{word}” in: {message}");
    }
}

#[track_caller]
fn assert_accepted(others: Value) {
    let shown = others.to_string();
    try_apply(others).unwrap_or_else(|message| panic!("{shown}: {message}"));
}

#[test]
fn a_cron_schedule_that_is_none_is_quoted_and_a_right_one_shown() {
    for cron in ["0 3 * *", "61 * * * *", "0 25 * * *", "* * 0 * *", "@reboot", "0 3 * * * *", "every day"] {
        assert_refused(json!({"schedule": {"cron": cron}}), &["spec.schedule.cron", cron, "0 3 * * *"]);
    }
    for cron in ["0 3 * * *", "*/15 8-18 * * MON-FRI", "0 0 1,15 * *", "@daily", "5/10 * * jan,JUL 7"] {
        assert_accepted(json!({"schedule": {"cron": cron}}));
    }
}

#[test]
fn the_same_schedules_are_taken_as_by_the_operator() {
    for line in include_str!("../../../operator/src/run/due_times/table.txt").lines() {
        let (sign, cron) = line.split_at(2);
        let applied = try_apply(json!({"schedule": {"cron": cron}}));
        assert_eq!(applied.is_ok(), sign == "+ ", "{cron}: {applied:?}");
    }
}

#[test]
fn a_schedule_is_cron_or_interval_and_not_both() {
    let words = ["spec.schedule", "exactly one of cron", "interval"];
    assert_refused(json!({"schedule": {"cron": "0 3 * * *", "interval": "30s"}}), &words);
    assert_refused(json!({"schedule": {}}), &words);
    assert_refused(
        json!({"schedule": {"interval": "30s", "timeZone": "Europe/Berlin"}}),
        &["timeZone", "cron"],
    );
    assert_accepted(json!({"schedule": {"cron": "0 3 * * *", "timeZone": "Europe/Berlin", "jitter": "10m"}}));
}

#[test]
fn an_end_is_a_claim_of_a_namespace_that_can_be() {
    for end in ["source", "destination"] {
        assert_refused(
            json!({end: {"persistentVolumeClaim": null}}),
            &[end, "exactly one of persistentVolumeClaim", "endpoint"],
        );
        assert_refused(json!({end: {"remote": {"listen": {}}}}), &["unknown field", "remote"]);
        assert_refused(
            json!({end: {"persistentVolumeClaim": {"namespace": "No_Name"}}}),
            &["persistentVolumeClaim.namespace", "No_Name"],
        );
    }
    assert_refused(json!({"source": {"pointsInTime": {}}}), &["unknown field", "pointsInTime"]);
    assert_refused(
        json!({"source": {"pointInTime": {"method": "Mirror"}}}),
        &["pointInTime.method", "Clone"],
    );
}

#[test]
fn quantities_durations_paths_and_names_are_judged_with_what_to_write_instead() {
    let cases = [
        (json!({"transfer": {"bandwidthLimit": "fast"}}), "spec.transfer.bandwidthLimit", "100Mi"),
        (json!({"transfer": {"bandwidthLimit": "1"}}), "spec.transfer.bandwidthLimit", "64Ki"),
        (json!({"destination": {"create": {"size": "ten"}}}), "spec.destination.create.size", "10Gi"),
        (json!({"limits": {"timeout": "soon"}}), "spec.limits.timeout", "1h30m"),
        (json!({"limits": {"timeout": "0s"}}), "spec.limits.timeout", "second"),
        (json!({"source": {"path": "data"}}), "spec.source.path", "begins with /"),
        (json!({"source": {"path": "/a/../b"}}), "spec.source.path", ".."),
        (json!({"destination": {"path": "/.volferry"}}), "spec.destination.path", ".volferry"),
        (
            json!({"schedule": {"cron": "@daily", "timeZone": "Europe/Berln"}}),
            "spec.schedule.timeZone",
            "Europe/Berlin",
        ),
        (json!({"regression": {"threshold": "0.5"}}), "spec.regression.threshold", "1.5"),
        (
            json!({"source": {"persistentVolumeClaim": {"claimName": "Web_Data"}}}),
            "spec.source.persistentVolumeClaim.claimName",
            "lower-case",
        ),
    ];
    for (others, field, instead) in cases {
        assert_refused(others, &[field, instead]);
    }
}

#[test]
fn no_number_exceeds_what_the_operator_can_read() {
    let term = json!({"weight": 4_294_967_296_u64, "preference": {}});
    let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}});
    assert_refused(json!({"pods": {"affinity": affinity}}), &["weight", "2147483647"]);
}

#[test]
fn sizes_can_be_spelled_as_on_the_command_line() {
    for (name, _) in contract::BYTE_UNITS {
        for text in [format!("100{name}"), format!("100{name}B")] {
            assert_accepted(json!({"transfer": {"bandwidthLimit": text}, "files": {"maxSize": text}}));
        }
    }
    assert_refused(json!({"transfer": {"bandwidthLimit": "65KB"}}), &["bandwidthLimit", "64Ki"]);
    assert_refused(json!({"files": {"minSize": "1ki"}}), &["spec.files.minSize", "100Mi"]);
}

#[test]
fn a_volume_is_not_synced_into_itself() {
    let same = |from: &str, to: &str| {
        json!({
            "source": {"path": from},
            "destination": {"persistentVolumeClaim": {"claimName": "from"}, "path": to},
        })
    };
    for (from, to) in [("/", "/"), ("/", "/a"), ("/a", "/a/b"), ("/a/b", "/a")] {
        assert_refused(same(from, to), &["source and destination overlap"]);
    }
    assert_accepted(same("/a", "/ab"));
}

#[test]
fn a_field_that_does_not_exist_is_refused_and_named() {
    assert_refused(json!({"sourse": {}}), &["sourse"]);
    assert_refused(json!({"files": {"deletee": true}}), &["files.deletee"]);
}

#[test]
fn a_word_that_is_none_of_the_list_is_answered_with_the_list() {
    assert_refused(json!({"files": {"compare": "Mtime"}}), &["spec.files.compare", "Metadata", "Content"]);
    assert_refused(json!({"concurrencyPolicy": "Allow"}), &["spec.concurrencyPolicy", "Forbid", "Replace"]);
}

#[test]
fn the_pods_labels_cannot_replace_the_operators() {
    assert_refused(
        json!({"pods": {"labels": {"volferry.dev/run": "x"}}}),
        &["spec.pods.labels", "volferry.dev/"],
    );
}

#[test]
fn an_end_must_be_named() {
    let without = json!({"source": null});
    assert_refused(without, &["spec.source"]);
}

#[test]
fn the_destination_stays_and_the_source_may_change() {
    let base = manifest("stays", "from", "to", json!({}));
    ApiServer::shared().kubectl("default").unwrap().apply(&base.to_string()).unwrap();
    let changed = |change: Value| {
        let mut manifest = base.clone();
        merge(&mut manifest["spec"], change);
        try_manifest(&manifest)
    };
    let refused = [
        json!({"destination": {"persistentVolumeClaim": {"claimName": "other"}}}),
        json!({"destination": {"path": "/elsewhere"}}),
    ];
    for change in refused {
        let shown = change.to_string();
        let message = changed(change).expect_err(&shown);
        assert!(message.contains("create another SyncJob"), "{shown}: {message}");
    }
    changed(json!({"source": {"persistentVolumeClaim": {"claimName": "other"}}})).unwrap();
    changed(json!({"trigger": "again", "suspend": true})).unwrap();
}

#[tokio::test]
async fn defaults_are_written_into_what_is_stored() {
    let server = ApiServer::shared();
    let jobs = syncjob::api(&server.client(User::Admin).await.unwrap(), "default");
    let stored = syncjob::create(&jobs, manifest("defaults", "from", "to", json!({}))).await.unwrap();
    let spec = &stored.data["spec"];
    let expected = [
        ("/source/path", json!("/")),
        ("/suspend", json!(false)),
        ("/files/compare", json!("Metadata")),
        ("/files/deleteLimit/percent", json!(50)),
        ("/files/preserve/ownership", json!("Auto")),
        ("/transfer/compression", json!("Auto")),
        ("/limits/retries", json!(3)),
        ("/limits/timeout", json!("6h")),
        ("/historyLimit", json!({"succeeded": 10, "failed": 5})),
        ("/deletionPolicy", json!("Retain")),
    ];
    for (pointer, value) in expected {
        assert_eq!(spec.pointer(pointer), Some(&value), "{pointer} in {spec:#}");
    }
}

#[tokio::test]
async fn applying_the_same_manifest_again_changes_nothing() {
    let kubectl = ApiServer::shared().kubectl("default").unwrap();
    let manifest = manifest("same", "from", "to", json!({"files": {"delete": true}})).to_string();
    let version =
        || kubectl.run(&["get", "syncjob", "same", "-o", "jsonpath={.metadata.resourceVersion}"]).unwrap();
    kubectl.apply(&manifest).unwrap();
    let first = version();
    let said = kubectl.apply(&manifest).unwrap();
    assert!(said.contains("unchanged"), "{said}");
    assert_eq!(version(), first);
}

#[test]
fn every_field_is_explained() {
    let kubectl = ApiServer::shared().kubectl("default").unwrap();
    let said = kubectl.run(&["explain", "syncjob", "--recursive=false"]).unwrap();
    assert!(said.contains("Keeps the files of one volume in step"), "{said}");
    for kind in ["syncjobs.volferry.dev", "syncruns.volferry.dev"] {
        let crd = kubectl.run(&["get", "crd", kind, "-o", "json"]).unwrap();
        let crd: Value = serde_json::from_str(&crd).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        for part in ["spec", "status"] {
            let mut undocumented = Vec::new();
            if let Some(part_schema) = schema["properties"].get(part) {
                undocumented_fields(part_schema, part, &mut undocumented);
            }
            assert!(undocumented.is_empty(), "{kind}: {undocumented:?}");
        }
    }
}

/// Collects Volferry's own fields without a description; fields of Kubernetes' types are left out, and those of the
/// SyncJob's spec in a SyncRun.
fn undocumented_fields(schema: &Value, path: &str, found: &mut Vec<String>) {
    const OF_OTHERS: [&str; 6] =
        ["affinity", "tolerations", "resources", "conditions", "imagePullSecrets", "job"];
    let fields = schema["properties"].as_object().into_iter().flatten();
    for (name, field) in fields.filter(|(name, _)| !OF_OTHERS.contains(&name.as_str())) {
        let path = format!("{path}.{name}");
        if field["description"].as_str().unwrap_or_default().is_empty() {
            found.push(path.clone());
        }
        undocumented_fields(field, &path, found);
        undocumented_fields(&field["items"], &path, found);
    }
}
