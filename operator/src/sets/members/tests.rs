use kube::api::ObjectMeta;

use super::*;

fn set(more: &Value) -> SyncJobSet {
    let end = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
    let mut spec = json!({
        "claimSelector": {"matchLabels": {"app": "web"}},
        "template": {"spec": {"source": end("{{ .claim.name }}"), "destination": end("{{ .claim.name }}-copy")}},
    });
    for (name, value) in more.as_object().unwrap() {
        spec[name] = value.clone();
    }
    let metadata = json!({"name": "web", "namespace": "prod", "uid": "u", "generation": 1});
    let kind = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJobSet", "metadata": metadata, "spec": spec});
    serde_json::from_value(kind).unwrap()
}

fn claim(name: &str, labels: Value) -> Arc<PersistentVolumeClaim> {
    let metadata = ObjectMeta {
        name: Some(name.into()),
        namespace: Some("prod".into()),
        labels: serde_json::from_value(labels).unwrap(),
        ..ObjectMeta::default()
    };
    Arc::new(PersistentVolumeClaim { metadata, ..PersistentVolumeClaim::default() })
}

fn web(name: &str) -> Arc<PersistentVolumeClaim> {
    claim(name, json!({"app": "web"}))
}

/// Returns the SyncJob as the API server has it after a change was applied, with the defaults of its schema.
fn applied(change: &Change) -> MemberJob {
    let mut job: SyncJob = serde_json::from_value(change.manifest.clone()).unwrap();
    job.metadata.uid = Some(format!("uid-of-{}", change.name));
    Arc::new(DeserializeGuard(Ok(job)))
}

fn changed(job: &MemberJob, change: impl Fn(&mut SyncJob)) -> MemberJob {
    let mut job = job.0.as_ref().unwrap().clone();
    change(&mut job);
    Arc::new(DeserializeGuard(Ok(job)))
}

fn made(set: &SyncJobSet, claims: &[Arc<PersistentVolumeClaim>]) -> Vec<MemberJob> {
    plan(set, claims, &[]).apply.iter().map(applied).collect()
}

fn names(changes: &[Change]) -> Vec<&str> {
    changes.iter().map(|change| change.name.as_str()).collect()
}

#[test]
fn each_claim_that_matches_gets_a_job_and_then_nothing_more_is_to_do() {
    let (set, claims) = (set(&json!({})), [web("b"), web("a"), claim("other", json!({"app": "db"}))]);
    let first = plan(&set, &claims, &[]);
    assert_eq!((first.matched, names(&first.apply)), (2, vec!["web-a", "web-b"]));
    assert!(first.apply.iter().all(|change| change.uid.is_none()));
    let jobs: Vec<MemberJob> = first.apply.iter().map(applied).collect();
    let second = plan(&set, &claims, &jobs);
    assert!(second.apply.is_empty() && second.delete.is_empty() && second.problems.is_empty(), "{second:?}");
    assert_eq!(second.members.len(), 2);
}

#[test]
fn a_changed_template_and_a_changed_job_are_applied_and_a_persons_own_fields_stay() {
    let claims = [web("a")];
    let jobs = made(&set(&json!({})), &claims);
    let mut other = set(&json!({}));
    other.spec.template.spec.insert("files".into(), json!({"delete": true}));
    let change = plan(&other, &claims, &jobs).apply.remove(0);
    assert_eq!(
        (change.uid.as_deref(), &change.manifest["spec"]["files"]),
        (Some("uid-of-web-a"), &json!({"delete": true}))
    );
    let drifted = [
        changed(&jobs[0], |job| job.spec.suspend = true),
        changed(&jobs[0], |job| drop(job.labels_mut().remove(names::LABEL_SYNCJOBSET))),
    ];
    for job in drifted {
        assert_eq!(plan(&set(&json!({})), &claims, &[job]).apply.len(), 1);
    }
    let own = changed(&jobs[0], |job| {
        job.spec.trigger = Some("now".into());
        job.annotations_mut().insert("volferry.dev/cancel".into(), "web-a-1".into());
    });
    assert!(plan(&set(&json!({})), &claims, &[own]).apply.is_empty());
}

#[test]
fn a_job_that_is_not_the_sets_own_is_named_and_left_alone() {
    let claims = [web("a"), web("b")];
    let mut jobs = made(&set(&json!({})), &claims);
    jobs[0] = changed(&jobs[0], |job| {
        job.metadata.owner_references = None;
        job.spec.suspend = true;
    });
    let planned = plan(&set(&json!({})), &claims, &jobs);
    assert!(planned.apply.is_empty() && planned.delete.is_empty());
    assert_eq!(planned.members.iter().collect::<Vec<_>>(), ["web-b"]);
    let problem = &planned.problems[0];
    assert_eq!((problem.reason.as_str(), problem.sync_job.as_deref()), ("NameTaken", Some("web-a")));
    jobs[0] = changed(&jobs[0], |job| {
        job.metadata.owner_references = Some(vec![template::owner_reference("theirs", "other")]);
    });
    let planned = plan(&set(&json!({})), &claims, &jobs);
    assert!(planned.problems[0].message.contains("the SyncJobSet theirs's"), "{planned:?}");
}

