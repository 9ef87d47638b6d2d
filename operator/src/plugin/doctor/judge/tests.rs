use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::{api::crds, plugin::doctor::finding::Severity};

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn at() -> Scope {
    Scope { namespace: Some("prod".into()), context: Some("far".into()), ..Scope::default() }
}

fn pod(ready: &str, restarts: i32, state: &Value) -> Pod {
    read(json!({
        "metadata": {"name": "op", "namespace": "sys"},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [{
                "name": "operator", "image": "volferry:1", "imageID": "", "ready": ready == "True",
                "restartCount": restarts, "state": state,
            }],
        },
    }))
}

#[test]
fn missing_kinds_are_named() {
    let served = ["syncjobs", "syncjobs/status"].map(String::from);
    assert_eq!(
        kinds(&served, &at()).lines()[0],
        "error: the CRDs of syncruns, syncgrants, syncjobsets, syncendpoints are not installed"
    );
    assert_eq!(
        kinds(
            &["syncjobs", "syncruns", "syncgrants", "syncjobsets", "syncendpoints"].map(String::from),
            &at()
        )
        .severity,
        Severity::Ok
    );
}

#[test]
fn a_crd_of_another_version_is_found() {
    let own = &crds()[0];
    assert_eq!(schema(own, own).severity, Severity::Ok);
    let (written, served) = (json!({"default": [0.0]}), json!({"default": [0]}));
    assert!(is_same(&written, &served) && !is_same(&written, &json!({"default": [1]})));
    let mut other = own.clone();
    other.spec.versions[0].schema = None;
    assert_eq!(schema(&other, own).severity, Severity::Warning);
}

#[test]
fn the_operators_pods_are_judged() {
    let missing = operator(&[], &at())[0].lines();
    assert_eq!(missing[0], "error: no pod of the operator is there");
    assert!(missing[1].ends_with("--create-namespace --kube-context=far"), "{missing:?}");
    let said = |pod: Pod| operator(&[pod], &at())[0].lines();
    assert_eq!(said(pod("True", 0, &json!({}))), ["ok: the operator's pod sys/op is ready (volferry:1)"]);
    let waiting = said(pod("False", 0, &json!({"waiting": {"reason": "ImagePullBackOff"}})));
    assert_eq!(waiting[0], "error: the operator's pod sys/op is not ready (ImagePullBackOff)");
    assert!(said(pod("True", 9, &json!({})))[1].ends_with("kubectl logs -n sys --context=far op --previous"));
}

#[test]
fn a_namespace_that_refuses_root_pods_is_an_error() {
    let judged = |labels: Value, annotations: Value| {
        let read = read(json!({"metadata": {"name": "prod", "labels": labels, "annotations": annotations}}));
        namespace(&read, &at())
    };
    let root = json!({names::ANNOTATION_PRIVILEGED: "true"});
    assert_eq!(judged(json!({ENFORCED: "restricted"}), root.clone()).severity, Severity::Error);
    assert_eq!(judged(json!({ENFORCED: "baseline"}), root).severity, Severity::Ok);
    assert_eq!(judged(json!({ENFORCED: "restricted"}), json!({})).severity, Severity::Ok);
    assert_eq!(judged(json!({}), json!({names::ANNOTATION_PRIVILEGED: "yes"})).severity, Severity::Error);
}

#[test]
fn nodes_that_are_not_ready_are_named() {
    let node = |name: &str, ready: &str| {
        read(
            json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}),
        )
    };
    let findings = nodes(&[node("a", "True"), node("b", "Unknown")], &at());
    assert_eq!(findings[0].text, "1 of 2 nodes are ready");
    assert!(findings[1].text.starts_with("the node b is not ready"), "{findings:?}");
    assert_eq!(findings[1].hint.as_deref(), Some("kubectl describe node --context=far b"));
}

#[test]
fn a_missing_right_names_its_role() {
    assert_eq!(right("create", "syncruns", "prod", true, "edit"), None);
    let finding = right("create", "syncruns", "prod", false, "edit").unwrap();
    assert_eq!(
        finding.lines(),
        ["warning: you may not create syncruns in namespace prod", "hint: the role edit includes it"]
    );
}

#[test]
fn a_claim_that_will_be_created_is_no_error() {
    let missing = Claim {
        side: contract::Side::Sink,
        name: "prod/copy".into(),
        found: None,
        class: claims::Class::Unknown,
    };
    assert_eq!(claim(&missing, true, &at()).severity, Severity::Note);
    let refused = claim(&missing, false, &at());
    assert!(refused.severity == Severity::Error && refused.text.contains("prod/copy"), "{refused:?}");
    assert_eq!(refused.hint.as_deref(), Some("kubectl get pvc,storageclass -n prod --context=far"));
}

#[test]
fn a_job_tells_of_its_spec_its_conditions_and_its_failures() {
    let condition = |kind: &str, status: &str| {
        let time = "2026-11-22T20:44:47Z";
        json!({"type": kind, "status": status, "reason": "R", "message": "said", "lastTransitionTime": time})
    };
    let whole: SyncJob = read(json!({
        "apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob",
        "metadata": {"name": "web", "namespace": "prod", "generation": 3},
        "spec": {
            "source": {"persistentVolumeClaim": {"claimName": "to"}},
            "destination": {"persistentVolumeClaim": {"claimName": "to"}},
            "suspend": true,
        },
        "status": {
            "observedGeneration": 2,
            "conditions": [condition("Ready", "False"), condition("Stalled", "True"), condition("Incomplete", "True")],
            "history": [
                {"id": "web-3", "result": "Succeeded"},
                {"id": "web-2", "result": "Failed", "reason": "PeerLost"},
            ],
        },
    }));
    let said: Vec<String> =
        job(&whole, &Scope::default()).iter().map(|finding| finding.lines()[0].clone()).collect();
    assert!(
        said[0].starts_with("error: the spec cannot be run: ")
            && said[0].contains("overlaps with the source"),
        "{said:?}"
    );
    assert_eq!(
        said[1..],
        [
            "warning: the operator has not seen this spec yet",
            "note: it is suspended: kubectl volferry resume -n prod web",
            "error: Stalled: said",
            "warning: Incomplete: said",
            "warning: 1 of the last 2 runs did not succeed, the newest of them web-2 (PeerLost)",
        ]
    );
}

#[test]
fn the_operator_that_holds_a_namespace_is_named_and_so_is_one_that_has_given_no_sign() {
    let lease: Lease = serde_json::from_value(json!({"spec": {"holderIdentity": "team/volferry-operator",
        "leaseDurationSeconds": 180, "renewTime": "2026-11-22T18:00:00.000000Z"}}))
    .unwrap();
    let at = |time: &str| holder("prod", Some(&lease), time.parse().unwrap());
    let fresh = at("2026-11-22T18:03:00Z");
    assert_eq!(fresh.severity, Severity::Ok);
    assert!(fresh.text.contains("team/volferry-operator works in namespace prod"), "{fresh:?}");
    assert_eq!(at("2026-11-22T18:03:01Z").severity, Severity::Warning);
    assert_eq!(holder("prod", None, Timestamp::now()).severity, Severity::Note);
}
