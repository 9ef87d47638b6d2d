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
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{PersistentVolumeClaim, Service},
};
use kube::{
    Api, Resource, ResourceExt as _,
    core::error_boundary::InvalidObject,
    runtime::{
        WatchStreamExt as _,
        reflector::{self, ObjectRef, Store, store::Writer},
        watcher,
    },
};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::watch;

use super::{
    owner_index::{self, OwnerIndex},
    read::{Guarded, GuardedEndpoint, GuardedGrant, GuardedRun, GuardedSet},
    watch_health::{failure, listing_anew},
};
use crate::{
    api::{GROUP, Stage, SyncGrant, SyncGrantSpec, SyncRun, SyncRunSpec, SyncRunStatus},
    names,
    pods::stored_fields::{Job, Pod},
    queue::turns::SetLimits,
    telemetry::probes::Health,
};

/// The reasons why it is not known whether a store holds all noted writes.
#[derive(Debug, Error)]
pub enum WatchError {
    /// No more events come from the watch.
    #[error("a watch has ended")]
    Ended,
    /// The API server refuses to list the objects, or to watch them.
    #[error("the watch of {kind} fails{}", of(.scope))]
    Fails {
        /// What the watch brings.
        kind: String,
        /// The part of the cluster.
        scope: WatchScope,
    },
    /// The versions of objects are no numbers, so nobody can tell which write is the later one.
    #[error("the API server has given {kind} a resourceVersion that is no number")]
    Unnumbered {
        /// What the watch brings.
        kind: String,
    },
}

/// The part of a cluster that one watch covers: a namespace, or `None` for all of them.
pub type WatchScope = Option<String>;

fn of(scope: &WatchScope) -> String {
    scope.as_ref().map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default()
}

/// The objects of one kind that the watches have reported so far.
#[derive(Clone)]
pub struct Watched<K: Resource<DynamicType = ()> + Clone + 'static> {
    store: Store<K>,
    index: Arc<OwnerIndex<K>>,
    scopes: Arc<[Reached]>,
}

/// How far the watch of one scope has come.
struct Reached {
    scope: WatchScope,
    seen: watch::Receiver<WatchState>,
    written: Arc<Written>,
}

/// What the watch of one scope has brought.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct WatchState {
    /// The number of the last write that the store has reached; `None` before the first list.
    reached: Option<u64>,
    /// Whether the API server refuses the watch at present.
    fails: bool,
}

/// What this operator has written in one scope.
#[derive(Debug, Default)]
struct Written {
    last: AtomicU64,
    is_unnumbered: AtomicBool,
}

impl Written {
    /// Notes the version of an object, and returns it.
    fn note(&self, object: &impl kube::ResourceExt) -> Option<u64> {
        let number = object.resource_version().and_then(|version| version.parse().ok());
        self.is_unnumbered.fetch_or(number.is_none(), Ordering::SeqCst);
        number
    }
}

/// The writing end of a [`Watched`], which passes the events of its watches into it.
pub struct Feed<K: Resource<DynamicType = ()> + Clone + 'static> {
    writer: Writer<K>,
    store: Store<K>,
    index: Arc<OwnerIndex<K>>,
    listings: Vec<Listing<K>>,
    /// Whether the first list of any scope is in the store.
    is_ready: bool,
}

/// The last list of one scope.
struct Listing<K> {
    scope: WatchScope,
    /// The objects of the list, until they are in the store.
    objects: Vec<K>,
    /// The number of the last write that the list includes.
    number: u64,
    seen: watch::Sender<WatchState>,
    written: Arc<Written>,
}

/// Creates an empty store for the objects of these namespaces, or of all if there are none, and its feed. Jobs and pods
/// are found by the label that names their SyncJob.
pub fn watched<K: Resource<DynamicType = ()> + Clone + 'static>(
    namespaces: &[String],
) -> (Watched<K>, Feed<K>) {
    watched_by(namespaces, owner_index::label)
}

