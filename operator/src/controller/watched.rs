//! Holds the objects that the watches report, and waits until they include this operator's own writes.
//!
//! The API server numbers all writes of a cluster in order, and a watch reports those of its kind and its namespaces in
//! that order. A store that a watch has brought to the number of a write therefore holds that write and all earlier
//! ones of the same watch.

use std::{
    collections::HashSet,
    fmt::Debug,
    iter,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, Resource, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        reflector::{self, ObjectRef, Store, store::Writer},
        watcher,
    },
};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::watch;

use super::read::Guarded;
use crate::{
    api::{GROUP, Stage, SyncRun, SyncRunStatus},
    model::stored::{Job, Pod},
    names,
};

/// The error that a watch has ended, so that no more events come from it.
#[derive(Debug, Error)]
#[error("a watch has ended")]
pub struct WatchEnded;

/// The part of a cluster that one watch covers: a namespace, or `None` for all of them.
pub type Scope = Option<String>;

/// The objects of one kind that the watches have reported so far.
#[derive(Clone)]
pub struct Watched<K: Resource<DynamicType = ()> + Clone + 'static> {
    store: Store<K>,
    scopes: Arc<[Reached]>,
}

/// How far the watch of one scope has come.
struct Reached {
    scope: Scope,
    /// The number of the last write that the store has reached; `None` before the first list.
    seen: watch::Receiver<Option<u64>>,
    written: Arc<AtomicU64>,
}

/// The writing end of a [`Watched`], which passes the events of its watches into it.
pub struct Feed<K: Resource<DynamicType = ()> + Clone + 'static> {
    writer: Writer<K>,
    store: Store<K>,
    listings: Vec<Listing<K>>,
    /// Whether the first lists of all scopes are in the store.
    is_ready: bool,
}

/// The last list of one scope.
struct Listing<K> {
    scope: Scope,
    /// The objects of the list, until they are in the store.
    objects: Vec<K>,
    /// The number of the last write that the list includes.
    number: u64,
    is_complete: bool,
    seen: watch::Sender<Option<u64>>,
    written: Arc<AtomicU64>,
}

/// Creates an empty store for the objects of these namespaces, or of all if there are none, and its feed.
pub fn watched<K: Resource<DynamicType = ()> + Clone + 'static>(
    namespaces: &[String],
) -> (Watched<K>, Feed<K>) {
    let (store, writer) = reflector::store();
    let (scopes, listings): (Vec<_>, Vec<_>) = scopes(namespaces).into_iter().map(not_listed).unzip();
    let feed = Feed { writer, store: store.clone(), listings, is_ready: false };
    (Watched { store, scopes: scopes.into() }, feed)
}

/// Returns the scopes that cover these namespaces, or the whole cluster if there are none.
pub fn scopes(namespaces: &[String]) -> Vec<Scope> {
    if namespaces.is_empty() { vec![None] } else { namespaces.iter().cloned().map(Some).collect() }
}

