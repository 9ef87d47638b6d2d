use std::time::Duration;

use futures::{FutureExt as _, channel::mpsc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::DeserializeGuard;
use tokio::time::timeout;

use super::*;
use crate::api::SyncJobSpec;

fn run(version: &str) -> SyncRun {
    let mut run = SyncRun::new("web-1", SyncRunSpec::default());
    run.metadata.resource_version = Some(version.into());
    run
}

#[test]
fn stores_keep_of_the_labels_of_pods_those_that_are_read() {
    let labels = serde_json::json!({names::LABEL_TRY: "t", "batch.kubernetes.io/job-name": "j"});
    let annotations = serde_json::json!({names::ANNOTATION_INDEX: "1", "example.com/note": "n"});
    let metadata = serde_json::json!({"labels": labels, "annotations": annotations});
    let pod: Pod = serde_json::from_value(serde_json::json!({ "metadata": metadata })).unwrap();
    let pod = slim_child(pod);
    assert_eq!(pod.labels().keys().collect::<Vec<_>>(), [names::LABEL_TRY]);
    assert_eq!(pod.annotations().keys().collect::<Vec<_>>(), [names::ANNOTATION_INDEX]);
}

#[test]
fn stores_keep_little_of_a_run_that_is_done_and_all_of_another() {
    let of = |stage: Stage, owner: &str| {
        let mut run = run("1");
        run.spec.job = Some(SyncJobSpec::default());
        let (api_version, kind) = ("v1".into(), owner.into());
        let owner = OwnerReference { api_version, kind, ..OwnerReference::default() };
        run.metadata.owner_references = Some(vec![owner]);
        let status = SyncRunStatus { stage: Some(stage), retries: 1, ..SyncRunStatus::default() };
        run.status = Some(status);
        let run = slim_run(DeserializeGuard(Ok(run)));
        (run.spec.job.is_some(), run.status.unwrap().retries)
    };
    assert_eq!(of(Stage::Finishing, "SyncJob"), (true, 1));
    assert_eq!(of(Stage::Done, "SyncJob"), (false, 0));
    assert_eq!(of(Stage::Done, "Namespace"), (true, 0));
}

#[tokio::test]
async fn objects_are_found_by_the_syncjob_that_they_are_of_now() {
    let (watched, feed) = watched_by::<SyncRun>(&[], owner_index::of_run);
    let of = |namespace: &str, name: &str, job: &str| {
        let mut run = run("3");
        run.metadata.name = Some(name.into());
        run.metadata.namespace = Some(namespace.into());
        run.spec.sync_job.name = job.into();
        run
    };
    let (events, received) = mpsc::unbounded();
    let mut brought = feed.reflect(vec![received.map(Ok).boxed()]);
    let mut take = |told: Vec<watcher::Event<SyncRun>>| {
        told.into_iter().for_each(|event| events.unbounded_send(event).unwrap());
        while let Some(Some(_)) = brought.next().now_or_never() {}
    };
    let names = |found: Vec<Arc<SyncRun>>| found.iter().map(|run| run.name_any()).collect::<Vec<_>>();
    let listed = |run| watcher::Event::InitApply(run);
    let all = [of("a", "w-1", "web"), of("a", "x-1", "web2"), of("b", "w-1", "web"), of("a", "w-2", "web")];
    let list = [watcher::Event::Init].into_iter().chain(all.map(listed)).chain([watcher::Event::InitDone]);
    take(list.collect());
    assert_eq!(names(watched.of("a", "web")), ["w-1", "w-2"]);
    assert_eq!(names(watched.in_namespace("a")), ["w-1", "w-2", "x-1"]);
    take(vec![watcher::Event::Apply(of("a", "w-1", "web2")), watcher::Event::Delete(of("a", "w-2", "web"))]);
    assert_eq!(
        (names(watched.of("a", "web")), names(watched.of("a", "web2"))),
        (vec![], vec!["w-1".into(), "x-1".into()])
    );
    take(vec![watcher::Event::Init, listed(of("b", "w-1", "web")), watcher::Event::InitDone]);
    assert_eq!(
        (names(watched.in_namespace("a")), names(watched.of("b", "web"))),
        (vec![], vec!["w-1".into()])
    );
}

#[tokio::test]
async fn a_store_has_caught_up_once_it_holds_what_was_written_or_was_listed_anew() {
    let (watched, feed) = watched::<SyncRun>(&[]);
    let (events, received) = mpsc::unbounded();
    let driven = tokio::spawn(feed.reflect(vec![received.map(Ok).boxed()]).for_each(async |_| {}));
    let tell = |event| events.unbounded_send(event).unwrap();
    [watcher::Event::Init, watcher::Event::InitApply(run("7")), watcher::Event::InitDone]
        .into_iter()
        .for_each(tell);
    watched.catch_up("a").await.unwrap();

    watched.wrote(&run("9"));
    tell(watcher::Event::Apply(run("8")));
    let behind = timeout(Duration::from_millis(20), watched.catch_up("a")).await;
    assert!(behind.is_err(), "version 9 has not come");
    tell(watcher::Event::Apply(run("9")));
    watched.catch_up("a").await.unwrap();

    // The written object is deleted before the watch starts again.
    watched.wrote(&run("11"));
    [watcher::Event::Init, watcher::Event::InitDone].into_iter().for_each(tell);
    watched.catch_up("a").await.unwrap();
    assert!(watched.state().is_empty());
    drop(events);
    driven.await.unwrap();
}

fn refused() -> watcher::Error {
    watcher::Error::InitialListFailed(kube::Error::LinesCodecMaxLineLengthExceeded)
}

#[tokio::test]
async fn a_watch_that_cannot_be_resumed_begins_with_a_list_which_says_that_it_works_again() {
    let lost = || watcher::Error::WatchStartFailed(kube::Error::LinesCodecMaxLineLengthExceeded);
    let (begun, of_begun) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let count = begun.clone();
    let list = move || {
        let first = count.fetch_add(1, Ordering::SeqCst) == 0;
        let parts = [Ok(watcher::Event::Init), Ok(watcher::Event::InitApply(run("7")))];
        let end = first.then(|| Err(lost()));
        stream::iter(parts.into_iter().chain([Ok(watcher::Event::InitDone)]).chain(end)).boxed()
    };
    let (watched, feed) = watched::<SyncRun>(&[]);
    let told = of_begun.clone();
    let events = listing_anew(list).inspect(move |event| {
        told.fetch_add(u64::from(event.is_err()), Ordering::SeqCst);
    });
    feed.reflect(vec![events.boxed()]).for_each(async |_| {}).await;
    assert_eq!((begun.load(Ordering::SeqCst), of_begun.load(Ordering::SeqCst)), (2, 1));
    watched.catch_up("a").await.unwrap();
}

#[tokio::test]
async fn each_watch_of_several_namespaces_starts_fails_and_recovers_by_itself() {
    let (watched, feed) = watched::<SyncRun>(&["a".into(), "b".into()]);
    let of = |namespace: &str, name: &str, version: &str| {
        let mut run = run(version);
        run.metadata.name = Some(name.into());
        run.metadata.namespace = Some(namespace.into());
        run
    };
    let ((a, of_a), (b, of_b)) = (mpsc::unbounded(), mpsc::unbounded());
    let mut events = feed.reflect(vec![of_a.boxed(), of_b.boxed()]);
    let mut take = |from: &mpsc::UnboundedSender<_>, told: Vec<watcher::Result<watcher::Event<SyncRun>>>| {
        told.into_iter().for_each(|event| from.unbounded_send(event).unwrap());
        let mut brought = 0;
        while let Some(Some(_)) = events.next().now_or_never() {
            brought += 1;
        }
        brought
    };
    let reached = |namespace: &str| watched.catch_up(namespace).now_or_never().map(|it| it.is_ok());
    let names = || {
        let mut names: Vec<_> = watched.state().iter().map(|run| run.name_any()).collect();
        names.sort();
        names
    };
    let (init, done) = (|| Ok(watcher::Event::Init), || Ok(watcher::Event::InitDone));
    let listed = |run| Ok(watcher::Event::InitApply(run));
    take(&a, vec![init(), listed(of("a", "a1", "3")), done()]);
    assert_eq!((names(), reached("a")), (vec!["a1".to_string()], None), "nothing is known of b");
    take(&b, vec![Err(refused())]);
    assert_eq!((reached("a"), reached("b")), (Some(true), Some(false)), "b fails, and a goes on");
    take(&b, vec![init(), listed(of("b", "b1", "4")), done()]);
    assert_eq!((reached("a"), reached("b")), (Some(true), Some(true)));
    assert_eq!(names(), ["a1", "b1"]);

    // A write in one namespace is not reached by the watch of the other.
    watched.wrote(&of("b", "b1", "8"));
    take(&a, vec![Ok(watcher::Event::Apply(of("a", "a2", "9")))]);
    assert_eq!(reached("a"), None);
    take(&b, vec![Ok(watcher::Event::Apply(of("b", "b1", "8")))]);
    assert_eq!(reached("a"), Some(true));

    // A new list of one namespace removes objects of that namespace alone.
    take(&b, vec![init()]);
    assert_eq!(take(&b, vec![done()]), 1);
    assert_eq!(names(), ["a1", "a2"]);

    // A version that cannot be compared is no reason to believe that everything has been seen.
    take(&a, vec![Ok(watcher::Event::Apply(of("a", "a1", "v10")))]);
    assert_eq!(reached("a"), Some(false));
}

#[test]
fn a_run_that_cannot_be_read_keeps_its_name_and_says_why() {
    let weight = serde_json::json!({"weight": 4_294_967_296_u64, "preference": {}});
    let affinity =
        serde_json::json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weight]}});
    let spec = serde_json::json!({"syncJob": {"name": "web"}, "job": {
        "source": {"persistentVolumeClaim": {"claimName": "a"}},
        "destination": {"persistentVolumeClaim": {"claimName": "b"}},
        "pods": {"affinity": affinity},
    }});
    let manifest = serde_json::json!({
        "apiVersion": "volferry.dev/v1alpha1", "kind": "SyncRun",
        "metadata": {"name": "odd", "namespace": "prod", "resourceVersion": "7"}, "spec": spec,
    });
    let run = slim_run(serde_json::from_value(manifest).unwrap());
    assert_eq!((run.name_any(), run.resource_version()), ("odd".into(), Some("7".into())));
    assert!(run.annotations()[names::ANNOTATION_UNREADABLE].contains("4294967296"), "{run:?}");
    assert!(run.spec.sync_job.name.is_empty());
}