/// Creates an empty store whose objects are found by the SyncJob that `owner` says.
pub fn watched_by<K: Resource<DynamicType = ()> + Clone + 'static>(
    namespaces: &[String],
    owner: fn(&K) -> &str,
) -> (Watched<K>, Feed<K>) {
    let (store, writer) = reflector::store();
    let index = Arc::new(OwnerIndex::new(owner));
    let (scopes, listings): (Vec<_>, Vec<_>) = scopes(namespaces).into_iter().map(not_listed).unzip();
    let feed = Feed { writer, store: store.clone(), index: index.clone(), listings, is_ready: false };
    (Watched { store, index, scopes: scopes.into() }, feed)
}

/// Returns the scopes that cover these namespaces, or the whole cluster if there are none.
pub fn scopes(namespaces: &[String]) -> Vec<WatchScope> {
    if namespaces.is_empty() { vec![None] } else { namespaces.iter().cloned().map(Some).collect() }
}

fn not_listed<K>(scope: WatchScope) -> (Reached, Listing<K>) {
    let (sender, seen) = watch::channel(WatchState::default());
    let written = Arc::new(Written::default());
    let reached = Reached { scope: scope.clone(), seen, written: written.clone() };
    (reached, Listing { scope, objects: Vec::new(), number: 0, seen: sender, written })
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

    /// Returns the objects of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.index.find(&self.store, namespace, None)
    }

    /// Returns the objects of a namespace that are of a SyncJob: of its name, or for Jobs and pods of its label.
    pub fn of(&self, namespace: &str, owner: &str) -> Vec<Arc<K>> {
        self.index.find(&self.store, namespace, Some(owner))
    }

    /// Returns whether a watch brings the objects of that namespace.
    pub fn watches(&self, namespace: &str) -> bool {
        self.scopes.iter().any(|reached| reached.scope.as_deref().is_none_or(|scope| scope == namespace))
    }

    /// Returns the object of that name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name).within(namespace))
    }

    /// Notes the version of an object from the response to a write, or from a read that was ahead of the watch.
    pub fn wrote(&self, object: &impl kube::ResourceExt) {
        for reached in self.scopes.iter().filter(|it| covers(&it.scope, object)) {
            let number = reached.written.note(object).unwrap_or(0);
            reached.written.last.fetch_max(number, Ordering::SeqCst);
        }
    }

    /// Waits until the store holds all noted writes. A watch that fails is waited for by nobody: for a job of its own
    /// namespace, this fails, and for others its objects stay as they were.
    pub async fn catch_up(&self, namespace: &str) -> Result<(), WatchError> {
        let kind = || K::plural(&()).into_owned();
        for reached in &*self.scopes {
            let written = reached.written.last.load(Ordering::SeqCst);
            let holds = |seen: &WatchState| seen.fails || seen.reached.is_some_and(|seen| seen >= written);
            let seen = *reached.seen.clone().wait_for(holds).await.map_err(|_| WatchError::Ended)?;
            if reached.written.is_unnumbered.load(Ordering::SeqCst) {
                return Err(WatchError::Unnumbered { kind: kind() });
            }
            let is_own = reached.scope.as_deref().is_none_or(|scope| scope == namespace);
            if seen.fails && is_own {
                return Err(WatchError::Fails { kind: kind(), scope: reached.scope.clone() });
            }
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
    /// Watches the objects with these labels in each scope, as `read` turns them into those of the store. Returns the
    /// events, each once the store has it. A watch that fails begins anew after a pause, and `health` says so
    /// meanwhile.
    pub fn follow<R: Watchable>(
        self,
        api: impl Fn(Option<&str>) -> Api<R>,
        labels: &str,
        read: fn(R) -> K,
        health: &Arc<Health>,
    ) -> BoxStream<'static, watcher::Result<watcher::Event<K>>> {
        let watch = |scope: &WatchScope| {
            let (scope, health) = (scope.clone(), health.clone());
            let (api, config) = (api(scope.as_deref()), watcher::Config::default().labels(labels));
            let events = listing_anew(move || watcher(api.clone(), config.clone()).boxed());
            let events = events.default_backoff().inspect(move |event| {
                if let Some(failure) = failure(event) {
                    health.watched(&R::plural(&()), scope.as_deref().unwrap_or_default(), failure);
                }
            });
            events.map(move |event| event.map(|event| map(event, read))).boxed()
        };
        let watches = self.listings.iter().map(|it| watch(&it.scope)).collect();
        self.reflect(watches)
    }

    /// Stores the events of the watches, one for each scope, and passes them on after that.
    fn reflect(
        mut self,
        watches: Vec<BoxStream<'static, watcher::Result<watcher::Event<K>>>>,
    ) -> BoxStream<'static, watcher::Result<watcher::Event<K>>> {
        let watches = watches.into_iter().enumerate();
        let events = watches.map(|(scope, events)| events.map(move |event| (scope, event)));
        let stored = stream::select_all(events).map(move |(scope, event)| {
            let listing = &self.listings[scope];
            failure(&event).iter().for_each(|failure| listing.report(failure.is_some()));
            match event {
                Ok(event) => self.store(scope, event).into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            }
        });
        stored.flat_map(stream::iter).boxed()
    }

    /// Takes an event of the watch of one scope. Returns the events for the store, which it has by then: the first list
    /// of any scope as a list, and all later ones as their differences.
    fn store(&mut self, scope: usize, event: watcher::Event<K>) -> Vec<watcher::Event<K>> {
        let listing = &mut self.listings[scope];
        let events = match event {
            watcher::Event::InitDone if self.is_ready => listing.differences(&self.store),
            watcher::Event::InitDone => {
                self.is_ready = true;
                let objects = std::mem::take(&mut listing.objects).into_iter().map(watcher::Event::InitApply);
                iter::once(watcher::Event::Init).chain(objects).chain([watcher::Event::InitDone]).collect()
            }
            change @ (watcher::Event::Apply(_) | watcher::Event::Delete(_)) => {
                listing.count(&change);
                vec![change]
            }
            part => {
                listing.add(part);
                return Vec::new();
            }
        };
        self.index.apply(&events, &self.store);
        events.iter().for_each(|event| self.writer.apply_watcher_event(event));
        self.listings[scope].reach();
        events
    }
}