#[test]
fn two_claims_do_not_share_a_job() {
    let mut set = set(&json!({}));
    set.spec.template.metadata.name = Some("one".into());
    let planned = plan(&set, &[web("a"), web("b")], &[]);
    assert_eq!(names(&planned.apply), ["one"]);
    assert!(planned.problems[0].message.contains("the claims a and b would share the SyncJob one"));
}

#[test]
fn the_job_of_a_claim_that_went_away_is_suspended_or_deleted_and_goes_on_when_it_comes_back() {
    let keeping = set(&json!({}));
    let jobs = made(&keeping, &[web("a"), web("b")]);
    for gone in [vec![web("a")], vec![web("a"), claim("b", json!({"app": "db"}))]] {
        let planned = plan(&keeping, &gone, &jobs);
        assert!(planned.delete.is_empty());
        assert_eq!(names(&planned.apply), ["web-b"]);
        assert_eq!(planned.kept.iter().collect::<Vec<_>>(), ["web-b"]);
        let suspended = applied(&planned.apply[0]);
        assert!(suspended.0.as_ref().unwrap().spec.suspend);
        let then = plan(&keeping, &gone, &[jobs[0].clone(), suspended.clone()]);
        assert!(then.apply.is_empty() && then.kept.len() == 1, "{then:?}");
        let back = plan(&keeping, &[web("a"), web("b")], &[jobs[0].clone(), suspended]);
        assert_eq!(back.apply[0].manifest["spec"]["suspend"], false);
    }
    let deleting = set(&json!({"deletionPolicy": "Delete"}));
    let planned = plan(&deleting, &[web("a")], &jobs);
    assert_eq!((planned.apply.len(), planned.delete[0].name.as_str()), (0, "web-b"));
    assert_eq!((planned.delete[0].uid.as_str(), planned.delete[0].claim.as_str()), ("uid-of-web-b", "b"));
}

#[test]
fn a_job_stays_while_its_claim_matches_and_the_template_does_not_suit_it() {
    let mut deleting = set(&json!({"deletionPolicy": "Delete"}));
    let jobs = made(&deleting, &[web("a")]);
    deleting.spec.template.metadata.name = Some("{{ .claim.labels.team }}".into());
    let planned = plan(&deleting, &[web("a")], &jobs);
    assert!(planned.delete.is_empty() && planned.apply.is_empty(), "{planned:?}");
    assert!(planned.problems[0].message.contains("no value of the label team"));
    // Under a new name, the one before is left with the copy that it owns, which no claim that is gone takes along.
    deleting.spec.template.metadata.name = Some("new-{{ .claim.name }}".into());
    let planned = plan(&deleting, &[web("a")], &jobs);
    assert!(planned.delete.is_empty(), "{planned:?}");
    assert_eq!(names(&planned.apply), ["new-a", "web-a"]);
    assert!(applied(&planned.apply[1]).0.as_ref().unwrap().spec.suspend);
}

#[test]
fn what_a_set_writes_to_and_what_is_there_for_a_run_get_no_jobs() {
    let (set, made) = (set(&json!({})), json!({"app": "web", "volferry.dev/run": "web-1"}));
    let planned = plan(&set, &[web("a"), web("a-copy"), web("a-copy-copy"), claim("x", made)], &[]);
    assert_eq!((planned.matched, names(&planned.apply)), (1, vec!["web-a"]));
    assert!(planned.problems.is_empty());
}

#[test]
fn claims_that_sync_onto_themselves_match() {
    let mut within = set(&json!({}));
    let end = |path: &str| json!({"persistentVolumeClaim": {"claimName": "{{ .claim.name }}"}, "path": path});
    within.spec.template.spec =
        serde_json::from_value(json!({"source": end("/a"), "destination": end("/b")})).unwrap();
    assert_eq!(plan(&within, &[web("a")], &[]).matched, 1);
}

#[test]
fn a_template_is_judged_though_no_claim_matches() {
    let mut wrong = set(&json!({}));
    assert!(plan(&wrong, &[], &[]).problems.is_empty());
    wrong.spec.template.spec.insert("fils".into(), json!({}));
    let planned = plan(&wrong, &[], &[]);
    assert_eq!(planned.problems[0].claim, None);
    assert!(planned.problems[0].message.contains("spec.template.spec: unknown field fils"), "{planned:?}");
}

#[test]
fn a_selector_that_is_wrong_or_empty_changes_nothing() {
    let mut deleting = set(&json!({"deletionPolicy": "Delete"}));
    let jobs = made(&deleting, &[web("a")]);
    let wrong = json!({"matchExpressions": [{"key": "app", "operator": "Near"}]});
    deleting.spec.claim_selector = serde_json::from_value(wrong).unwrap();
    let planned = plan(&deleting, &[web("a")], &jobs);
    assert!(
        planned.delete.is_empty() && planned.problems[0].message.starts_with("spec.claimSelector:"),
        "{planned:?}"
    );
    assert!(!selects(&SyncJobSet { spec: Default::default(), ..deleting }, &web("a")).unwrap());
}

#[test]
fn a_selector_by_expressions_matches_as_kubernetes_does() {
    let mut set = set(&json!({}));
    let not = json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["tmp"]}]});
    set.spec.claim_selector = serde_json::from_value(not).unwrap();
    let claims = [web("a"), claim("b", json!({"app": "web", "tier": "tmp"}))];
    assert_eq!(plan(&set, &claims, &[]).matched, 1);
}