fn not_listed<K>(scope: Scope) -> (Reached, Listing<K>) {
    let (sender, seen) = watch::channel(None);
    let written = Arc::new(AtomicU64::new(0));
    let reached = Reached { scope: scope.clone(), seen, written: written.clone() };
    let (objects, number, is_complete) = (Vec::new(), 0, false);
    (reached, Listing { scope, objects, number, is_complete, seen: sender, written })
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Watched<K> {
    /// Returns the underlying store.
    pub fn store(&self) -> &Store<K> {
        &self.store
    }

    /// Returns all objects.
    pub fn state(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    /// Returns the object of that name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name).within(namespace))
    }

    /// Notes the version of an object from the response to a write, or from a read that was ahead of the watch.
    pub fn wrote(&self, object: &impl kube::ResourceExt) {
        for reached in self.scopes.iter().filter(|it| covers(&it.scope, object)) {
            reached.written.fetch_max(version(object), Ordering::SeqCst);
        }
    }

    /// Waits until the store holds all noted writes. Fails if the watches have ended.
    pub async fn catch_up(&self) -> Result<(), WatchEnded> {
        for reached in &*self.scopes {
            let written = reached.written.load(Ordering::SeqCst);
            let mut seen = reached.seen.clone();
            let holds = seen.wait_for(|seen| seen.is_some_and(|seen| seen >= written)).await;
            holds.map(drop).map_err(|_| WatchEnded)?;
        }
        Ok(())
    }
}

/// The kinds of objects that a watch can bring.
pub trait Watchable:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Watchable for K where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K: Watchable> Feed<K> {
    /// Watches the objects with these labels in each scope, without the fields that `slim` drops. Returns the events,
    /// each once the store has it. A watch that fails begins anew after a pause.
    pub fn follow(
        self,
        api: impl Fn(Option<&str>) -> Api<K>,
        labels: &str,
        slim: fn(&mut K),
    ) -> BoxStream<'static, watcher::Result<watcher::Event<K>>> {
        let watch = |scope: Option<&str>| {
            let events = watcher(api(scope), watcher::Config::default().labels(labels));
            events.default_backoff().modify(slim).boxed()
        };
        let watches = self.listings.iter().map(|it| watch(it.scope.as_deref())).collect();
        self.reflect(watches)
    }

    /// Stores the events of the watches, one for each scope, and passes them on after that.
    fn reflect(
        mut self,
        watches: Vec<BoxStream<'static, watcher::Result<watcher::Event<K>>>>,
    ) -> BoxStream<'static, watcher::Result<watcher::Event<K>>> {
        let watches = watches.into_iter().enumerate();
        let events = watches.map(|(scope, events)| events.map(move |event| (scope, event)));
        let stored = stream::select_all(events).map(move |(scope, event)| match event {
            Ok(event) => self.store(scope, event).into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        });
        stored.flat_map(stream::iter).boxed()
    }

    /// Takes an event of the watch of one scope. Returns the events for the store, which it has by then: none until the
    /// first lists of all scopes are complete, and later the differences of a new list.
    fn store(&mut self, scope: usize, event: watcher::Event<K>) -> Vec<watcher::Event<K>> {
        let (was_ready, listing) = (self.is_ready, &mut self.listings[scope]);
        let events = match event {
            watcher::Event::InitDone if was_ready => listing.differences(&self.store),
            watcher::Event::InitDone => {
                listing.is_complete = true;
                self.first_list()
            }
            change @ (watcher::Event::Apply(_) | watcher::Event::Delete(_)) if was_ready => {
                listing.count(&change);
                vec![change]
            }
            part => {
                listing.add(part);
                return Vec::new();
            }
        };
        events.iter().for_each(|event| self.writer.apply_watcher_event(event));
        let listed = if was_ready { &self.listings[scope..=scope] } else { &self.listings };
        listed.iter().filter(|_| self.is_ready).for_each(Listing::tell);
        events
    }

    /// Returns the first list of all scopes together, once each is complete.
    fn first_list(&mut self) -> Vec<watcher::Event<K>> {
        self.is_ready = self.listings.iter().all(|listing| listing.is_complete);
        if !self.is_ready {
            return Vec::new();
        }
        let objects = self.listings.iter_mut().flat_map(|listing| std::mem::take(&mut listing.objects));
        let objects = objects.map(watcher::Event::InitApply);
        iter::once(watcher::Event::Init).chain(objects).chain([watcher::Event::InitDone]).collect()
    }
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Listing<K> {
    /// Takes a part of the list, or a change before the list is in the store.
    fn add(&mut self, event: watcher::Event<K>) {
        self.count(&event);
        match event {
            watcher::Event::Init => (self.objects, self.is_complete) = (Vec::new(), false),
            watcher::Event::InitApply(object) => self.objects.push(object),
            watcher::Event::Apply(object) => {
                self.remove(&object);
                self.objects.push(object);
            }
            watcher::Event::Delete(object) => self.remove(&object),
            watcher::Event::InitDone => {}
        }
    }

    fn remove(&mut self, object: &K) {
        let gone = ObjectRef::from_obj(object);
        self.objects.retain(|it| ObjectRef::from_obj(it) != gone);
    }

    /// Notes the number of the write that an event reports.
    fn count(&mut self, event: &watcher::Event<K>) {
        match event {
            // The list that follows includes everything written before, unless it was deleted since.
            watcher::Event::Init => self.number = self.written.load(Ordering::SeqCst),
            watcher::Event::InitApply(object)
            | watcher::Event::Apply(object)
            | watcher::Event::Delete(object) => self.number = self.number.max(version(object)),
            watcher::Event::InitDone => {}
        }
    }

    /// Returns the changes that turn the store's objects of this scope into those of the list.
    fn differences(&mut self, store: &Store<K>) -> Vec<watcher::Event<K>> {
        let listed: HashSet<_> = self.objects.iter().map(ObjectRef::from_obj).collect();
        let mut known = store.state();
        known.retain(|it| covers(&self.scope, &**it) && !listed.contains(&ObjectRef::from_obj(&**it)));
        let gone = known.iter().map(|it| watcher::Event::Delete(K::clone(it)));
        gone.chain(std::mem::take(&mut self.objects).into_iter().map(watcher::Event::Apply)).collect()
    }

    /// Announces that the store holds the writes up to the list's number.
    fn tell(&self) {
        let reached = Some(self.number);
        self.seen.send_if_modified(|seen| std::mem::replace(seen, reached.max(*seen)) < reached);
    }
}