fn map<R, K>(event: watcher::Event<R>, read: fn(R) -> K) -> watcher::Event<K> {
    match event {
        watcher::Event::Init => watcher::Event::Init,
        watcher::Event::InitApply(object) => watcher::Event::InitApply(read(object)),
        watcher::Event::InitDone => watcher::Event::InitDone,
        watcher::Event::Apply(object) => watcher::Event::Apply(read(object)),
        watcher::Event::Delete(object) => watcher::Event::Delete(read(object)),
    }
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Listing<K> {
    /// Takes a part of a list.
    fn add(&mut self, event: watcher::Event<K>) {
        self.count(&event);
        match event {
            watcher::Event::Init => self.objects = Vec::new(),
            watcher::Event::InitApply(object) => self.objects.push(object),
            watcher::Event::Apply(_) | watcher::Event::Delete(_) | watcher::Event::InitDone => {}
        }
    }

    /// Notes the number of the write that an event reports.
    fn count(&mut self, event: &watcher::Event<K>) {
        match event {
            // The list that follows includes everything written before, unless it was deleted since.
            watcher::Event::Init => self.number = self.written.last.load(Ordering::SeqCst),
            watcher::Event::InitApply(object)
            | watcher::Event::Apply(object)
            | watcher::Event::Delete(object) => {
                self.number = self.number.max(self.written.note(object).unwrap_or(0));
            }
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
    fn reach(&self) {
        let reached = Some(self.number);
        self.seen.send_if_modified(|seen| {
            let is_news = seen.reached < reached;
            seen.reached = seen.reached.max(reached);
            is_news
        });
    }

    /// Announces whether the API server refuses the watch.
    fn report(&self, fails: bool) {
        self.seen.send_if_modified(|seen| std::mem::replace(&mut seen.fails, fails) != fails);
    }
}

/// Returns whether the watch of a scope reports an object.
fn covers(scope: &WatchScope, object: &impl kube::ResourceExt) -> bool {
    scope.is_none() || *scope == object.namespace()
}

/// The namespace and name of a claim.
pub(crate) type ClaimName = (String, String);

/// The SyncEndpoints, and the objects of their services, that the watches report.
pub(crate) struct KnownEndpoints {
    pub(crate) endpoints: Watched<GuardedEndpoint>,
    pub(crate) deployments: Watched<Deployment>,
    pub(crate) services: Watched<Service>,
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
    /// The grants.
    pub grants: Watched<SyncGrant>,
    /// The SyncJobSets.
    pub sets: Watched<GuardedSet>,
}

impl Known {
    /// Returns how many runs of each SyncJobSet may be under way.
    pub fn set_limits(&self) -> SetLimits {
        let limit = |set: &GuardedSet| {
            let most = set.0.as_ref().ok()?.spec.max_runs.unwrap_or(0);
            Some((set.uid()?, u32::try_from(most).unwrap_or(0)))
        };
        self.sets.state().iter().filter_map(|set| limit(set)).collect()
    }

    /// Waits until all stores hold what this operator has written. Fails if a watch has ended, or if one of this
    /// namespace fails.
    pub async fn catch_up(&self, namespace: &str) -> Result<(), WatchError> {
        let children = async {
            tokio::try_join!(self.batch.catch_up(namespace), self.pods.catch_up(namespace)).map(drop)
        };
        let (jobs, runs) = (self.jobs.catch_up(namespace), self.runs.catch_up(namespace));
        tokio::try_join!(jobs, runs, self.claims.catch_up(namespace), children).map(drop)
    }
}

/// Takes a SyncGrant for the store. One that cannot be read grants nothing.
#[must_use]
pub fn slim_grant(grant: GuardedGrant) -> SyncGrant {
    match grant.0 {
        Ok(grant) => slim(grant),
        Err(InvalidObject { metadata, error }) => {
            tracing::warn!(
                name = metadata.name,
                namespace = metadata.namespace,
                error,
                "a SyncGrant cannot be read"
            );
            slim(SyncGrant { metadata, spec: SyncGrantSpec::default(), status: None })
        }
    }
}

/// Drops large fields of an object that the controller never reads, to save memory.
#[must_use]
pub fn slim<K: kube::ResourceExt>(mut object: K) -> K {
    object.managed_fields_mut().clear();
    object.annotations_mut().remove("kubectl.kubernetes.io/last-applied-configuration");
    object
}

/// Drops the labels and annotations of a Job or a pod that the controller never reads, to save memory.
#[must_use]
pub fn slim_child<K: kube::ResourceExt>(child: K) -> K {
    let mut child = slim(child);
    child.labels_mut().retain(|key, _| key.starts_with(GROUP));
    child.annotations_mut().retain(|key, _| key.starts_with(GROUP) || key == names::ANNOTATION_INDEX);
    child
}

/// Drops the fields of a SyncRun that the controller never reads once the run is done, to save memory. One that is held
/// for a hook needs its spec. Of a SyncRun that cannot be read, the metadata stays, with the reason as an annotation.
#[must_use]
pub fn slim_run(run: GuardedRun) -> SyncRun {
    let mut run = match run.0 {
        Ok(run) => slim(run),
        Err(InvalidObject { metadata, error }) => {
            let mut run = slim(SyncRun { metadata, spec: SyncRunSpec::default(), status: None });
            run.annotations_mut().insert(names::ANNOTATION_UNREADABLE.into(), error);
            return run;
        }
    };
    run.annotations_mut().remove(names::ANNOTATION_UNREADABLE);
    let is_held = run.is_held();
    if let Some(status) = run.status.take_if(|status| status.stage == Some(Stage::Done)) {
        run.status = Some(SyncRunStatus { stage: status.stage, ..SyncRunStatus::default() });
        run.spec.job = run.spec.job.take_if(|_| is_held);
    }
    run
}

#[cfg(test)]
mod tests;
