use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::{core::DeserializeGuard, runtime::reflector};

use super::*;
use crate::api::{ClaimReference, Stage, SyncJobSpec, SyncRunSpec, SyncRunStatus};

fn job(claim: &str) -> SyncJob {
    let mut spec = SyncJobSpec::default();
    spec.source.persistent_volume_claim = Some(ClaimReference { claim_name: claim.into(), namespace: None });
    spec.source.path = "/".into();
    let mut job = SyncJob::new("web", spec);
    job.metadata.namespace = Some("prod".into());
    job
}

fn unreadable() -> Guarded {
    let manifest = serde_json::json!({
        "apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob",
        "metadata": {"name": "newer", "namespace": "prod", "generation": 1},
        "spec": {"source": "a shape of the future"},
    });
    serde_json::from_value(manifest).unwrap()
}

#[test]
fn a_job_that_cannot_be_read_is_told_by_its_metadata() {
    let mut job = unreadable();
    assert!(job.0.is_err());
    let before = interest(&job);
    assert_eq!(before, interest(&unreadable()));
    job.meta_mut().generation = Some(2);
    assert_ne!(before, interest(&job));
}

#[test]
fn the_progress_of_a_run_is_of_no_interest_and_all_else_is() {
    let run = || SyncRun::new("web-1", SyncRunSpec::default());
    let plain = interest_in_run(&run());
    let changed = |change: fn(&mut SyncRunStatus)| {
        let mut run = run();
        change(run.status.get_or_insert_default());
        interest_in_run(&run)
    };
    assert_eq!(plain, changed(|status| status.progress = Some(Default::default())));
    assert_eq!(plain, changed(|status| status.summary = Some(Default::default())));
    assert_eq!(plain, changed(|status| status.contacts = Some(Default::default())));
    assert_ne!(plain, changed(|status| status.ends = Some(Default::default())));
    assert_ne!(plain, changed(|status| status.stage = Some(Stage::Running)));
}

#[test]
fn that_a_job_is_gone_is_of_interest_also_after_it_was_being_deleted_for_a_while() {
    for deleted in [None, Some(Time(Timestamp::UNIX_EPOCH))] {
        let mut last = job("a");
        last.metadata.deletion_timestamp = deleted;
        let before = interest(&DeserializeGuard(Ok(last.clone())));
        let watcher::Event::Delete(gone) = marked(watcher::Event::Delete(DeserializeGuard(Ok(last)))) else {
            panic!()
        };
        assert_ne!(before, interest(&gone));
    }
}

#[test]
fn what_changes_of_a_job_is_of_interest() {
    let plain = interest(&DeserializeGuard(Ok(job("a"))));
    let changed = |change: fn(&mut SyncJob)| {
        let mut job = job("a");
        change(&mut job);
        interest(&DeserializeGuard(Ok(job)))
    };
    assert_ne!(plain, changed(|job| job.metadata.generation = Some(2)));
    assert_ne!(plain, changed(|job| job.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH))));
    assert_ne!(plain, changed(|job| job.metadata.uid = Some("other".into())));
}

#[test]
fn the_end_of_a_job_is_of_interest_though_nothing_in_it_has_changed() {
    let job = || DeserializeGuard(Ok(job("a")));
    let watcher::Event::Delete(gone) = marked(watcher::Event::Delete(job())) else { panic!("not gone") };
    assert_ne!(interest(&gone), interest(&job()));
    let watcher::Event::Apply(there) = marked(watcher::Event::Apply(job())) else { panic!("gone") };
    assert_eq!(interest(&there), interest(&job()));
}

#[test]
fn a_job_without_a_started_run_wakes_those_that_wait_for_its_claims() {
    let named = |name: &str, claim: &str, run: Option<(Option<i64>, &str)>| {
        let mut job = job(claim);
        job.metadata.name = Some(name.into());
        job.status.get_or_insert_default().active_run = run.map(|(started, reads)| ActiveRun {
            start_time: started.map(|at| MicroTime(jiff::Timestamp::from_second(at).unwrap())),
            source: Some(RunFolder { claim_name: reads.into(), path: "/".into(), ..RunFolder::default() }),
            ..ActiveRun::default()
        });
        DeserializeGuard(Ok(job))
    };
    let (store, mut writer) = reflector::store();
    let waiting = [named("waits", "x", Some((None, "a"))), named("elsewhere", "x", Some((None, "b")))];
    let others = [named("runs", "a", Some((Some(1), "a"))), named("idle", "a", None)];
    for job in waiting.into_iter().chain(others) {
        writer.apply_watcher_event(&watcher::Event::Apply(job));
    }
    let woken = jobs_waiting_for_claims(&store, &named("over", "a", None));
    assert_eq!(woken.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["waits"]);
    assert!(has_started_run(&named("runs", "a", Some((Some(1), "a")))));
    assert!(!has_started_run(&named("waits", "a", Some((None, "a")))));
    let mut deleted = named("runs", "a", Some((Some(1), "a")));
    deleted.meta_mut().deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    assert!(!has_started_run(&deleted));
}

#[test]
fn a_claim_wakes_the_jobs_that_name_it_in_its_own_namespace() {
    let (store, mut writer) = reflector::store();
    writer.apply_watcher_event(&watcher::Event::Apply(DeserializeGuard(Ok(job("a")))));
    writer.apply_watcher_event(&watcher::Event::Apply(unreadable()));
    let claim = |name: &str, namespace: &str| PersistentVolumeClaim {
        metadata: kube::api::ObjectMeta {
            name: Some(name.into()),
            namespace: Some(namespace.into()),
            ..Default::default()
        },
        ..PersistentVolumeClaim::default()
    };
    assert_eq!(jobs_of_claim(&store, &claim("a", "prod")).len(), 1);
    assert!(jobs_of_claim(&store, &claim("a", "test")).is_empty());
    assert!(jobs_of_claim(&store, &claim("b", "prod")).is_empty());

    let mut changed = job("a");
    let used = RunFolder { claim_name: "b".into(), namespace: Some("test".into()), ..RunFolder::default() };
    let run = ActiveRun { source: Some(used), ..ActiveRun::default() };
    changed.status.get_or_insert_default().active_run = Some(run);
    writer.apply_watcher_event(&watcher::Event::Apply(DeserializeGuard(Ok(changed))));
    assert_eq!(jobs_of_claim(&store, &claim("b", "test")).len(), 1, "the run under way uses it");
}
