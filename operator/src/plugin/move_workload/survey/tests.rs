use super::*;

fn object(spec: &Value) -> DynamicObject {
    serde_json::from_value(
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "uid": "u"},
        "spec": spec}),
    )
    .unwrap()
}

fn claim(name: &str, class: &str) -> PersistentVolumeClaim {
    let annotations = json!({"pv.kubernetes.io/bind-completed": "yes", "team": "web"});
    let metadata = json!({"name": name, "uid": "c", "labels": {"app": "db"}, "annotations": annotations});
    let spec = json!({"storageClassName": class, "accessModes": ["ReadWriteOnce"], "volumeName": "pv-1"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": {"phase": "Bound"}})).unwrap()
}

fn flags(claims: &[&str]) -> MoveFlags {
    MoveFlags {
        workload: "sts/db".parse().unwrap(),
        to_class: Some("fast".into()),
        claims: claims.iter().copied().map(Into::into).collect(),
        apply: false,
        back: false,
        forget: false,
        no_verify: false,
        any_owner: false,
        timeout: std::time::Duration::from_secs(1),
    }
}

fn pod(claim: &str, owner: &str, phase: &str) -> Pod {
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": owner});
    serde_json::from_value(json!({"metadata": {"name": "db-0", "ownerReferences": [owner]},
        "spec": {"nodeName": "node-1", "containers": [], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]},
        "status": {"phase": phase}}))
    .unwrap()
}

#[test]
fn the_claims_of_templates_and_volumes_are_found_and_chosen() {
    let volumes = json!([{"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}]);
    let templates = json!([{"metadata": {"name": "data"}}, {"metadata": {"name": "wal"}, "spec": {"storageClassName": "s"}}]);
    let db = object(&json!({"template": {"spec": {"volumes": volumes}}, "volumeClaimTemplates": templates}));
    let names =
        ["data-db-0", "data-db-11", "wal-db-0", "shared", "data-db-x", "data-db-", "data-dbs-0", "other"];
    let claims = names.map(|name| claim(name, if name == "data-db-11" { "fast" } else { "slow" }));
    let found = of_workload(WorkloadKind::StatefulSet, &db, &claims);
    let shown =
        |found: &[TemplatedClaim<'_>]| found.iter().map(|(claim, _)| claim.name_any()).collect::<Vec<_>>();
    assert_eq!(shown(&found), ["data-db-0", "data-db-11", "wal-db-0", "shared"]);
    assert_eq!(shown(&of_workload(WorkloadKind::Deployment, &db, &claims)), ["shared"]);
    let at = Scope { namespace: Some("prod".into()), ..Scope::default() };
    assert_eq!(
        shown(&chosen(&found, &flags(&[]), "fast", &at).unwrap()),
        ["data-db-0", "wal-db-0", "shared"]
    );
    assert_eq!(
        shown(&chosen(&found, &flags(&["data", "shared"]), "fast", &at).unwrap()),
        ["data-db-0", "shared"]
    );
    let error = chosen(&found, &flags(&["cache"]), "fast", &at).unwrap_err();
    assert_eq!(error.to_string(), "statefulset/db has no claim or template cache");
    assert!(error.hint(&at).contains("wal-db-0"), "{}", error.hint(&at));
    let error = chosen(&found, &flags(&["data-db-11"]), "fast", &at).unwrap_err();
    assert!(error.hint(&at).starts_with("`kubectl get pvc -n prod`"), "it has that class already: {error}");
}

#[test]
fn a_claim_that_another_pod_uses_and_a_workload_that_another_owner_scales_are_refused() {
    let own = BTreeSet::from([String::from("u")]);
    let claim = claim("data-db-0", "slow");
    check_users(&claim, &[pod("data-db-0", "u", "Running"), pod("other", "x", "Running")], &own).unwrap();
    check_users(&claim, &[pod("data-db-0", "x", "Succeeded")], &own).unwrap();
    let error = check_users(&claim, &[pod("data-db-0", "x", "Pending")], &own).unwrap_err();
    assert!(error.to_string().contains("is used by pod db-0"), "{error}");
    assert_eq!(node_of(&claim, &[pod("data-db-0", "u", "Running")]).as_deref(), Some("node-1"));
}

#[test]
fn a_claim_is_made_anew_with_its_labels_and_without_its_volume() {
    let moved = moved(&claim("data-db-0", "slow"), None);
    assert_eq!(moved.old_volume, "pv-1");
    let metadata = json!({"name": "data-db-0", "labels": {"app": "db"}, "annotations": {"team": "web"}});
    let spec = json!({"storageClassName": "slow", "accessModes": ["ReadWriteOnce"]});
    assert_eq!(moved.manifest, json!({"metadata": metadata, "spec": spec}));
}

#[test]
fn syncers_run_as_the_workload_does_unless_they_may_be_root() {
    let of = |pod: Value, container: Value| {
        let template = json!({"securityContext": pod, "containers": [{"securityContext": container}], "tolerations": [{"key": "k"}]});
        json!({"spec": {"template": {"spec": template}}})
    };
    let typed = of(json!({"runAsUser": 1, "fsGroup": 7}), json!({"runAsUser": 5}));
    let tolerations = json!([{"key": "k"}]);
    assert_eq!(
        pods_of(false, &typed),
        json!({"tolerations": tolerations, "securityContext": {"runAsUser": 5, "fsGroup": 7}})
    );
    assert_eq!(pods_of(true, &typed), json!({"tolerations": tolerations}));
    assert_eq!(pods_of(false, &of(json!({"runAsUser": 0}), json!({}))), json!({"tolerations": tolerations}));
}
