//! What the watches have brought, and whether that includes what this operator has written itself.
//!
//! The API server numbers all writes of a cluster in their order, and a watch brings those of its kind in that order.
//! So a store that has come to the number of a write holds that write and all earlier ones.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use futures::{Stream, TryStreamExt as _};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Container, PersistentVolumeClaim, Pod, PodSpec},
};
use kube::{
    Resource,
    runtime::{
        WatchStreamExt as _,
        reflector::{self, ObjectRef, Store, store::Writer},
        watcher,
    },
};
use thiserror::Error;
use tokio::sync::watch;

use super::read::Guarded;
use crate::api::SyncRun;

/// Nothing more comes from a watch.
#[derive(Debug, Error)]
#[error("a watch has ended")]
pub struct WatchEnded;

/// The objects of one kind, as far as they have been heard of.
pub struct Watched<K: Resource<DynamicType = ()> + 'static> {
    store: Store<K>,
    /// Up to which write the store has come; `None` before the first list.
    seen: watch::Receiver<Option<u64>>,
    written: Arc<AtomicU64>,
}

/// What keeps a [`Watched`] up to date.
pub struct Feed<K: Resource<DynamicType = ()> + Clone + 'static> {
    writer: Writer<K>,
    seen: watch::Sender<Option<u64>>,
    written: Arc<AtomicU64>,
}

/// Makes a store without objects and its feed.
pub fn watched<K: Resource<DynamicType = ()> + Clone + 'static>() -> (Watched<K>, Feed<K>) {
    let (store, writer) = reflector::store();
    let (sender, seen) = watch::channel(None);
    let written = Arc::new(AtomicU64::new(0));
    (Watched { store, seen, written: written.clone() }, Feed { writer, seen: sender, written })
}

impl<K: Resource<DynamicType = ()> + 'static> Clone for Watched<K> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), seen: self.seen.clone(), written: self.written.clone() }
    }
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Watched<K> {
    /// Returns the store itself.
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

    /// Notes an object as the API server answered a write with it, or a read that showed more than the watch.
    pub fn wrote(&self, object: &impl kube::ResourceExt) {
        self.written.fetch_max(version(object), Ordering::SeqCst);
    }

    /// Waits until the store holds all that has been noted as written.
    pub async fn catch_up(&self) -> Result<(), WatchEnded> {
        let written = self.written.load(Ordering::SeqCst);
        let mut seen = self.seen.clone();
        let holds = seen.wait_for(|seen| seen.is_some_and(|seen| seen >= written));
        holds.await.map(drop).map_err(|_| WatchEnded)
    }
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Feed<K> {
    /// Passes the events of a watch on, each after the store has it.
    pub fn reflect<S>(self, events: S) -> impl Stream<Item = watcher::Result<watcher::Event<K>>>
    where
        S: Stream<Item = watcher::Result<watcher::Event<K>>>,
    {
        let Self { writer, seen, written } = self;
        let mut listed = 0;
        events.reflect(writer).inspect_ok(move |event| {
            let reached = match event {
                watcher::Event::Apply(object) | watcher::Event::Delete(object) => version(object),
                // A list that follows this holds all that was written before, unless it was removed again.
                watcher::Event::Init => {
                    listed = written.load(Ordering::SeqCst);
                    return;
                }
                watcher::Event::InitApply(object) => {
                    listed = listed.max(version(object));
                    return;
                }
                watcher::Event::InitDone => listed,
            };
            let reached = Some(reached);
            seen.send_if_modified(|seen| std::mem::replace(seen, reached.max(*seen)) < reached);
        })
    }
}

/// Returns the number of the write that an object is of; 0 if there is none.
fn version(object: &impl kube::ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// What the watches have brought.
#[derive(Clone)]
pub struct Known {
    /// The SyncJobs.
    pub jobs: Watched<Guarded>,
    /// The SyncRuns.
    pub runs: Watched<SyncRun>,
    /// The Jobs of runs, without most of what their pods are to be.
    pub batch: Watched<Job>,
    /// The pods of runs, without most of their spec.
    pub pods: Watched<Pod>,
    /// The claims.
    pub claims: Watched<PersistentVolumeClaim>,
}

impl Known {
    /// Waits until all that this operator has written is among what the watches have brought.
    pub async fn catch_up(&self) -> Result<(), WatchEnded> {
        let children = async { tokio::try_join!(self.batch.catch_up(), self.pods.catch_up()) };
        tokio::try_join!(self.jobs.catch_up(), self.runs.catch_up(), self.claims.catch_up(), children)?;
        Ok(())
    }
}

/// Drops what nobody here reads of an object and takes much memory.
pub fn slim(object: &mut impl kube::ResourceExt) {
    object.managed_fields_mut().clear();
    object.annotations_mut().remove("kubectl.kubernetes.io/last-applied-configuration");
}

/// Drops from a Job what nobody here reads of it.
pub fn slim_job(job: &mut Job) {
    slim(job);
    if let Some(spec) = &mut job.spec {
        spec.template.spec = spec.template.spec.take().map(slim_spec);
    }
}

/// Drops from a pod what nobody here reads of it.
pub fn slim_pod(pod: &mut Pod) {
    slim(pod);
    pod.spec = pod.spec.take().map(slim_spec);
}

fn slim_spec(spec: PodSpec) -> PodSpec {
    let slim = |it: Container| Container { name: it.name, image: it.image, ..Container::default() };
    PodSpec {
        containers: spec.containers.into_iter().map(slim).collect(),
        node_name: spec.node_name,
        volumes: spec.volumes,
        ..PodSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::{StreamExt as _, channel::mpsc};
    use tokio::time::timeout;

    use super::*;
    use crate::api::SyncRunSpec;

    fn run(version: &str) -> SyncRun {
        let mut run = SyncRun::new("web-1", SyncRunSpec::default());
        run.metadata.resource_version = Some(version.into());
        run
    }

    #[tokio::test]
    async fn a_store_has_caught_up_once_it_holds_what_was_written_or_was_listed_anew() {
        let (watched, feed) = watched::<SyncRun>();
        let (events, received) = mpsc::unbounded();
        let driven = tokio::spawn(feed.reflect(received.map(Ok)).for_each(async |_| {}));
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

        // What was written is gone when the watch begins anew.
        watched.wrote(&run("11"));
        [watcher::Event::Init, watcher::Event::InitDone].into_iter().for_each(tell);
        watched.catch_up().await.unwrap();
        drop(events);
        driven.await.unwrap();
    }
}