/// Returns whether the watch of a scope reports an object.
fn covers(scope: &Scope, object: &impl kube::ResourceExt) -> bool {
    scope.is_none() || *scope == object.namespace()
}

/// Returns the resource version of an object as a number; 0 if it has none.
fn version(object: &impl kube::ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// The stores of all watches.
#[derive(Clone)]
pub struct Known {
    /// The SyncJobs.
    pub jobs: Watched<Guarded>,
    /// The SyncRuns.
    pub runs: Watched<SyncRun>,
    /// The Jobs of runs.
    pub batch: Watched<Job>,
    /// The pods of runs.
    pub pods: Watched<Pod>,
    /// The claims.
    pub claims: Watched<PersistentVolumeClaim>,
}

impl Known {
    /// Waits until all stores hold what this operator has written. Fails if a watch has ended.
    pub async fn catch_up(&self) -> Result<(), WatchEnded> {
        let children = async { tokio::try_join!(self.batch.catch_up(), self.pods.catch_up()) };
        tokio::try_join!(self.jobs.catch_up(), self.runs.catch_up(), self.claims.catch_up(), children)?;
        Ok(())
    }
}

/// Drops large fields of an object that the controller never reads, to save memory.
pub fn slim(object: &mut impl kube::ResourceExt) {
    object.managed_fields_mut().clear();
    object.annotations_mut().remove("kubectl.kubernetes.io/last-applied-configuration");
}

/// Drops the labels and annotations of a Job or a pod that the controller never reads, to save memory.
pub fn slim_child(child: &mut impl kube::ResourceExt) {
    slim(child);
    child.labels_mut().retain(|key, _| key.starts_with(GROUP));
    child.annotations_mut().retain(|key, _| key.starts_with(GROUP) || key == names::ANNOTATION_INDEX);
}

/// Drops the fields of a SyncRun that the controller never reads once the run is done, to save memory. One that is held
/// for a hook needs its spec.
pub fn slim_run(run: &mut SyncRun) {
    slim(run);
    if let Some(status) = run.status.take_if(|status| status.stage == Some(Stage::Done)) {
        run.status = Some(SyncRunStatus { stage: status.stage, ..SyncRunStatus::default() });
        run.spec.job = run.spec.job.take().filter(|_| !run.finalizers().is_empty());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::{FutureExt as _, channel::mpsc};
    use tokio::time::timeout;

    use super::*;
    use crate::api::{SyncJobSpec, SyncRunSpec};

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
        let mut pod: Pod = serde_json::from_value(serde_json::json!({ "metadata": metadata })).unwrap();
        slim_child(&mut pod);
        assert_eq!(pod.labels().keys().collect::<Vec<_>>(), [names::LABEL_TRY]);
        assert_eq!(pod.annotations().keys().collect::<Vec<_>>(), [names::ANNOTATION_INDEX]);
    }

    #[test]
    fn stores_keep_little_of_a_run_that_is_done_and_all_of_another() {
        let of = |stage: Stage, finalizers: &[&str]| {
            let mut run = run("1");
            run.spec.job = Some(SyncJobSpec::default());
            run.metadata.finalizers = Some(finalizers.iter().map(ToString::to_string).collect());
            let status = SyncRunStatus { stage: Some(stage), retries: 1, ..SyncRunStatus::default() };
            run.status = Some(status);
            slim_run(&mut run);
            (run.spec.job.is_some(), run.status.unwrap().retries)
        };
        assert_eq!(of(Stage::Finishing, &[]), (true, 1));
        assert_eq!(of(Stage::Done, &[]), (false, 0));
        assert_eq!(of(Stage::Done, &[names::FINALIZER_HOOKS]), (true, 0));
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
        watched.catch_up().await.unwrap();

        watched.wrote(&run("9"));
        tell(watcher::Event::Apply(run("8")));
        let behind = timeout(Duration::from_millis(20), watched.catch_up()).await;
        assert!(behind.is_err(), "version 9 has not come");
        tell(watcher::Event::Apply(run("9")));
        watched.catch_up().await.unwrap();

        // The written object is deleted before the watch starts again.
        watched.wrote(&run("11"));
        [watcher::Event::Init, watcher::Event::InitDone].into_iter().for_each(tell);
        watched.catch_up().await.unwrap();
        assert!(watched.state().is_empty());
        drop(events);
        driven.await.unwrap();
    }

    #[test]
    fn the_watches_of_several_namespaces_fill_one_store_and_each_is_waited_for() {
        let (watched, mut feed) = watched::<SyncRun>(&["a".into(), "b".into()]);
        let of = |namespace: &str, name: &str, version: &str| {
            let mut run = run(version);
            run.metadata.name = Some(name.into());
            run.metadata.namespace = Some(namespace.into());
            run
        };
        let reached = |watched: &Watched<SyncRun>| watched.catch_up().now_or_never().is_some();
        let names = |watched: &Watched<SyncRun>| {
            let mut names: Vec<_> = watched.state().iter().map(|run| run.name_any()).collect();
            names.sort();
            names
        };
        let (init, done) = (|| watcher::Event::Init, || watcher::Event::InitDone);
        let first = [init(), watcher::Event::InitApply(of("a", "a1", "3")), done()];
        assert!(first.into_iter().all(|event| feed.store(0, event).is_empty()));
        // Changes of one namespace before the other is listed.
        assert!(feed.store(0, watcher::Event::Apply(of("a", "a2", "5"))).is_empty());
        assert!(feed.store(0, watcher::Event::Delete(of("a", "a1", "6"))).is_empty());
        assert!(!reached(&watched) && watched.state().is_empty());
        let second = [init(), watcher::Event::InitApply(of("b", "b1", "4"))];
        assert!(second.into_iter().all(|event| feed.store(1, event).is_empty()));
        assert_eq!(feed.store(1, done()).len(), 4);
        assert!(reached(&watched));
        assert_eq!(names(&watched), ["a2", "b1"]);

        // A write in one namespace is not reached by the watch of the other.
        watched.wrote(&of("b", "b1", "8"));
        feed.store(0, watcher::Event::Apply(of("a", "a2", "9")));
        assert!(!reached(&watched));
        feed.store(1, watcher::Event::Apply(of("b", "b1", "8")));
        assert!(reached(&watched));

        // A new list of one namespace removes objects of that namespace alone.
        assert!(feed.store(1, init()).is_empty());
        let events = feed.store(1, done());
        assert!(matches!(&events[..], [watcher::Event::Delete(gone)] if gone.name_any() == "b1"));
        assert_eq!(names(&watched), ["a2"]);
    }
}
